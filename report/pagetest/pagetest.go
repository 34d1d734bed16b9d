// Package pagetest checks that the page of a report is consistent.
//
// In: an open page, and the measured Timeline that it was drawn from, or nil. The test fails if parts of the page
// contradict each other or the Timeline. It compares tiles, tables, the footer's formula, the captions of charts, the
// drawn step, the numbers of its boxes, and whether a singular follows a count of one.
package pagetest

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/internal/browsertest"
	"github.com/millrace-ml/millrace/trace"
)

// drawing is the part of the page's data that is checked here.
type drawing struct {
	Predicted, Measured []step

	Losses     curve
	EvalLosses curve        `json:"eval_losses"`
	PeakBytes  [2][]float64 `json:"peak_bytes"`
	Steps      struct{ X []int }
}

// curve holds the points of a chart's curve. X is the step.
type curve struct {
	X []int
	Y []float64
}

type step struct {
	Events struct {
		Text         []string
		Number, Near []int
	}
}

type page struct {
	testing.TB
	*browsertest.Page
	measured *trace.Timeline
	data     drawing
	rows     map[string][2]string // predicted and measured, by name of the row
}

// Agree fails the test wherever the page contradicts itself or the Timeline. `samples` is the number of samples of a
// step; 0 means that it is not known.
func Agree(t testing.TB, p *browsertest.Page, measured *trace.Timeline, samples int) {
	t.Helper()
	g := &page{TB: t, Page: p, measured: measured}
	p.Eval(`Object.fromEntries([...document.querySelectorAll(".numbers tbody tr")].map(r =>
		[r.children[0].textContent, [r.children[1].textContent, r.children[2].textContent]]))`, &g.rows)
	p.Eval("JSON.parse(document.getElementById('data').textContent)", &g.data)
	g.tiles()
	g.bubbles(samples)
	if measured != nil && len(measured.Steps) > 0 {
		g.drawnStep()
	}
	g.memory()
	g.learning()
	g.plan()
	g.rivals()
	g.words()
}

// Value parses a number with its unit, as pages write it. Times are in seconds and memory in bytes. Percentages and
// points become fractions.
func Value(t testing.TB, text string) float64 {
	t.Helper()
	digits, unit, _ := strings.Cut(text, " ")
	x, err := strconv.ParseFloat(strings.ReplaceAll(digits, ",", ""), 64)
	times, known := map[string]float64{"s": 1, "ms": 1e-3, "µs": 1e-6, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20,
		"%": .01, "": 1, "points": .01}[unit]
	if err != nil || !known {
		t.Fatalf("%q is no number", text)
	}
	return x * times
}

// tiles checks that tiles have the same values as the table.
func (g *page) tiles() {
	tiles := 0
	for _, c := range g.Texts(".card") {
		name := strings.ToLower(c)
		if _, rest, is := strings.Cut(name, "highest peak memory ("); is {
			worker, rest, _ := strings.Cut(rest, ") ")
			name = worker + " peak memory " + rest
			c = name
		}
		for row, said := range g.rows {
			if !strings.HasPrefix(name, row+" ") {
				continue
			}
			tiles++
			want := said[1] + " predicted " + said[0]
			switch {
			case said[0] == "–":
				want = said[1] + " measured"
			case said[1] == "–":
				want = said[0] + " predicted"
			}
			if !strings.HasPrefix(name[len(row)+1:], strings.ToLower(want)) {
				g.Errorf("the tile says %q and the table %q", c, said)
			}
		}
	}
	if tiles < 2 {
		g.Errorf("%d tiles have a row", tiles)
	}
}

