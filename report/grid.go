package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/trace"
)

// Grid is a schedule as papers draw it: a row for each worker, time to the right, and a box with the micro-batch's
// number for each computation.
type Grid struct {
	Title    string
	Timeline *trace.Timeline
	Facts    []Fact // shown under the title of a page
	Stages   *Table // shown under the drawing of a page
	// Micro colours boxes by micro-batch instead of by kind of computation. A page offers both; this setting chooses
	// which one it shows at first.
	Micro bool
	// Unit is the unit of the clock, and PerS is the number of such units in a second: 1000 for "ms". If Unit is empty,
	// times are costs without a unit.
	Unit string
	PerS float64
}

// maxBoxes is the maximal number of boxes of a drawing, so that a browser stays usable.
const maxBoxes = 30_000

// Sizes of the drawing in its own units, which a browser shows as pixels.
const (
	gridRow, gridGap     = 26.0, 4.0
	gridLeft, gridTop    = 148.0, 30.0
	gridBottom, gridEdge = 12.0, 14.0
	gridBox              = 22.0 // width of the shortest computation, if there is room
	gridLeast            = 16.0 // a drawing is narrowed to fit a screen only if its shortest computation stays this wide
	gridWidest           = 8000.0
	gridNarrowest        = 560.0
)

// box is a computation or a wait in the drawing, or the colour of a micro-batch in its legend.
type box struct {
	X, Y, W  float64
	Class    string // style: kind and shade of a computation, or cause of a wait
	Hue      int    // colour of its micro-batch
	Text     string // empty if there is no room
	TextX    float64
	Says     string // tooltip
	TextFrom float64
}

// gridView is the layout of a Grid, for the templates.
type gridView struct {
	Width, Height float64
	Title         string
	Rows          []gridLine
	Boxes         []box
	Waits         []box
	Ticks         []gridLine
	Steps         []gridLine
	Legend        []colourKey
	Micros        []box // colours of the first micro-batches
	ByMicro       bool
	RowHeight     float64
	PlotX, PlotW  float64
	Baseline      float64
}

// gridLine is the position and the text of a row, a tick or the end of a step.
type gridLine struct {
	X, Y float64
	Text string
	More string
}

// view lays out a Grid. It returns an error if there is nothing to draw, or too much.
func (g *Grid) view() (*gridView, error) {
	t := g.Timeline
	if t == nil {
		return nil, fmt.Errorf("report: a grid of no Timeline")
	}
	if err := t.Validate(); err != nil {
		return nil, err
	}
	begin, end := t.Extent()
	events := computations(t)
	if len(events) == 0 {
		return nil, fmt.Errorf("report: the Timeline has no computation to draw")
	}
	if len(events) > maxBoxes {
		return nil, fmt.Errorf("report: %d computations; a drawing can have %d: draw fewer micro-batches or steps",
			len(events), maxBoxes)
	}
	shortest := math.Inf(1)
	for _, e := range events {
		if e.Kind != "U" && e.Lane != trace.Beside { // updates do not count, because they may be narrow
			shortest = min(shortest, e.EndS-e.StartS)
		}
	}
	if math.IsInf(shortest, 1) {
		shortest = end - begin
	}
	scale := min(gridBox/shortest, gridWidest/(end-begin))
	if fits := wideSlice / (end - begin); fits < scale && fits*shortest >= gridLeast {
		scale = fits
	}
	scale = max(scale, gridNarrowest/(end-begin))
	v := &gridView{Title: g.Title, ByMicro: g.Micro, RowHeight: gridRow, PlotX: gridLeft, PlotW: scale * (end - begin)}
	v.Width = gridLeft + v.PlotW + gridEdge
	each := 1 // lines for each worker
	if slices.ContainsFunc(events, func(e trace.Event) bool { return e.Lane == trace.Beside }) {
		each = 2
	}
	v.Baseline = gridTop + float64(each*t.Workers)*(gridRow+gridGap)
	v.Height = v.Baseline + gridBottom
	x := func(at float64) float64 { return gridLeft + scale*(at-begin) }
	y := func(w int) float64 { return gridTop + float64(each*w)*(gridRow+gridGap) }
	held := stagesOf(events, t.Workers)
	for w := range t.Workers {
		v.Rows = append(v.Rows, gridLine{Y: y(w), Text: fmt.Sprintf("worker %d", w), More: stageWords(held[w])})
		if each > 1 {
			v.Rows = append(v.Rows, gridLine{Y: y(w) + gridRow + gridGap, Text: "its reference", More: "a thread beside it"})
		}
	}
	for _, e := range events {
		v.Boxes = append(v.Boxes, g.boxOf(e, held, x, y))
	}
	for w, gaps := range trace.AllGaps(t) {
		for _, gap := range gaps {
			if gap.Cause == trace.Finished || gap.StartS <= begin {
				continue // a wait before a worker's first box or after its last is not drawn
			}
			v.Waits = append(v.Waits, box{
				X: x(gap.StartS), Y: y(w), W: x(gap.EndS) - x(gap.StartS), Class: "c-" + string(gap.Cause), Says: gap.Why,
			})
		}
	}
	v.Ticks = g.ticks(begin, end, x)
	if len(t.Steps) > 1 {
		for _, s := range t.Steps {
			v.Steps = append(v.Steps, gridLine{X: x(s.EndS),
				Text: fmt.Sprintf("step %s ends", terminal.Whole(trace.StepNumber(s.Step)))})
		}
	}
	v.legend(events, held)
	return v, nil
}

