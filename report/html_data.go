package report

import (
	"cmp"
	"math"
	"slices"

	"github.com/millrace-ml/millrace/internal/kind"
	"github.com/millrace-ml/millrace/trace"
)

// pageData is what the page's scripts draw. Lists run in parallel (a column each),
// which is a third of the size of a list of objects.
type pageData struct {
	Predicted  []panel     `json:"predicted"` // steps that can be shown; the first is shown
	Measured   []panel     `json:"measured"`
	Causes     []causeName `json:"causes"`
	Kinds      []kindName  `json:"kinds"`
	Losses     curve       `json:"losses"`
	EvalLosses curve       `json:"eval_losses"`
	Accuracies curve       `json:"accuracies"`
	// Reported is what the model yields behind its loss, by name.
	Reported    map[string]*curve `json:"reported,omitempty"`
	Apart       curve             `json:"reference_apart"`
	PeakBytes   [2][]int64        `json:"peak_bytes"` // of the whole run: predicted, measured
	StageLabels []string          `json:"stage_labels"`
	Groups      []group           `json:"groups"`          // rows in their order, by host
	Where       []string          `json:"where,omitempty"` // by worker, in a run of several processes
}

// group is the workers of a host; of a run in one process it has no title.
type group struct {
	Title   string `json:"title"`
	Workers []int  `json:"workers"`
}

type causeName struct {
	Name  trace.Cause `json:"name"`
	Label string      `json:"label"`
}

type kindName struct {
	Name  string `json:"name"`
	Label string `json:"label"`
}

type curve struct {
	X []int     `json:"x"`
	Y []float64 `json:"y"`
}

// panel is one step. Times are nanoseconds from its start.
type panel struct {
	Name    string        `json:"name"`
	Workers int           `json:"workers"`
	EndNS   int64         `json:"end"`
	Events  eventColumns  `json:"events"`
	Gaps    gapColumns    `json:"gaps"`
	Memory  []memoryCurve `json:"memory"` // by worker
}

type eventColumns struct {
	Text    []string `json:"text"`
	Worker  []int    `json:"worker"`
	Compute []int    `json:"compute"` // 1: on the compute lane
	Start   []int64  `json:"start"`
	Length  []int64  `json:"length"`
	Bytes   []int64  `json:"bytes"`
	Shade   []int    `json:"shade"` // which of the worker's stages it is for
}

type gapColumns struct {
	Worker  []int    `json:"worker"`
	Start   []int64  `json:"start"`
	Length  []int64  `json:"length"`
	Cause   []int    `json:"cause"`
	Before  []int    `json:"before"`  // the event that ended it, or -1
	Blocker []int    `json:"blocker"` // the event it waited for, or -1
	Why     []string `json:"why"`
}

type memoryCurve struct {
	At    []int64 `json:"at"`
	Bytes []int64 `json:"bytes"`
}

// moreSteps is the most events for which the fastest and the slowest step go into the page too.
const moreSteps = 30_000

// mostSamples is the most memory samples a curve keeps: two for each column of a wide screen.
const mostSamples = 4000

// kinds is the vocabulary in the order of the legend: what computes comes first.
var kinds = kindsInOrder()

func kindsInOrder() []string {
	var first, then []string
	for _, k := range kind.All() {
		if k.IsCompute() {
			first = append(first, k.String())
		} else {
			then = append(then, k.String())
		}
	}
	return append(first, then...)
}

func pageDataOf(in Inputs) pageData {
	d := pageData{Predicted: []panel{}, Measured: []panel{}}
	for _, c := range trace.Causes {
		d.Causes = append(d.Causes, causeName{c, c.Label()})
	}
	for _, k := range kinds {
		d.Kinds = append(d.Kinds, kindName{k, trace.Plain(k)})
	}
	if in.Simulated != nil {
		t, name := shownStep(in.Simulated, 0)
		d.Predicted = append(d.Predicted, panelOf(t, name))
	}
	if in.Measured != nil {
		d.Measured = measuredPanels(in.Measured, in.skip(len(in.Measured.Steps)))
	}
	predicted, measured := in.numbers()
	if predicted != nil {
		d.PeakBytes[0] = predicted.PeakBytes
	}
	if measured != nil {
		d.PeakBytes[1] = measured.PeakBytes
	}
	d.Losses = curve{[]int{}, []float64{}}
	for _, l := range in.Losses {
		if !math.IsNaN(l.Value) && !math.IsInf(l.Value, 0) {
			d.Losses.X, d.Losses.Y = append(d.Losses.X, l.Step), append(d.Losses.Y, l.Value)
		}
	}
	for _, c := range []*curve{&d.EvalLosses, &d.Accuracies, &d.Apart} {
		*c = curve{[]int{}, []float64{}}
	}
	for _, e := range in.Evaluations {
		if math.IsNaN(e.Loss) || math.IsInf(e.Loss, 0) {
			continue
		}
		d.EvalLosses.X, d.EvalLosses.Y = append(d.EvalLosses.X, e.Step), append(d.EvalLosses.Y, e.Loss)
		if e.Samples > 0 && e.Correct > 0 {
			d.Accuracies.X, d.Accuracies.Y = append(d.Accuracies.X, e.Step), append(d.Accuracies.Y, e.Accuracy())
		}
		if e.Apart != nil && !math.IsNaN(*e.Apart) && !math.IsInf(*e.Apart, 0) {
			d.Apart.X, d.Apart.Y = append(d.Apart.X, e.Step), append(d.Apart.Y, *e.Apart)
		}
	}
	for _, e := range in.Evaluations {
		for name, v := range e.Reported {
			if v == nil {
				continue
			}
			if d.Reported == nil {
				d.Reported = map[string]*curve{}
			}
			if d.Reported[name] == nil {
				d.Reported[name] = &curve{}
			}
			c := d.Reported[name]
			c.X, c.Y = append(c.X, e.Step), append(c.Y, *v)
		}
	}
	for _, h := range in.groups() {
		if g := (group{Workers: h.Workers}); len(h.Workers) > 0 {
			if len(h.Processes) > 0 {
				g.Title = h.title()
			}
			d.Groups = append(d.Groups, g)
		}
	}
	if t := in.Measured; hostsOf(t) != nil {
		for w := range t.Workers {
			d.Where = append(d.Where, t.Where(w))
		}
	}
	for w := range in.workers() {
		label := ""
		if stages := in.stagesOf(w); len(stages) > 0 {
			label = "stage " + list(stages)
		}
		d.StageLabels = append(d.StageLabels, label)
	}
	return d
}

