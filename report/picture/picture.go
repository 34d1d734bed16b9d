package picture

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/trace"
)

// Clock is the unit of an axis. PerS is the number of these units in a second. The zero Clock has no unit.
type Clock struct {
	Unit string
	PerS float64
}

// ClockFor returns the Clock that suits a length of time.
func ClockFor(lengthS float64) Clock {
	switch {
	case lengthS >= 0.9995:
		return Clock{"s", 1}
	case lengthS >= 999.5e-6:
		return Clock{"ms", 1e3}
	}
	return Clock{"µs", 1e6}
}

func (c Clock) perS() float64 {
	if c.Unit == "" {
		return 1
	}
	return c.PerS
}

// Frame says what is drawn, and where.
type Frame struct {
	Screen terminal.Screen
	Clock  Clock
	// FromS and ToS are the time range, in seconds of the Timeline's clock.
	FromS, ToS float64
	// Own reports whether an event belongs to the step that is drawn. Letters writes the events of other steps in lower
	// case, and faint. nil means that all events belong to the drawn step.
	Own func(e *trace.Event) bool
}

// Drawing is a drawn Timeline.
type Drawing struct {
	Axis string // aligned with the columns of the rows
	// ToS is the end of the drawing. It is less than the Frame's ToS if there was not enough room.
	ToS float64
	// Columns is the width of a screen on which nothing would have to be left out.
	Columns int
	// EachS is the time of a letter's column. Exact says that no column contains parts of several computations.
	EachS float64
	Exact bool

	screen terminal.Screen
	kinds  []string // the kinds that are drawn
	near   bool     // work of other steps is drawn
	boxes  bool
	labels labels
	gutter int
	rows   []string
	aside  []string // by worker: the line of the thread beside it, which updates the reference; nil if there is none
}

// Whole reports whether the drawing is complete.
func (d *Drawing) Whole() bool { return d.Columns <= d.screen.Columns }

// Label returns the width of a row's label: a worker's number, or the numbers of the first and the last of several
// workers.
func Label(workers int) int { return max(len("worker"), 2*len(strconv.Itoa(workers-1))+1) }

// gutterOf returns the width of a row's label and of the space after it.
func gutterOf(t *trace.Timeline) int { return Label(t.Workers) + 2 }

// Row returns the line of a worker. If a thread updates the reference beside this worker, the line of the thread
// follows.
func (d *Drawing) Row(worker int) string { return d.labelled(strconv.Itoa(worker), worker) }

// Rows returns one line for neighbouring workers that are idle all the time, from the first to the last.
func (d *Drawing) Rows(first, last int) string {
	if first == last {
		return d.Row(first)
	}
	return d.labelled(fmt.Sprintf("%d–%d", first, last), first)
}

// Idle reports whether a worker is idle all the time that is drawn.
func (d *Drawing) Idle(worker int) bool {
	drawn := d.rows[worker]
	if d.aside != nil {
		drawn += d.aside[worker]
	}
	return strings.Trim(escapes.ReplaceAllString(drawn, ""), "· ") == ""
}

// escapes matches the colours of a line.
var escapes = regexp.MustCompile("\x1b\\[[0-9;]*m")

// labelled returns a worker's lines with the given label.
func (d *Drawing) labelled(label string, worker int) string {
	row := fmt.Sprintf("%*s  %s\n", d.gutter-2, label, d.rows[worker])
	if d.aside != nil {
		row += fmt.Sprintf("%*s  %s\n", d.gutter-2, "ref", d.aside[worker])
	}
	return row
}

// lines returns the number of lines for events: one for each worker, and then one for each thread beside a worker,
// if there are any. lineOf returns the line of an event.
func lines(t *trace.Timeline, events []*trace.Event) int {
	if slices.ContainsFunc(events, func(e *trace.Event) bool { return e.Lane == trace.Beside }) {
		return 2 * t.Workers
	}
	return t.Workers
}

func lineOf(t *trace.Timeline, e *trace.Event) int {
	if e.Lane == trace.Beside {
		return t.Workers + e.Worker
	}
	return e.Worker
}

// put stores the lines of a drawing.
func (d *Drawing) put(t *trace.Timeline, all []string) {
	d.rows = all[:t.Workers]
	if len(all) > t.Workers {
		d.aside = all[t.Workers:]
	}
}

// Text returns the axis and the rows. If there are more than `most` workers, it returns the first and the last ones.
func (d *Drawing) Text(most int) string {
	var b strings.Builder
	b.WriteString(d.Axis)
	for w := 0; w < len(d.rows); w++ {
		if left := len(d.rows) - most; left > 0 && w == most/2 {
			text := fmt.Sprintf("%s, %d to %d", terminal.Count(left, "more worker"), w, w+left-1)
			b.WriteString(d.screen.Paint(terminal.Faint, strings.Repeat(" ", d.gutter)+"… "+text) + "\n")
			w += left
		}
		b.WriteString(d.Row(w))
	}
	return b.String()
}

