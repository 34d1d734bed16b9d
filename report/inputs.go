// Package report draws predictions of plans and results of runs.
//
// In: a Plan, a simulated and a measured Timeline, losses and evaluations, any of them missing. Out:
//
//   - Terminal: a summary that reads well at 80 columns;
//   - HTML: one page that needs nothing else, with both steps on one axis;
//   - Perfetto and ChromeJSON: the Timeline for other people's viewers;
//   - Grid: a schedule as papers draw it, as SVG or a page, a row for each worker;
//   - Table: rows as aligned text or as Markdown;
//   - Study: a page of tables and plots that compare methods.
//
// Refused: Timelines that trace.Validate refuses, and Inputs with nothing to draw. It starts no run, runs no simulation
// and opens no connection. report/metrics reports values while a run lasts.
package report

import (
	"fmt"
	"math"
	"slices"

	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/trace"
)

// Inputs is what a report is drawn from. At least one of Plan, Simulated, Measured, Losses and Took must be given.
type Inputs struct {
	Title      string          // like "runs/gpt"; if empty, the model's name is used
	Plan       *plan.Plan      // what ran where
	LayerNames []string        // the model's layers in order, for the drawing of the plan
	LayerS     []float64       // seconds that a micro-batch takes in each layer; nil: unknown
	Lags       []Lag           // age of the weights in a stream; nil if a step uses one version
	Simulated  *trace.Timeline // the prediction, made before the first step
	OneRun     bool            // the prediction is of one simulation, not the mean of several with other slow workers
	Measured   *trace.Timeline // the run
	// Losses and Evaluations cover the whole run; if nil, those of the measured Timeline are used.
	Losses      []trace.Loss
	Evaluations []trace.Evaluation
	// Took has the reported times of steps. It also has the steps of earlier parts of the run, which the measured
	// Timeline lacks. Resumed are the first steps of later parts. Without a measured Timeline, the report's numbers
	// cover only the last part: the steps from the last one of Resumed on.
	Took    []StepTook
	Resumed []int
	// Unmeasured says why the measured Timeline is missing; empty: no remark.
	Unmeasured string
	// Batch is the number of samples of one step; 0 means the plan's batch.
	Batch int
	// Skip is how many first steps the measured numbers leave out because caches and threads are cold. 0 means a tenth
	// of the steps: at least 1, at most 10, but none if there are fewer than 3 steps. -1 leaves none out.
	Skip int
	// Facts are shown unchanged: engine, cores, threads, seed.
	Facts []Fact

	sides *sides // values that filled has computed
}

// sides has values that are computed once and shown in several places. `predicted` and `measured` are nil for a side
// that is missing. `has` is false for a side without steps.
type sides struct {
	predicted, measured *Numbers
	simulated, run      shownStep
	has                 [2]bool // whether a step is drawn
}

// Fact is a name and a value to show.
type Fact struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// filled returns Inputs with defaults filled in, or an error if nothing can be drawn.
func (in Inputs) filled() (Inputs, error) {
	if in.Plan == nil && in.Simulated == nil && in.Measured == nil && len(in.Losses) == 0 && len(in.Took) == 0 {
		return in, fmt.Errorf("report: nothing to draw: want a plan, a Timeline, steps or losses")
	}
	for _, t := range []struct {
		name string
		t    *trace.Timeline
	}{{"simulated", in.Simulated}, {"measured", in.Measured}} {
		if t.t == nil {
			continue
		}
		if err := t.t.Validate(); err != nil {
			return in, fmt.Errorf("report: the %s Timeline: %w", t.name, err)
		}
	}
	if in.Measured != nil {
		if in.Losses == nil {
			in.Losses = in.Measured.Losses
		}
		if in.Evaluations == nil {
			in.Evaluations = in.Measured.Evaluations
		}
	}
	if in.Plan != nil {
		in.Plan = byWorker(in.Plan)
	}
	if in.Batch == 0 && in.Plan != nil {
		in.Batch = in.Plan.StepSamples()
	}
	if in.Title == "" {
		in.Title = in.model()
	}
	in.sides = in.compute()
	return in, nil
}