// measuredPanels is the median step, and where they are few boxes the fastest, the slowest
// and the earliest one too.
func measuredPanels(t *trace.Timeline, skip int) []panel {
	shown, name := shownStep(t, skip)
	panels := []panel{panelOf(shown, name)}
	steps := t.Kept(skip)
	if len(steps) < 3 || 3*len(shown.Events) > moreSteps {
		return panels
	}
	slices.SortStableFunc(steps, func(a, b trace.StepMark) int {
		return cmp.Compare(a.EndS-a.StartS, b.EndS-b.StartS)
	})
	for _, more := range []struct {
		mark trace.StepMark
		what string
	}{{steps[0], "fastest"}, {steps[len(steps)-1], "slowest"}, {t.Kept(0)[0], "earliest"}} {
		panels = append(panels, panelOf(t.Window(more.mark.StartS, more.mark.EndS), stepName(more.mark.Step, more.what)))
	}
	return panels
}

func panelOf(t *trace.Timeline, name string) panel {
	_, end := t.Extent()
	p := panel{Name: name, Workers: t.Workers, EndNS: nanoseconds(end), Memory: memoryCurves(t)}
	p.Events = eventColumns{Text: []string{}, Worker: []int{}, Compute: []int{}, Start: []int64{}, Length: []int64{},
		Bytes: []int64{}, Shade: []int{}}
	held := stagesOf(t.Events, t.Workers)
	type place struct {
		worker int
		text   string
	}
	at := make(map[place]int, len(t.Events))
	for i := range t.Events {
		e := &t.Events[i]
		if e.EndS <= e.StartS && e.Kind != "DR" {
			continue // a receive takes no time; the gap before the next box tells of it
		}
		at[place{e.Worker, e.Instruction}] = len(p.Events.Text)
		c := &p.Events
		lane := 0
		if e.Lane == trace.Compute {
			lane = 1
		}
		start := nanoseconds(e.StartS)
		c.Text, c.Worker, c.Compute = append(c.Text, e.Instruction), append(c.Worker, e.Worker), append(c.Compute, lane)
		c.Start, c.Length = append(c.Start, start), append(c.Length, nanoseconds(e.EndS)-start)
		c.Bytes = append(c.Bytes, e.Bytes)
		shade := 0
		if f, ok := trace.ParseFields(e.Instruction); ok {
			shade = held.shade(e.Worker, f)
		}
		c.Shade = append(c.Shade, shade)
	}
	index := func(worker int, text string) int {
		if i, ok := at[place{worker, text}]; ok && text != "" {
			return i
		}
		return -1
	}
	g := &p.Gaps
	*g = gapColumns{Worker: []int{}, Start: []int64{}, Length: []int64{}, Cause: []int{}, Before: []int{},
		Blocker: []int{}, Why: []string{}}
	for w, gaps := range trace.AllGaps(t) {
		for _, gap := range gaps {
			start := nanoseconds(gap.StartS)
			g.Worker, g.Start = append(g.Worker, w), append(g.Start, start)
			g.Length = append(g.Length, nanoseconds(gap.EndS)-start)
			g.Cause = append(g.Cause, slices.Index(trace.Causes, gap.Cause))
			g.Before = append(g.Before, index(w, gap.Before))
			g.Blocker = append(g.Blocker, index(gap.BlockerWorker, gap.Blocker))
			g.Why = append(g.Why, gap.Why)
		}
	}
	return p
}

// memoryCurves is each worker's samples; where there are too many, the highest and the
// lowest of each part, so that peaks stay.
func memoryCurves(t *trace.Timeline) []memoryCurve {
	out := make([]memoryCurve, t.Workers)
	byWorker := make([][]trace.MemorySample, t.Workers)
	for _, m := range t.Memory {
		byWorker[m.Worker] = append(byWorker[m.Worker], m)
	}
	for w, samples := range byWorker {
		slices.SortStableFunc(samples, func(a, b trace.MemorySample) int {
			return cmp.Compare(a.AtS, b.AtS)
		})
		c := memoryCurve{At: []int64{}, Bytes: []int64{}}
		for _, m := range thinned(samples, mostSamples) {
			c.At, c.Bytes = append(c.At, nanoseconds(m.AtS)), append(c.Bytes, m.Bytes)
		}
		out[w] = c
	}
	return out
}

func thinned(all []trace.MemorySample, most int) []trace.MemorySample {
	if len(all) <= most {
		return all
	}
	var out []trace.MemorySample
	parts := most / 2
	for k := range parts {
		part := all[k*len(all)/parts : (k+1)*len(all)/parts]
		low, high := 0, 0
		for i, m := range part {
			if m.Bytes < part[low].Bytes {
				low = i
			}
			if m.Bytes > part[high].Bytes {
				high = i
			}
		}
		out = append(out, part[min(low, high)])
		if low != high {
			out = append(out, part[max(low, high)])
		}
	}
	return out
}
