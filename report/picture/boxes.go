package picture

import (
	"fmt"
	"math"
	"strings"

	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/trace"
)

// Boxes draws computations as boxes with their names. A slot is as long as the shortest computation other than an
// update, and takes a fixed number of columns. If the drawing is wider than the screen, it shows the beginning and ends
// with "…".
//
// If computations begin or end inside slots, the drawing is not to scale. If two computations share a slot, the drawing
// shows the one that takes more of that slot.
func Boxes(t *trace.Timeline, f Frame) *Drawing {
	events := f.computations(t)
	d := &Drawing{screen: f.Screen, boxes: true, ToS: f.ToS, labels: labelsOf(events), gutter: gutterOf(t)}
	slot := slotOf(events)
	if slot == 0 || !(f.ToS > f.FromS) {
		d.rows = make([]string, t.Workers)
		return d
	}
	wide := 1
	for _, e := range events {
		wide = max(wide, len(d.labels.of(e)))
	}
	all := int(math.Ceil(min((f.ToS-f.FromS)/slot, 1e9) - 1e-9))
	d.Columns = d.gutter + all*(wide+1) - 1
	slots := all
	if !d.Whole() {
		slots = max(1, (f.Screen.Columns-d.gutter-1)/(wide+1)) // room for an ellipsis after the last box
		d.ToS = f.FromS + float64(slots)*slot
	}
	all = lines(t, events)
	cells := make([]cell, all*slots)
	for _, e := range events {
		if e.StartS >= d.ToS {
			continue
		}
		at := lineOf(t, e) * slots
		cut(cells[at:at+slots], slot, e, e.StartS-f.FromS, e.EndS-f.FromS)
	}
	drawn := map[string]bool{}
	var rows []string
	for w := range all {
		rows = append(rows, d.row(cells[w*slots:(w+1)*slots], wide, drawn))
	}
	d.put(t, rows)
	for _, k := range shown {
		if drawn[k] {
			d.kinds = append(d.kinds, k)
		}
	}
	d.Axis = f.axis(d.ToS, slots*(wide+1), d.gutter, func(timeS float64) int {
		return int((timeS-f.FromS)/slot*float64(wide+1) + 1e-6)
	})
	return d
}

// slotOf returns the length of the shortest computation other than an update, or of the shortest update if there is
// nothing else.
func slotOf(events []*trace.Event) float64 {
	shortest, update := 0.0, 0.0
	for _, e := range events {
		of := &shortest
		if e.Kind == "U" || e.Kind == "UR" {
			of = &update
		}
		if s := e.EndS - e.StartS; *of == 0 || s < *of {
			*of = s
		}
	}
	if shortest == 0 {
		return update
	}
	return shortest
}

// cell is a slot of a worker, with the computation that takes most of the slot.
type cell struct {
	e     *trace.Event
	begun bool // the computation began in an earlier slot
	part  float64
}

// cut puts a computation into the slots of its worker in which it takes more time than every earlier computation.
func cut(cells []cell, slot float64, e *trace.Event, from, to float64) {
	begun := from < -1e-9*slot
	for c := max(0, int(from/slot+1e-9)); c < len(cells) && float64(c)*slot < to-1e-9*slot; c++ {
		part := min(to, float64(c+1)*slot) - max(from, float64(c)*slot)
		if part <= cells[c].part+1e-9*slot {
			continue
		}
		cells[c], begun = cell{e, begun, part}, true
	}
}

// row draws a worker's slots, and adds the kinds in them to the set `drawn`.
func (d *Drawing) row(cells []cell, wide int, drawn map[string]bool) string {
	var b strings.Builder
	for c, of := range cells {
		gap := " "
		if c == 0 {
			gap = ""
		}
		if of.e == nil {
			b.WriteString(gap + d.screen.Paint(terminal.Faint, Idle) + strings.Repeat(" ", wide-1))
			continue
		}
		text := strings.Repeat("=", wide)
		if !of.begun {
			text = d.labels.of(of.e)
		}
		drawn[of.e.Kind] = true
		b.WriteString(gap + d.screen.Paint(styleOf(of.e.Kind), text) + strings.Repeat(" ", wide-len(text)))
	}
	text := strings.TrimRight(b.String(), " ")
	if !d.Whole() {
		text = b.String() + "…"
	}
	return text
}

// labels says how boxes are named.
type labels struct {
	stages, pipelines bool // whether names contain the stage, and the pipeline
	example           string
}

func labelsOf(events []*trace.Event) labels {
	var l labels
	held := map[int]trace.Fields{}
	for _, e := range events {
		f, ok := trace.ParseFields(e.Instruction)
		if !ok {
			continue
		}
		first, there := held[e.Worker]
		if !there {
			held[e.Worker], first = f, f
		}
		l.pipelines = l.pipelines || f.Pipeline > 0
		l.stages = l.stages || f.Stage != first.Stage
	}
	for _, e := range events {
		if e.Kind == "U" || e.Kind == "UR" {
			continue
		}
		if f, ok := trace.ParseFields(e.Instruction); ok && f.Micro > 0 && (f.Stage > 0 || !l.stages) {
			l.example = l.of(e) + " is " + l.words(e.Kind, f)
			break
		}
	}
	return l
}

// of returns a computation's name, such as "F3". If a worker has several stages, it is "2F3" with the stage. If there
// are several pipelines, it is "bF3" with a letter for the pipeline.
func (l *labels) of(e *trace.Event) string {
	f, ok := trace.ParseFields(e.Instruction)
	if !ok {
		return e.Kind
	}
	text := fmt.Sprintf("%s%d", f.Kind, f.Micro)
	if l.stages {
		text = fmt.Sprintf("%d%s", f.Stage, text)
	}
	if l.pipelines {
		text = fmt.Sprintf("%c%s", 'a'+f.Pipeline%26, text)
	}
	return text
}

// words explains the name of a computation.
func (l *labels) words(kind string, f trace.Fields) string {
	text := fmt.Sprintf("%s, micro-batch %d", trace.Plain(kind), f.Micro)
	if l.stages {
		text = fmt.Sprintf("stage %d, %s", f.Stage, text)
	}
	if l.pipelines {
		text = fmt.Sprintf("pipeline %c, %s", 'a'+f.Pipeline%26, text)
	}
	return text
}