// bubbles compares the page's bubbles with the footer's formula, which needs step and busy times. The formula holds for
// the predicted step and for a stream's mean step. If the measured numbers are medians, the bubble must be the median
// of the steps' bubbles.
func (g *page) bubbles(samples int) {
	if footer := g.Text("document.querySelector('footer').textContent"); !strings.Contains(footer,
		"A step's bubble is 1 − sum of computing ÷ (workers × step)") {
		g.Errorf("the footer says %q", footer)
	}
	for side := range 2 {
		step := g.rows["step time"][side]
		if step == "–" || step == "" {
			continue
		}
		stepS, busy, workers := Value(g, step), 0.0, 0
		for ; g.rows[fmt.Sprintf("worker %d busy", workers)][side] != ""; workers++ {
			busy += Value(g, g.rows[fmt.Sprintf("worker %d busy", workers)][side])
		}
		bubble := Value(g, g.rows["bubble"][side])
		by := 1 - busy/(float64(workers)*stepS)
		if first, last, average := g.window(); side == 1 && average == "median" {
			if g.measured == nil { // without a Timeline the steps' bubbles are unknown
				continue
			}
			by = g.medianBubble(first, last)
		}
		if math.Abs(by-bubble) > .01 || workers < 1 {
			g.Errorf("side %d: a bubble of %v; by the footer %v of %d workers", side, bubble, by, workers)
		}
		if got := g.rows["samples per second"][side]; got != "" && samples > 0 {
			if batch := Value(g, got) * stepS; math.Abs(batch-float64(samples)) > .01*float64(samples) {
				g.Errorf("side %d: %s samples a second of steps of %s are batches of %v; it is %d", side, got, step, batch,
					samples)
			}
		}
	}
}

var (
	shown  = regexp.MustCompile(`^Measured: step (\d+)(?: \(([^)]*)\))?, ([\d.]+ \S+)`)
	window = regexp.MustCompile(`^Measured numbers are (median|mean)s over (\d+) steps, (\d+) to (\d+)` +
		`(?: \(steps overlap; [^)]*\))?\.(?: Peak memory .*)?$`)
)

// window returns the first and the last step that the measured numbers cover, and which average they are, as the page
// says. If the page says nothing, it returns all steps and no average.
func (g *page) window() (first, last int, average string) {
	last = math.MaxInt
	for _, text := range g.Texts("#numbers ~ p") {
		if w := window.FindStringSubmatch(text); w != nil {
			average = w[1]
			first, _ = strconv.Atoi(w[3])
			last, _ = strconv.Atoi(w[4])
		}
	}
	return first, last, average
}

// medianBubble returns the median bubble of the steps from `first` to `last` with recorded busy times.
func (g *page) medianBubble(first, last int) float64 {
	var bubbles []float64
	took, busy := g.measured.Took(0), g.measured.StepBusy()
	for k, s := range g.measured.Steps {
		if g.measured.Stream {
			took[k] = s.EndS - s.StartS
		}
		if n := trace.StepNumber(s.Step); n >= first && n <= last && slices.Max(busy[k]) > 0 {
			idle := 0.0
			for _, b := range busy[k] {
				idle += took[k] - b
			}
			bubbles = append(bubbles, idle/(took[k]*float64(len(busy[k]))))
		}
	}
	slices.Sort(bubbles)
	n := len(bubbles)
	return (bubbles[(n-1)/2] + bubbles[n/2]) / 2
}

// drawable returns the steps that the page may draw: the recorded steps from `first` on. Work of a neighbouring step
// may reach into a step. So if both neighbours of some of these steps are recorded too, or do not exist, it returns
// only those steps.
func (g *page) drawable(first int, took map[int]float64) map[int]bool {
	recorded, alone, whole := map[int]bool{}, map[int]bool{}, map[int]bool{}
	for _, e := range g.measured.Events {
		if trace.OfStep(&e) {
			recorded[trace.StepNumber(e.Step)] = true
		}
	}
	has := func(n int) bool {
		_, known := took[n]
		return !known || recorded[n]
	}
	for n := range recorded {
		if _, known := took[n]; known && n >= first {
			alone[n] = true
			if has(n-1) && has(n+1) {
				whole[n] = true
			}
		}
	}
	if len(whole) > 0 {
		return whole
	}
	return alone
}

