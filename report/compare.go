package report

import (
	"fmt"
	"math"
	"slices"

	"github.com/millrace-ml/millrace/internal/stats"
	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/trace"
)

// Numbers is what a Timeline, or a prediction, says about a step. Lists are by worker. If a list is unknown it is nil,
// and if a number is unknown it is 0.
type Numbers struct {
	Steps            int       `json:"steps"`      // number of steps that the step time, busy time and bubble cover
	First            int       `json:"first_step"` // number of the first step that they cover, counted from 1
	Last             int       `json:"last_step"`
	StepS            float64   `json:"step_s"`
	SamplesPerSecond float64   `json:"samples_per_s"`
	Bubble           float64   `json:"bubble"` // 1 - sum(busy) / (workers x step) of one step; see NumbersOf
	BusyS            []float64 `json:"busy_s"`
	PeakBytes        []int64   `json:"peak_bytes"`
	PeakActivations  []int     `json:"peak_activations"`

	means bool // the numbers are means, not medians
	group int  // the numbers are medians over means of this many steps; 0 if they are not
}

// NumbersOf takes medians over the steps of a Timeline after the first `skip` ones. `batch` is the number of samples of
// a step, or 0 if unknown. All medians cover the same steps: the steps with known busy times, or all steps if no step
// has any. The time of a step is what Timeline.Took says; samples per second follow from it. The bubble is the median
// of the steps' bubbles. If steps differ much, the bubble does not follow from the other medians. Peaks are those of
// the whole Timeline.
//
// In a stream the numbers are means over the steps that Timeline.Steady returns, and the bubble follows from them. If
// Steady returns none, the numbers are medians, and a step's time is its span. If a Timeline has no steps, busy times
// and bubble are those of its whole time.
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
	if !t.Stream || !n.steady(t, skip) {
		n.medians(t, skip)
	}
	if n.StepS > 0 {
		n.SamplesPerSecond = float64(batch) / n.StepS
	}
	return n
}

// bubbleOf returns the idle fraction of a step: of all workers' time in the step, the part in which they did not
// compute. It is 0 if busy times or the step's time are unknown. It is also 0 if workers compute for longer than the
// step, as in a stream, whose steps overlap.
func bubbleOf(busyS []float64, stepS float64) float64 {
	if stepS <= 0 || len(busyS) == 0 {
		return 0
	}
	return max(0, 1-sum(busyS)/(float64(len(busyS))*stepS))
}

// over records which steps the numbers cover.
func (n *Numbers) over(steps []trace.StepMark) {
	n.Steps, n.First = len(steps), trace.StepNumber(steps[0].Step)
	n.Last = trace.StepNumber(steps[len(steps)-1].Step)
}

// steady fills in a stream's time from step to step. It returns false if no two recorded steps follow each other.
func (n *Numbers) steady(t *trace.Timeline, skip int) bool {
	steps, stepS, busyS := t.Steady(skip)
	if len(steps) == 0 {
		return false
	}
	n.over(steps)
	n.means, n.StepS, n.BusyS, n.Bubble = true, stepS, busyS, bubbleOf(busyS, stepS)
	return true
}

// medians fills in the medians of step times and busy times, over the settled steps with busy times. If no step has
// busy times, it fills in only the median step time of all settled steps.
func (n *Numbers) medians(t *trace.Timeline, skip int) {
	settled, lengths := t.Settled(skip), t.Took(skip)
	if t.Stream { // no two recorded steps follow each other, so only their spans are known, which overlap
		for k, s := range settled {
			lengths[k] = s.EndS - s.StartS
		}
	}
	all := t.StepBusy()[len(t.Steps)-len(settled):]
	var steps []trace.StepMark
	var took, bubbles []float64
	busy := make([][]float64, t.Workers)
	for k, s := range settled {
		if sum(all[k]) == 0 {
			continue
		}
		steps, took, bubbles = append(steps, s), append(took, lengths[k]), append(bubbles, bubbleOf(all[k], lengths[k]))
		for w, b := range all[k] {
			busy[w] = append(busy[w], b)
		}
	}
	if len(steps) == 0 {
		steps, took, busy = settled, lengths, nil
	}
	n.over(steps)
	n.StepS = stats.Median(took)
	for _, b := range busy {
		n.BusyS = append(n.BusyS, stats.Median(b))
	}
	if len(bubbles) > 0 {
		n.Bubble = stats.Median(bubbles)
	}
}

