package report

import (
	"fmt"
	"math"

	"github.com/millrace-ml/millrace/internal/stats"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/trace"
)

// Numbers is what a Timeline, or a prediction, says of a step. Lists are by worker;
// a list that nobody knows is nil, a number that nobody knows is 0.
type Numbers struct {
	Steps            int       `json:"steps"`      // that step, busy time and bubble are all of
	First            int       `json:"first_step"` // of these
	Last             int       `json:"last_step"`
	StepS            float64   `json:"step_s"`
	SamplesPerSecond float64   `json:"samples_per_s"`
	Bubble           float64   `json:"bubble"` // 1 - sum(busy) / (workers x step)
	BusyS            []float64 `json:"busy_s"`
	PeakBytes        []int64   `json:"peak_bytes"`
	PeakActivations  []int     `json:"peak_activations"`

	means bool // not medians
}

// NumbersOf takes medians over the steps of a Timeline after the first skip; batch is the
// samples of a step, 0 where that is not known. Times, busy times and bubble are of the same
// steps, those of which it is known who computed how long, so that no worker is busy for
// longer than a step; of all where that is known of none.
//
// In a stream, whose steps overlap, a step is the time from one's end to the next one's, and
// the numbers are means over those.
func NumbersOf(t *trace.Timeline, skip, batch int) Numbers {
	n := Numbers{PeakBytes: t.PeakBytes, PeakActivations: t.PeakActivations}
	if len(n.PeakBytes) == 0 {
		n.PeakBytes = peaks(t)
	}
	if len(t.Steps) == 0 {
		start, end := t.Extent()
		n.BusyS, n.Bubble = t.Busy(start, end), t.Bubble(start, end)
		return n
	}
	if t.Stream && n.steady(t, skip, batch) {
		return n
	}
	steps, busy := known(t, skip)
	n.over(steps)
	of := *t
	of.Steps, of.Stream = steps, false // a stream of which no two steps follow each other has their lengths alone
	n.StepS = of.StepTime(0)
	if period := of.Period(0); period > 0 {
		n.SamplesPerSecond = float64(batch) / period
	}
	n.busy(steps, busy)
	return n
}

// over names the steps that the numbers are of.
func (n *Numbers) over(steps []trace.StepMark) {
	n.Steps, n.First, n.Last = len(steps), steps[0].Step, steps[len(steps)-1].Step
}

// steady fills in what a stream takes from step to step; false where no two of its steps follow each other.
func (n *Numbers) steady(t *trace.Timeline, skip, batch int) bool {
	steps, stepS, busyS := t.Steady(skip)
	if len(steps) == 0 {
		return false
	}
	n.over(steps)
	n.means, n.StepS, n.BusyS = true, stepS, busyS
	n.SamplesPerSecond, n.Bubble = float64(batch)/stepS, 1-sum(busyS)/(float64(t.Workers)*stepS)
	return true
}

// known is the settled steps of which it is known how long each worker computed, and that time by
// worker; all settled steps, and nil, where it is known of none.
func known(t *trace.Timeline, skip int) (steps []trace.StepMark, busy [][]float64) {
	settled := t.Settled(skip)
	all := t.StepBusy()[len(t.Steps)-len(settled):]
	for k, s := range settled {
		if sum(all[k]) > 0 {
			steps, busy = append(steps, s), append(busy, all[k])
		}
	}
	if len(steps) == 0 {
		return settled, nil
	}
	return steps, busy
}

// busy fills in the medians of busy times and bubble.
func (n *Numbers) busy(steps []trace.StepMark, busy [][]float64) {
	if len(busy) == 0 {
		return
	}
	workers := len(busy[0])
	byWorker := make([][]float64, workers)
	var bubbles []float64
	for k, s := range steps {
		for w, b := range busy[k] {
			byWorker[w] = append(byWorker[w], b)
		}
		if s.EndS > s.StartS {
			bubbles = append(bubbles, 1-sum(busy[k])/(float64(workers)*(s.EndS-s.StartS)))
		}
	}
	n.Bubble = stats.Median(bubbles)
	for _, b := range byWorker {
		n.BusyS = append(n.BusyS, stats.Median(b))
	}
}

func sum(xs []float64) (all float64) {
	for _, x := range xs {
		all += x
	}
	return all
}

// which says of which steps the numbers are, "" of one step.
func (n *Numbers) which() string {
	if n == nil || n.Steps < 2 {
		return ""
	}
	what := "medians"
	if n.means {
		what = "means"
	}
	return fmt.Sprintf("%s over %d steps, %d to %d", what, n.Steps, n.First, n.Last)
}

// peaks is the highest memory sample of each worker, or nil where there are none.
func peaks(t *trace.Timeline) []int64 {
	if len(t.Memory) == 0 {
		return nil
	}
	out := make([]int64, t.Workers)
	for _, m := range t.Memory {
		out[m.Worker] = max(out[m.Worker], m.Bytes)
	}
	return out
}

// predictedOf is what the plan promised, as written in it: with the memory of evaluations, where there were any.
func predictedOf(p *plan.Predicted, evaluated bool) Numbers {
	peaks := p.MemoryBytes
	if evaluated {
		peaks = p.Evaluated()
	}
	return Numbers{Steps: 1, StepS: p.StepS, SamplesPerSecond: p.SamplesPerSecond, Bubble: p.Bubble,
		BusyS: p.BusyS, PeakBytes: peaks, PeakActivations: p.PeakActivations}
}