// byWorker returns a plan whose stages name workers instead of devices, as Timelines and predictions do. Worker i is
// the i-th device in ascending order.
func byWorker(p *plan.Plan) *plan.Plan {
	devices := p.Devices()
	named := *p
	named.Stages = slices.Clone(p.Stages)
	for i := range named.Stages {
		s := &named.Stages[i]
		s.Devices = slices.Clone(s.Devices)
		for r, d := range s.Devices {
			s.Devices[r], _ = slices.BinarySearch(devices, d)
		}
	}
	return &named
}

func (in Inputs) model() string {
	if in.Plan != nil && in.Plan.Model != "" {
		return in.Plan.Model
	}
	for _, t := range []*trace.Timeline{in.Measured, in.Simulated} {
		if t != nil && t.Model != "" {
			return t.Model
		}
	}
	return "millrace"
}

// workers returns how many workers the report has rows for.
func (in Inputs) workers() int {
	n := 0
	for _, t := range []*trace.Timeline{in.Simulated, in.Measured} {
		if t != nil {
			n = max(n, t.Workers)
		}
	}
	if k := len(in.Took); k > 0 {
		n = max(n, len(in.Took[k-1].BusyS), len(in.Took[k-1].PeakBytes))
	}
	if in.Plan != nil {
		for _, s := range in.Plan.Stages {
			for _, d := range s.Devices {
				n = max(n, d+1)
			}
		}
	}
	return n
}

// stagesOf returns the stages that the plan puts on a worker.
func (in Inputs) stagesOf(worker int) []int {
	var out []int
	if in.Plan != nil {
		for s, stage := range in.Plan.Stages {
			for _, d := range stage.Devices {
				if d == worker {
					out = append(out, s)
				}
			}
		}
	}
	return out
}

// skip returns how many of n steps are left out at the beginning.
func (in Inputs) skip(n int) int {
	switch {
	case in.Skip > 0:
		return in.Skip
	case in.Skip < 0 || n < 3:
		return 0
	}
	return min(10, max(1, n/10))
}

// shownStep is a step of a Timeline that is drawn. Usually it is the step whose time is nearest to the step time in the
// numbers.
type shownStep struct {
	mark  trace.StepMark
	tookS float64
	ofS   float64 // which step it is, for instance "median" or "fastest of those kept"
	which string  // "median" if its time is the median, else how near it is, or "fastest of those kept"
}

// predicted, ofRuns and inTurn are for a prediction that is the mean of several steps or simulations, of which one is
// drawn. The text `predicted` is for a drawn step whose time is near this mean. For any other drawn step the text is
// `ofRuns`, or `inTurn` if there was only one simulation (Inputs.OneRun).
const (
	predicted = "prediction"
	ofRuns    = "of one simulated run"
	inTurn    = "of unequal steps"
)

// name returns a name such as "step 17 (median)".
func (s shownStep) name() string { return stepName(trace.StepNumber(s.mark.Step), s.which) }

// stepName returns "step 17" or "step 17 (median)" for a StepNumber.
func stepName(step int, what string) string {
	if what == "" {
		return "step " + terminal.Whole(step)
	}
	return fmt.Sprintf("step %s (%s)", terminal.Whole(step), what)
}

// text says how long the step took, and also its span from its first instruction if that differs.
func (s shownStep) text() string {
	took, span := terminal.Duration(s.tookS), terminal.Duration(s.mark.EndS-s.mark.StartS)
	if s.which == ofRuns {
		took += fmt.Sprintf(" (the prediction, %s, is the mean over runs in each of which another worker is slow, as the "+
			"profile found them; one run is drawn)", terminal.Duration(s.ofS))
	}
	if s.which == inTurn {
		took += fmt.Sprintf(" (the prediction, %s, is the mean of minibatches that end earlier and later in turn)",
			terminal.Duration(s.ofS))
	}
	if math.Abs(s.beforeS()) < .01*s.tookS {
		return fmt.Sprintf("%s, %s", s.name(), took)
	}
	why := "it begins a little after that"
	if s.beforeS() > 0 {
		why = "it begins while that one ends"
	}
	return fmt.Sprintf("%s, %s from the end of the step before it; %s from its first instruction, as %s", s.name(), took,
		span, why)
}

