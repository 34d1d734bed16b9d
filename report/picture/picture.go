package picture

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/trace"
)

// Clock is the unit of an axis's times; PerS of them make a second. The zero Clock has no unit.
type Clock struct {
	Unit string
	PerS float64
}

// ClockFor is the Clock that suits a length of time.
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

// Frame is what a drawing is made for.
type Frame struct {
	Screen terminal.Screen
	Clock  Clock
	// FromS and ToS are what is drawn, in seconds of the Timeline's clock.
	FromS, ToS float64
}

// Drawing is a Timeline drawn.
type Drawing struct {
	Axis string // of the same columns as the rows
	// ToS is where the drawing stops, less than the Frame's where not all of it had room.
	ToS float64
	// Columns is what a screen needs to show all of it.
	Columns int
	// EachS is the time of a letter's column; Exact says that no column has parts of several computations.
	EachS float64
	Exact bool

	screen terminal.Screen
	kinds  []string // that are drawn
	boxes  bool
	labels labels
	rows   []string
	aside  []string // by worker: its thread with the reference; nil where there is none
}

// Whole says whether nothing was left out at the end.
func (d *Drawing) Whole() bool { return d.Columns <= d.screen.Columns }

// gutter is what stands in front of a row: the worker's number under its heading.
const gutter = len("worker  ")

// Row is the line of a worker, and below it that of a thread beside it with a reference.
func (d *Drawing) Row(worker int) string {
	row := fmt.Sprintf("%*d  %s\n", gutter-2, worker, d.rows[worker])
	if d.aside != nil {
		row += fmt.Sprintf("%*s  %s\n", gutter-2, "ref", d.aside[worker])
	}
	return row
}

// lines is how many lines of a drawing events take: the workers', and behind them, if there are any, those of threads
// beside them. lineOf is that of an event.
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

// put takes over the lines of a drawing.
func (d *Drawing) put(t *trace.Timeline, all []string) {
	d.rows = all[:t.Workers]
	if len(all) > t.Workers {
		d.aside = all[t.Workers:]
	}
}

// Text is the axis and all rows; of more than most workers the first and the last ones.
func (d *Drawing) Text(most int) string {
	var b strings.Builder
	b.WriteString(d.Axis)
	for w := 0; w < len(d.rows); w++ {
		if left := len(d.rows) - most; left > 0 && w == most/2 {
			text := fmt.Sprintf("%s, %d to %d", terminal.Count(left, "more worker"), w, w+left-1)
			b.WriteString(d.screen.Paint(terminal.Faint, strings.Repeat(" ", gutter)+"… "+text) + "\n")
			w += left
		}
		b.WriteString(d.Row(w))
	}
	return b.String()
}

// Legend says what is drawn: the kinds, and how a box is named.
func (d *Drawing) Legend() string { return Legend(d) }

// Legend says in lines of prose what some drawings of one screen show.
func Legend(drawn ...*Drawing) string {
	var words []string
	screen, seen, boxes, name := terminal.Screen{}, map[string]bool{}, false, ""
	for _, d := range drawn {
		screen = d.screen
		for _, k := range d.kinds {
			seen[k] = true
		}
		if d.boxes {
			boxes, name = true, d.labels.example
		}
	}
	hard := func(text string) string { return strings.ReplaceAll(text, " ", "\u00a0") }
	for _, k := range shown {
		if seen[k] {
			words = append(words, screen.Paint(styleOf(k), k)+hard(" "+trace.Plain(k)))
		}
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

// shown are the kinds that are drawn, in the order of the legend.
var shown = []string{"F", "B", "I", "W", "U", "EV", "UR"}

// styleOf is the colour of a kind, close to the page's.
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

// Idle is a column or a slot in which a worker computes nothing.
const Idle = "·"

// computations are the events of a Frame that keep workers busy, and the threads beside them.
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

// kindsOf are the kinds among events.
func kindsOf(events []*trace.Event) []string {
	var kinds []string
	for _, e := range events {
		if !slices.Contains(kinds, e.Kind) {
			kinds = append(kinds, e.Kind)
		}
	}
	return kinds
}

// axis writes times above columns: at(timeS) is the column of a time, of so many columns in all.
func (f Frame) axis(toS float64, columns int, at func(timeS float64) int) string {
	perS := f.Clock.perS()
	room := max(columns, f.Screen.Columns-gutter) // the last time may stand over what is drawn
	line := []rune(strings.Repeat(" ", room))
	apart := 9 // columns from a time to the next, at least
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
	return f.Screen.Paint(terminal.Faint, strings.TrimRight("worker  "+string(line), " ")) + "\n"
}

// roundUp is the next of 1, 2, 5, 10, 20, ... at any scale.
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