// computations returns the events in which workers or the threads beside them are busy, sorted by worker and time.
func computations(t *trace.Timeline) []trace.Event {
	var out []trace.Event
	for _, e := range t.Events {
		if (e.Lane == trace.Compute && trace.IsBusy(e.Kind) || e.Lane == trace.Beside) && e.EndS > e.StartS {
			out = append(out, e)
		}
	}
	slices.SortStableFunc(out, func(a, b trace.Event) int {
		return cmp.Or(cmp.Compare(a.Worker, b.Worker), cmp.Compare(a.StartS, b.StartS))
	})
	return out
}

func stageWords(held []heldStage) string {
	var words []string
	for _, h := range held {
		word := strconv.Itoa(h.stage)
		if h.pipeline > 0 {
			word = fmt.Sprintf("p%d/%d", h.pipeline, h.stage)
		}
		if h.replica > 0 {
			word += fmt.Sprintf("@r%d", h.replica)
		}
		words = append(words, word)
	}
	switch {
	case len(words) == 0:
		return "computes nothing"
	case len(words) == 1:
		return "stage " + words[0]
	case len(words) > 4:
		return fmt.Sprintf("stages %s ... %s", words[0], words[len(words)-1])
	}
	return "stages " + strings.Join(words, ", ")
}

// hueStep is the difference of the hues of consecutive micro-batches, in degrees. It is large, so that their colours
// differ clearly.
const hueStep = 137

func (g *Grid) boxOf(e trace.Event, held holdings, x func(float64) float64, y func(int) float64) box {
	b := box{X: x(e.StartS), Y: y(e.Worker), W: x(e.EndS) - x(e.StartS), Class: "k-" + e.Kind}
	b.Says = fmt.Sprintf("%s on worker %d: %s, from %s to %s", e.Instruction, e.Worker, trace.Plain(e.Kind),
		g.time(e.StartS), g.time(e.EndS))
	f, ok := trace.ParseFields(e.Instruction)
	if !ok {
		return b
	}
	if shade := held.shade(e.Worker, f); shade > 0 {
		b.Class += fmt.Sprintf(" s%d", shade)
	}
	b.Hue = ((f.Micro*hueStep+215)%360 + 360) % 360
	text := strconv.Itoa(f.Micro)
	if e.Lane == trace.Beside {
		b.Y += gridRow + gridGap
	}
	if e.Kind == "U" || e.Lane == trace.Beside {
		text = "U"
	}
	if b.W >= 7*float64(len(text))+2 {
		b.Text, b.TextX, b.TextFrom = text, b.X+b.W/2, b.Y+gridRow/2+4
	}
	return b
}

func (g *Grid) time(s float64) string {
	if g.Unit == "" {
		return fmt.Sprintf("%.6g", s)
	}
	return fmt.Sprintf("%.4g %s", s*g.PerS, g.Unit)
}

// mostTicks is an upper bound of the number of ticks in the widest drawing.
const mostTicks = 200

// ticks places ticks at round times, at least 80 units of the drawing apart.
func (g *Grid) ticks(begin, end float64, x func(float64) float64) []gridLine {
	per := 1.0
	if g.Unit != "" {
		per = g.PerS
	}
	least := 80 / (x(begin+1) - x(begin)) * per
	step := math.Pow(10, math.Floor(math.Log10(least)))
	for _, times := range []float64{1, 2, 5, 10} {
		if step*times >= least {
			step *= times
			break
		}
	}
	var out []gridLine
	first := math.Ceil(begin * per / step)
	for i := range mostTicks { // a counter, because far from 0 adding a step may change nothing
		k := first + float64(i)
		if !(k*step <= end*per*(1+1e-9)) {
			break
		}
		text := strconv.FormatFloat(k*step, 'g', 6, 64)
		if g.Unit != "" && len(out) == 0 {
			text += " " + g.Unit
		}
		out = append(out, gridLine{X: x(k * step / per), Text: text})
	}
	return out
}

// legend lists the kinds that are drawn, the shades if workers hold several stages, and the colours of the first eight
// micro-batches.
func (v *gridView) legend(events []trace.Event, held holdings) {
	present := map[string]bool{}
	most := 0
	for _, e := range events {
		present[e.Kind] = true
		if f, ok := trace.ParseFields(e.Instruction); ok && e.Kind != "U" && e.Lane != trace.Beside {
			most = max(most, f.Micro)
		}
	}
	for _, k := range []string{"F", "B", "I", "W", "U", "EV", "UR"} {
		if present[k] {
			v.Legend = append(v.Legend, colourKey{Class: "k-" + k, Label: trace.Plain(k)})
		}
	}
	v.Legend = append(v.Legend, held.legend()...)
	for m := range min(most+1, 8) {
		v.Micros = append(v.Micros, box{Hue: (m*hueStep + 215) % 360, Text: strconv.Itoa(m)})
	}
}

// name returns the title of a drawing, in one line.
func (g *Grid) name() string { return strings.TrimSpace(cmp.Or(g.Title, "schedule")) }