func sum(xs []float64) (all float64) {
	for _, x := range xs {
		all += x
	}
	return all
}

// which says which steps the numbers cover; "" for fewer than two steps.
func (n *Numbers) which() string {
	if n == nil || n.Steps < 2 {
		return ""
	}
	text := fmt.Sprintf("%ss over %s, %s to %s", n.average(), terminal.Count(n.Steps, "step"), terminal.Whole(n.First),
		terminal.Whole(n.Last))
	switch {
	case n.group > 0:
		text = fmt.Sprintf("medians of means over %d steps, %s to %s (steps overlap)", n.group, terminal.Whole(n.First),
			terminal.Whole(n.Last))
	case n.means:
		text += " (steps overlap; these are recorded whole, one behind the other)"
	}
	return text
}

// average returns "mean" or "median", whichever the numbers are.
func (n *Numbers) average() string {
	if n.means {
		return "mean"
	}
	return "median"
}

// peaks returns the highest memory sample of each worker; nil if there are none.
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

// predictedOf returns the prediction in the plan. If `evaluated` is set, memory includes evaluations.
func predictedOf(p *plan.Predicted, evaluated bool) Numbers {
	peaks := p.MemoryBytes
	if evaluated {
		peaks = p.Evaluated()
	}
	n := Numbers{Steps: 1, StepS: p.StepS, SamplesPerSecond: p.SamplesPerSecond, Bubble: p.Bubble,
		BusyS: p.BusyS, PeakBytes: peaks, PeakActivations: p.PeakActivations}
	if len(n.BusyS) > 0 {
		n.Bubble = bubbleOf(n.BusyS, n.StepS)
	}
	return n
}

// memoryNote explains why the predicted memory in the report differs from that in the plan: the report includes
// evaluations.
func (in Inputs) memoryNote() string {
	predicted, _ := in.numbers()
	if predicted == nil || in.Plan == nil || in.Plan.Predicted == nil || len(in.Plan.Predicted.MemoryBytes) == 0 {
		return ""
	}
	training, shown := in.Plan.Predicted.MemoryBytes, predicted.PeakBytes
	switch most := slices.Max(training); {
	case slices.Equal(training, shown):
		return ""
	case most < slices.Max(shown):
		return fmt.Sprintf("Peak memory is with evaluations: %s is predicted on the fullest worker, and %s in training.",
			terminal.Bytes(slices.Max(shown)), terminal.Bytes(most))
	}
	return "Peak memory is with evaluations; what a plan's workers hold is of training alone."
}

// Unit is the unit of a Comparison.
type Unit string

// The units of comparisons.
const (
	UnitSeconds    Unit = "s"
	UnitPerSecond  Unit = "samples/s"
	UnitPart       Unit = "part" // a fraction, shown as a percentage
	UnitBytes      Unit = "bytes"
	UnitMicroBatch Unit = "micro-batches"
)

// Comparison is one number, predicted and measured.
type Comparison struct {
	Name      string   `json:"name"`
	Worker    int      `json:"worker"`            // -1: the whole pipeline
	Process   *int     `json:"process,omitempty"` // the worker's process, in a run of several processes
	Host      string   `json:"host,omitempty"`
	Unit      Unit     `json:"unit"`
	Predicted *float64 `json:"predicted"` // null without a prediction
	Measured  *float64 `json:"measured"`
	// Difference is measured / predicted - 1. For a UnitPart it is measured - predicted. It is null if one of the two
	// is missing. Except for a UnitPart, it is also null if the prediction is 0 and the measured value is not.
	Difference *float64 `json:"difference"`
}