// Unit is what a number of a Comparison counts.
type Unit string

// The units of comparisons.
const (
	UnitSeconds    Unit = "s"
	UnitPerSecond  Unit = "samples/s"
	UnitPart       Unit = "part" // of one, shown as a percentage
	UnitBytes      Unit = "bytes"
	UnitMicroBatch Unit = "micro-batches"
)

// Comparison is one number, predicted and measured.
type Comparison struct {
	Name      string   `json:"name"`
	Worker    int      `json:"worker"`            // -1: of the whole pipeline
	Process   *int     `json:"process,omitempty"` // of the worker, in a run of several
	Host      string   `json:"host,omitempty"`
	Unit      Unit     `json:"unit"`
	Predicted *float64 `json:"predicted"` // null where there is no prediction
	Measured  *float64 `json:"measured"`
	// Difference is measured over predicted, minus one; for parts, measured minus
	// predicted. Null where one of them is missing.
	Difference *float64 `json:"difference"`
}

// Compare is predicted against measured: step time, samples per second and bubble, then
// busy time, peak memory and live activations by worker. Rows that neither side knows are
// left out. The plan's own prediction counts first, then the simulated Timeline.
func Compare(in Inputs) ([]Comparison, error) {
	in, err := in.filled()
	if err != nil {
		return nil, err
	}
	predicted, measured := in.numbers()
	all := compareNumbers(predicted, measured, in.workers())
	for i := range all {
		if w := all[i].Worker; in.Measured != nil && len(in.Measured.Processes) > 1 && w >= 0 && w < in.Measured.Workers {
			p := in.Measured.Process(w)
			all[i].Process, all[i].Host = &p, in.Measured.Processes[p].Host
		}
	}
	return all, nil
}

// numbers is both sides; nil where a side is not there.
func (in Inputs) numbers() (predicted, measured *Numbers) {
	if in.Simulated != nil {
		n := NumbersOf(in.Simulated, 0, in.Batch)
		predicted = &n
	}
	if in.Plan != nil && in.Plan.Predicted != nil {
		n := predictedOf(in.Plan.Predicted, in.Measured != nil && len(in.Measured.Evaluations) > 0)
		if predicted != nil {
			n.BusyS = firstOf(n.BusyS, predicted.BusyS)
			n.PeakBytes = firstOf(n.PeakBytes, predicted.PeakBytes)
			n.PeakActivations = firstOf(n.PeakActivations, predicted.PeakActivations)
		}
		predicted = &n
	}
	if in.Measured != nil {
		n := NumbersOf(in.Measured, in.skip(len(in.Measured.Steps)), in.Batch)
		measured = &n
	}
	return predicted, measured
}

func firstOf[T any](a, b []T) []T {
	if len(a) > 0 {
		return a
	}
	return b
}

func compareNumbers(p, m *Numbers, workers int) []Comparison {
	var out []Comparison
	add := func(name string, worker int, unit Unit, of func(*Numbers) (float64, bool)) {
		c := Comparison{Name: name, Worker: worker, Unit: unit}
		if p != nil {
			if x, ok := of(p); ok {
				c.Predicted = new(x)
			}
		}
		if m != nil {
			if x, ok := of(m); ok {
				c.Measured = new(x)
			}
		}
		if c.Predicted == nil && c.Measured == nil {
			return
		}
		c.Difference = difference(c)
		out = append(out, c)
	}
	add("step time", -1, UnitSeconds, func(n *Numbers) (float64, bool) { return n.StepS, n.StepS > 0 })
	add("samples per second", -1, UnitPerSecond, func(n *Numbers) (float64, bool) {
		return n.SamplesPerSecond, n.SamplesPerSecond > 0
	})
	add("bubble", -1, UnitPart, func(n *Numbers) (float64, bool) { return n.Bubble, len(n.BusyS) > 0 })
	for w := range workers {
		add("busy", w, UnitSeconds, func(n *Numbers) (float64, bool) { return entry(n.BusyS, w) })
	}
	for w := range workers {
		add("peak memory", w, UnitBytes, func(n *Numbers) (float64, bool) { return entry(n.PeakBytes, w) })
	}
	for w := range workers {
		add("live activations", w, UnitMicroBatch, func(n *Numbers) (float64, bool) { return entry(n.PeakActivations, w) })
	}
	return out
}

func entry[T int | int64 | float64](list []T, i int) (float64, bool) {
	if i >= len(list) {
		return 0, false
	}
	return float64(list[i]), true
}

func difference(c Comparison) *float64 {
	switch {
	case c.Predicted == nil || c.Measured == nil:
		return nil
	case c.Unit == UnitPart:
		return new(*c.Measured - *c.Predicted)
	case *c.Predicted == *c.Measured:
		return new(0.0)
	case *c.Predicted == 0:
		return nil
	}
	d := *c.Measured / *c.Predicted - 1
	if math.IsNaN(d) || math.IsInf(d, 0) {
		return nil
	}
	return &d
}