// Legend explains the kinds that are drawn, and the names of boxes.
func (d *Drawing) Legend() string { return Legend(d) }

// Legend explains several drawings of one screen in prose.
func Legend(drawn ...*Drawing) string {
	var words []string
	screen, seen, near, boxes, name := terminal.Screen{}, map[string]bool{}, map[string]bool{}, false, ""
	for _, d := range drawn {
		screen = d.screen
		for _, k := range shown {
			near[k] = near[k] || d.near && strings.Contains(strings.Join(d.rows, ""), strings.ToLower(k))
		}
		for _, k := range d.kinds {
			seen[k] = true
		}
		if d.boxes {
			boxes = boxes || slices.ContainsFunc(d.rows, func(row string) bool { return strings.Contains(row, "=") })
			name = d.labels.example
		}
	}
	hard := func(text string) string { return strings.ReplaceAll(text, " ", "\u00a0") }
	for _, k := range shown {
		if seen[k] {
			words = append(words, screen.Paint(styleOf(k), k)+hard(" "+trace.Plain(k)))
		}
	}
	beside := slices.DeleteFunc(slices.Clone(shown), func(k string) bool { return !near[k] })
	if len(beside) > 0 {
		small := strings.ToLower(strings.Join(beside, ", "))
		words = append(words, screen.Paint(terminal.Faint, hard(small))+hard(" of a step beside it"))
	}
	if boxes {
		words = append(words, hard("= goes on"))
	}
	words = append(words, hard("· idle"))
	text := strings.Join(words, ", ")
	if name != "" {
		text += "\n" + name
	}
	return screen.Wrap("", "", text)
}

// shown lists the kinds that are drawn, in the order of the legend.
var shown = []string{"F", "B", "I", "W", "U", "EV", "UR"}

// styleOf returns the colour of a kind, similar to the page's.
func styleOf(kind string) terminal.Style {
	switch kind {
	case "F", "EV":
		return terminal.Blue
	case "B", "I":
		return terminal.Yellow
	case "W":
		return terminal.Cyan
	case "U", "UR":
		return terminal.Magenta
	}
	return terminal.Faint
}

// Idle marks a column or a slot in which a worker computes nothing.
const Idle = "·"

// computations returns the events of a Frame that keep workers, or the threads beside them, busy.
func (f Frame) computations(t *trace.Timeline) []*trace.Event {
	var out []*trace.Event
	for i := range t.Events {
		e := &t.Events[i]
		drawn := e.Lane == trace.Compute && trace.IsBusy(e.Kind) || e.Lane == trace.Beside
		if drawn && e.EndS > e.StartS && e.EndS > f.FromS && e.StartS < f.ToS {
			out = append(out, e)
		}
	}
	return out
}

func kindsOf(events []*trace.Event) []string {
	var kinds []string
	for _, e := range events {
		if !slices.Contains(kinds, e.Kind) {
			kinds = append(kinds, e.Kind)
		}
	}
	return kinds
}

// axis returns a line with times, to write above the columns. `at` returns the column of a time, `columns` is the
// number of columns, and `gutter` is the width before them.
func (f Frame) axis(toS float64, columns, gutter int, at func(timeS float64) int) string {
	perS := f.Clock.perS()
	room := max(columns, f.Screen.Columns-gutter) // the last time may extend beyond the drawing
	line := []rune(strings.Repeat(" ", room))
	apart := 9 // minimal distance of two times, in columns
	each := (toS - f.FromS) / float64(max(1, columns)) * perS
	step := roundUp(each * float64(apart))
	end := 0
	for k := 0; k <= columns && step > 0; k++ {
		text := strconv.FormatFloat(float64(k)*step, 'g', 6, 64)
		if k == 0 && f.Clock.Unit != "" {
			text += " " + f.Clock.Unit
		}
		c := at(f.FromS + float64(k)*step/perS)
		if c >= columns || c+len([]rune(text)) > room {
			break
		}
		if c < end {
			continue
		}
		copy(line[c:], []rune(text))
		end = c + len([]rune(text)) + 1
	}
	text := fmt.Sprintf("%*s  ", gutter-2, "worker") + string(line)
	return f.Screen.Paint(terminal.Faint, strings.TrimRight(text, " ")) + "\n"
}

// roundUp rounds up to the next of 1, 2, 5, 10, 20, ... at any scale.
func roundUp(x float64) float64 {
	if !(x > 0) || math.IsInf(x, 0) {
		return 0
	}
	scale := math.Pow(10, math.Floor(math.Log10(x)))
	for _, times := range []float64{1, 2, 5} {
		if scale*times >= x*(1-1e-9) {
			return scale * times
		}
	}
	return 10 * scale
}