// drawnStep compares the page's text on the drawn step with the step itself. It also compares the micro-batches of the
// drawn step with those of the predicted step.
func (g *page) drawnStep() {
	said := g.Texts("#shown li")
	m := shown.FindStringSubmatch(said[len(said)-1])
	if m == nil {
		g.Fatalf("of the step is said %q", said)
	}
	tile := g.rows["step time"][1]
	step, _ := strconv.Atoi(m[1])
	took := map[int]float64{} // by number, as on the page
	for k, s := range g.measured.Took(0) {
		took[trace.StepNumber(g.measured.Steps[k].Step)] = s
	}
	if math.Abs(took[step]-Value(g, m[3])) > .006*took[step] {
		g.Errorf("%q; the step took %v s", m[0], took[step])
	}
	first, last, average := g.window()
	counts := func(s trace.StepMark) bool {
		n := trace.StepNumber(s.Step)
		return n >= first && n <= last
	}
	if (step < first || step > last) && slices.ContainsFunc(g.measured.Kept(0), counts) {
		g.Errorf("drawn is step %d; the numbers are of steps %d to %d", step, first, last)
	}
	if off := math.Abs(took[step] - Value(g, tile)); m[2] == average && m[3] != tile {
		g.Errorf("the %s step took %s, and the tile says %s", average, m[3], tile)
	} else if off > 0 {
		for n := range g.drawable(first, took) {
			if s := took[n]; math.Abs(s-Value(g, tile)) < off-.006*Value(g, tile) {
				g.Fatalf("step %d took %v s, step %d %v s; the tile says %s", step, took[step], n, s, tile)
			}
		}
	}
	if measured := g.micros(1); len(g.data.Predicted) > 0 && g.micros(0) != measured {
		g.Errorf("micro-batches predicted %v, measured %v", g.micros(0), measured)
	}
}

// micros returns the micro-batches of the drawn step, by pipeline and stage. Side 0 is the predicted step, and side 1
// is the measured step.
func (g *page) micros(side int) string {
	numbers, events := map[string]bool{}, [2][]step{g.data.Predicted, g.data.Measured}[side][0].Events
	for i, text := range events.Text {
		if f, _ := trace.ParseFields(text); events.Near[i] == 0 && f.Kind == "F" {
			numbers[fmt.Sprintf("p%d/%dF%d", f.Pipeline, f.Stage, events.Number[i])] = true
		}
	}
	if !numbers["p0/0F0"] {
		g.Errorf("no first micro-batch among %v", numbers)
	}
	return fmt.Sprint(numbers)
}

// memory compares the captions of the charts with the table, and the drawn peaks with both.
func (g *page) memory() {
	for w, caption := range g.Texts("#memory figcaption") {
		row := g.rows[fmt.Sprintf("worker %d peak memory", w)]
		for side, name := range []string{"predicted", "measured"} {
			if row[side] == "–" {
				continue
			}
			if !strings.Contains(caption, name+" "+row[side]) {
				g.Errorf("the caption says %q and the table %q", caption, row)
			}
			if want := Value(g, row[side]); math.Abs(g.data.PeakBytes[side][w]-want) > .006*want {
				g.Errorf("drawn is a peak of %.0f, and the table says %s", g.data.PeakBytes[side][w], row[side])
			}
		}
	}
}