// beforeS returns the end of the previous step, relative to the start of this step, in seconds.
func (s shownStep) beforeS() float64 { return s.mark.EndS - s.mark.StartS - s.tookS }

// show chooses the step of a Timeline to draw. If steps that the numbers `n` cover are recorded, it chooses one of
// these. If the numbers are of this Timeline alone, `alone` is true. show returns false if there are no steps.
func show(t *trace.Timeline, skip int, n *Numbers, whole string, alone bool) (shownStep, bool) {
	within := slices.IndexFunc(t.Steps, func(s trace.StepMark) bool { return trace.StepNumber(s.Step) >= n.First })
	if within > skip && len(t.Kept(within)) > 0 {
		skip = within
	}
	mark, tookS, ok := t.Nearest(skip, n.StepS)
	s := shownStep{mark: mark, tookS: tookS, ofS: n.StepS}
	switch {
	case ok && whole == predicted && math.Abs(tookS-n.StepS) > .02*n.StepS:
		if s.which = ofRuns; alone {
			s.which = inTurn
		}
	case !ok || len(t.Steps) == 1:
	case math.Abs(tookS-n.StepS) <= 1e-9*n.StepS:
		s.which = whole
	case len(t.Kept(skip)) < len(t.Settled(skip)):
		s.which = "of those kept, nearest to the " + whole + s.apart()
	default:
		s.which = "nearest to the " + whole + s.apart()
	}
	return s, ok
}

// apart says how much longer or shorter the step is than the numbers say, as in ", 3.2 % longer". If they differ by
// less than half a percent, it returns "".
func (s shownStep) apart() string {
	off, word := 100*(s.tookS/s.ofS-1), "longer"
	if off < 0 {
		off, word = -off, "shorter"
	}
	if !(off >= .5) {
		return ""
	}
	return fmt.Sprintf(", %.1f %% %s", off, word)
}

func (in Inputs) compute() *sides {
	var s sides
	s.predicted, s.measured = in.bothNumbers()
	if t := in.Simulated; t != nil {
		whole := "median"
		if own := NumbersOf(t, 0, 0); math.Abs(own.StepS-s.predicted.StepS) > 1e-9*own.StepS {
			whole = predicted
		}
		skip := 0
		if t.Stream { // its first steps fill the workers
			skip = len(t.Steps) / 2
		}
		s.simulated, s.has[0] = show(t, skip, s.predicted, whole, in.OneRun)
	}
	if t := in.Measured; t != nil && s.measured != nil {
		s.run, s.has[1] = show(t, in.skip(len(t.Steps)), s.measured, s.measured.average(), true)
	}
	return &s
}

// computed returns the sides. If filled has not computed the sides, computed computes them now.
func (in Inputs) computed() *sides {
	if in.sides == nil {
		return in.compute()
	}
	return in.sides
}

// numbers returns the predicted and the measured numbers; nil for a side that is missing.
func (in Inputs) numbers() (predicted, measured *Numbers) {
	s := in.computed()
	return s.predicted, s.measured
}

// predicted returns the drawn step of the simulated Timeline. measured returns the drawn step of the run. Both
// functions return false if there is none.
func (in Inputs) predicted() (shownStep, bool) { s := in.computed(); return s.simulated, s.has[0] }
func (in Inputs) measured() (shownStep, bool)  { s := in.computed(); return s.run, s.has[1] }

// predictedStep returns the drawn step of the simulation and its time, or the whole Timeline if it has no steps.
// measuredStep does so for the run.
func (in Inputs) predictedStep() (*trace.Timeline, string) {
	s, ok := in.predicted()
	return cut(in.Simulated, s, ok)
}

func (in Inputs) measuredStep() (*trace.Timeline, string) {
	s, ok := in.measured()
	return cut(in.Measured, s, ok)
}

func cut(t *trace.Timeline, s shownStep, ok bool) (*trace.Timeline, string) {
	switch {
	case t == nil:
		return nil, ""
	case ok:
		return t.Window(s.mark.StartS, s.mark.EndS), s.text()
	}
	start, end := t.Extent()
	return t.Window(start, end), "run, " + terminal.Duration(end-start)
}