// Compare compares predicted and measured step time, samples per second and bubble. Then it compares the busy time, the
// peak memory and the micro-batches in flight of each worker. It leaves out rows that neither side has. The plan's
// prediction takes precedence over the simulated Timeline.
func Compare(in Inputs) ([]Comparison, error) {
	all, _, err := CompareOver(in)
	return all, err
}

// CompareOver does the same as Compare, and names the measured steps: "medians over 90 steps, 11 to 100". The name is
// "" for fewer than two steps.
func CompareOver(in Inputs) (all []Comparison, over string, err error) {
	if in, err = in.filled(); err != nil {
		return nil, "", err
	}
	predicted, measured := in.numbers()
	all = compareNumbers(predicted, measured, in.workers())
	for i := range all {
		if w := all[i].Worker; in.Measured != nil && len(in.Measured.Processes) > 1 && w >= 0 && w < in.Measured.Workers {
			p := in.Measured.Process(w)
			all[i].Process, all[i].Host = &p, in.Measured.Processes[p].Host
		}
	}
	return all, measured.which(), nil
}

// Recent is the largest number of steps that the numbers of a running run cover. They are the run's last steps.
const Recent = 64

// CompareRecent does the same as CompareOver for the last Recent steps that a run has reported. It skips none of them.
func CompareRecent(in Inputs) ([]Comparison, string, error) {
	in.Took, in.Skip = in.Took[max(0, len(in.Took)-Recent):], -1
	return CompareOver(in)
}

// MeasuredStep returns the measured step time in a report, in seconds; 0 if there is none.
func MeasuredStep(in Inputs) float64 {
	if _, n := in.numbers(); n != nil {
		return n.StepS
	}
	return 0
}

// bothNumbers returns the predicted and the measured numbers; nil for a side that is missing.
func (in Inputs) bothNumbers() (predicted, measured *Numbers) {
	if in.Simulated != nil {
		n := NumbersOf(in.Simulated, 0, in.Batch)
		predicted = &n
	}
	if in.Plan != nil && in.Plan.Predicted != nil {
		evaluations := in.Evaluations
		if in.Measured != nil {
			evaluations = in.Measured.Evaluations
		}
		n := predictedOf(in.Plan.Predicted, len(evaluations) > 0)
		if predicted != nil {
			n.BusyS = firstOf(n.BusyS, predicted.BusyS)
			n.PeakBytes = firstOf(n.PeakBytes, predicted.PeakBytes)
			n.PeakActivations = firstOf(n.PeakActivations, predicted.PeakActivations)
		}
		predicted = &n
	}
	steps := in.Took
	if n := len(in.Resumed); n > 0 {
		steps = slices.DeleteFunc(slices.Clone(steps), func(s StepTook) bool { return s.Step < in.Resumed[n-1] })
	}
	if in.Measured != nil && trained(in.Measured) {
		n := NumbersOf(in.Measured, in.skip(len(in.Measured.Steps)), in.Batch)
		if n.means {
			n.widen(steps[min(in.skip(len(steps)), len(steps)):], in.Batch)
		}
		return predicted, &n
	}
	return predicted, numbersOfSteps(steps, in.skip(len(steps)), in.Batch, in.Plan != nil && in.Plan.Overlaps())
}

// trained says whether a Timeline has any work of a step. A run that is resumed after its last step only evaluates.
func trained(t *trace.Timeline) bool {
	if len(t.Steps) > 0 {
		return true
	}
	return slices.ContainsFunc(t.Events, func(e trace.Event) bool { return e.Kind == "F" })
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
		add("micro-batches in flight", w, UnitMicroBatch, func(n *Numbers) (float64, bool) {
			return entry(n.PeakActivations, w)
		})
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