// learning compares the captions of loss curves with the last points of the curves, and these points with the Timeline.
// It compares the caption of the chart of step times with the table. A single point must not be drawn as a chart.
func (g *page) learning() {
	charts := g.Texts("#learning figure")
	find := func(title string) string {
		if i := slices.IndexFunc(charts, func(c string) bool { return strings.HasPrefix(c, title) }); i >= 0 {
			return charts[i]
		}
		return ""
	}
	for name, c := range map[string]curve{"training": g.data.Losses, "evaluation": g.data.EvalLosses} {
		n := len(c.Y)
		if n == 0 {
			continue
		}
		if of := g.lastOf(name); of > 0 && c.X[n-1] != of {
			g.Errorf("the last %s loss is drawn at step %d, not %d", name, c.X[n-1], of)
		}
		if want := fmt.Sprintf("%s %.4f", name, c.Y[n-1]); !strings.Contains(find("Loss"), want) {
			g.Errorf("the loss is captioned %q; the last is %s", find("Loss"), want)
		}
	}
	steps := find("Step time")
	if tile := g.rows["step time"]; steps != "" && (!strings.Contains(steps, " "+tile[1]+", steps ") ||
		tile[0] != "–" && !strings.Contains(steps, "predicted "+tile[0])) {
		g.Errorf("steps are captioned %q, and the table says %q", steps, tile)
	}
	if steps != "" && len(g.data.Steps.X) < 2 || steps == "" && len(g.data.Steps.X) > 1 {
		g.Errorf("of %d steps is drawn %q", len(g.data.Steps.X), steps)
	}
	if n := len(g.data.EvalLosses.Y); n == 1 && len(g.data.Losses.Y) < 2 && g.Text(
		"document.querySelector('#learning figure canvas')?.ariaLabel ?? ''") != "" {
		g.Errorf("one loss is drawn as a chart: %q", charts)
	}
}

// lastOf returns the number, as on the page, of the last step with a loss or an evaluation; 0 if the Timeline has none.
func (g *page) lastOf(name string) int {
	switch {
	case g.measured == nil:
	case name == "training" && len(g.measured.Losses) > 0:
		return trace.StepNumber(g.measured.Losses[len(g.measured.Losses)-1].Step)
	case name == "evaluation" && len(g.measured.Evaluations) > 0:
		return trace.StepNumber(g.measured.Evaluations[len(g.measured.Evaluations)-1].Step)
	}
	return 0
}

// plan compares the busy times of stages with those of their workers.
func (g *page) plan() {
	var stages []struct{ Worker, Busy string }
	g.Eval(`(() => { const at = [...document.querySelectorAll(".plan thead th")].map(h => h.textContent)
		return [...document.querySelectorAll(".plan tbody tr")].map(r => ({ Worker: r.children[at.indexOf("worker")].textContent,
			Busy: r.children[at.indexOf("computes")].textContent })) })()`, &stages)
	busy := map[string]float64{}
	for _, s := range stages {
		first := strings.FieldsFunc(s.Worker, func(r rune) bool { return r == '–' || r == ',' })[0]
		if s.Busy != "–" {
			busy[first] += Value(g, s.Busy)
		}
	}
	for _, s := range stages { // if stages have different lists of workers, `busy` lacks a part of some workers' time
		if strings.ContainsAny(s.Worker, "–,") && s.Worker != stages[0].Worker {
			return
		}
	}
	for worker, sum := range busy {
		row := g.rows["worker "+worker+" busy"]
		if want := Value(g, row[0]); math.Abs(sum-want) > .02*want {
			g.Errorf("the stages of worker %s compute %v s; the table says %s", worker, sum, row[0])
		}
	}
}

// rivals compares the numbers of the chosen plan, in the list of the plan and its rivals, with the table.
func (g *page) rivals() {
	for _, said := range g.Texts(".rival.chosen .said") {
		if want := g.rows["step time"][0] + " bubble " + g.rows["bubble"][0]; !strings.HasPrefix(said, want) {
			g.Errorf("the plan among its rivals has %q; the table says %s", said, want)
		}
	}
}

// ones matches a count of one with a plural.
var ones = regexp.MustCompile(`(^|[^\d.,–-])1 (worker|step|stage|plan|pipeline|sample|update|evaluation|part|reason|core|` +
	`micro-batche|host|proces|epoch|message)s\b`)

// words checks that a singular follows a count of one, and that no number is NaN.
func (g *page) words() {
	text := g.Text("document.querySelector('main').innerText")
	text = strings.ReplaceAll(text, "micro-batches in flight", "") // the number before these words is a worker's number
	if wrong := ones.FindString(text); wrong != "" {
		g.Errorf("the page says %q", wrong)
	}
	for _, none := range []string{"NaN", "undefined", "Infinity", "null", "%!"} {
		if strings.Contains(text, none) {
			g.Errorf("the page says %s", none)
		}
	}
}
