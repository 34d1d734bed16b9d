package tune

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/millrace-ml/millrace/sim"
)

// Batches that AvgPipe spends on a setting: twenty on the one it profiles (section 5.2.1), ten
// on each that the traversal tries (section 5.1).
const (
	ProfileBatches   = 20
	TraversalBatches = 10
)

// Of an anchored profile's batches, fewer than twenty, these are at the profiled setting. Iterations at the ends of
// the grid are few: three, of which the first is cold, and of large micro-batches, of which each has few, one more.
const (
	anchoredBatches  = 6
	anchorIterations = fewest
	fewMicros        = 4
)

// DegreesRequest is a search for AvgPipe's degrees.
type DegreesRequest struct {
	Workload  *Workload
	Sizes     []int // of micro-batches, in samples
	Pipelines int   // at most
	Machine   Machine
	// ProfileAt is the setting to profile; none chooses it: one pipeline and rather many
	// micro-batches, so that devices are not full (section 5.2.1).
	ProfileAt Degrees
	// ProfileS is what measuring the layers took.
	ProfileS float64
	// Anchored spends the profile's batches on three settings instead of one, the smallest
	// and the largest micro-batches besides those profiled, and scales the layers' profile to what
	// stages took there: what a machine asks for whose layers were measured briefly, if at all.
	// The simulator as the machine has nothing to add to a profile.
	Anchored bool
	// Rivals traverses the grid, and follows both guidelines.
	Rivals bool
	// Progress is told of every setting predicted or tried; nil is nobody.
	Progress func(done, of int, what string)
}

// Method is a way to choose the degrees.
type Method string

// The methods, in the order in which they are reported.
const (
	BySimulator Method = "simulator"             // millrace's: every setting simulated from the layers' profile, scaled to the profiled setting
	ByPrinted   Method = "equations, as printed" // AvgPipe's: equations 1 to 8 on the profiled setting
	ByAdjusted  Method = "equations, adjusted"   // the same, see Adjusted
	ByTraversal Method = "traversal"             // every setting tried
	ByMaxNum    Method = "max-num"               // most micro-batches, then most pipelines
	ByMaxSize   Method = "max-size"              // largest micro-batches, then most pipelines
)

// Choice is what a method chose and what that cost.
type Choice struct {
	Method Method  `json:"method"`
	At     Degrees `json:"at"`
	// TuningS is the time spent on the machine for the choice, seconds: the layers' profile and the
	// profiled setting, or the trials. PredictionS is what predicting took by the clock.
	TuningS     float64 `json:"tuning_s"`
	PredictionS float64 `json:"prediction_s"`
	Tried       int     `json:"tried"` // settings run
	Predicted   Scored  `json:"predicted"`
	// Measured is the setting's own trial, where it was run; of an Anchored request, in rounds with those of
	// the other choices.
	Measured *Scored `json:"measured,omitempty"`
	// Refused says why the method chose nothing.
	Refused string `json:"refused,omitempty"`
}

// StepS is a batch of the choice, measured where it can be.
func (c *Choice) StepS() float64 {
	if c.Measured != nil {
		return c.Measured.StepS
	}
	return c.Predicted.StepS
}

// Cell is one setting of the grid.
type Cell struct {
	At        Degrees    `json:"at"`
	Simulated *Pipelined `json:"simulated"`
	Printed   Scored     `json:"printed"`
	Adjusted  Scored     `json:"adjusted"`
	Measured  *Scored    `json:"measured,omitempty"`
}

// PredictionError is how far predictions were off what was measured over the traversed grid,
// as parts of the measured values.
type PredictionError struct {
	Method      Method  `json:"method"`
	MeanStep    float64 `json:"mean_step"`
	MedianStep  float64 `json:"median_step"` // beside a machine that is slow while one of the settings is tried
	WorstStep   float64 `json:"worst_step"`
	MeanMemory  float64 `json:"mean_memory"` // of the fullest device
	WorstMemory float64 `json:"worst_memory"`
	Settings    int     `json:"settings"`
}

// DegreesResult is a search done.
type DegreesResult struct {
	Best     *Pipelined   `json:"best"` // the simulator's choice, as predicted
	Profiled *Observation `json:"profiled"`
	// Factors is how much longer each stage took where it ran than the layers' profile has it, and
	// Anchors the settings it ran at: of an Anchored request alone.
	Factors []StageFactors    `json:"factors,omitempty"`
	Anchors []Degrees         `json:"anchors,omitempty"`
	Choices []Choice          `json:"choices"`
	Grid    []Cell            `json:"grid"`
	Errors  []PredictionError `json:"errors,omitempty"` // with Rivals alone
	// Calibrated is the request's workload with its layers scaled by Factors: what predicted.
	Calibrated *Workload `json:"-"`
}

// TuneDegrees chooses M and N as AvgPipe does (section 5), and by simulation beside that: one
// setting is profiled for ProfileBatches, every setting of the grid is predicted, and the best
// one that keeps to the limit is the answer; of those that simulation cannot tell apart the one that
// holds least. Both predictors are fed from one profile, the layers' and the profiled setting's; see Anchored. With Rivals the paper's other methods choose
// too, and all predictions are held against what the traversal measured.
func TuneDegrees(ctx context.Context, r DegreesRequest) (*DegreesResult, error) {
	grid, err := Grid(r.Workload.Batch, r.Sizes, r.Pipelines)
	if err != nil {
		return nil, err
	}
	if r.Progress == nil {
		r.Progress = func(int, int, string) {}
	}
	t := &degreesTuning{DegreesRequest: r, out: &DegreesResult{}, of: len(grid) + 1}
	if r.Anchored {
		t.of += 2 // where one of the ends is left out, the last steps are skipped
	}
	if r.Rivals {
		t.of += len(grid)
	}
	for _, at := range grid {
		t.out.Grid = append(t.out.Grid, Cell{At: at})
	}
	if err := t.room(); err != nil {
		return nil, err
	}
	if err := t.profile(ctx); err != nil {
		return nil, err
	}
	if err := t.predict(ctx); err != nil {
		return nil, err
	}
	if err := t.choose(); err != nil {
		return nil, err
	}
	if r.Rivals {
		if err := t.traverse(ctx); err != nil {
			return nil, err
		}
		if t.Anchored {
			if err := t.again(ctx); err != nil {
				return nil, err
			}
		}
	}
	return t.out, nil
}

// degreesTuning is a search under way.
type degreesTuning struct {
	DegreesRequest
	out        *DegreesResult
	done, of   int
	simulatedS float64 // what predicting the grid by simulation took, and
	equationsS float64 // by equations
	profiledS  float64 // what running the settings of the profile took
}

func (t *degreesTuning) told(what string) {
	t.done++
	t.Progress(t.done, t.of, what)
}

// room refuses a limit that no setting keeps to before anything is run.
func (t *degreesTuning) room() error {
	var all []Scored
	for _, c := range t.out.Grid {
		p, err := t.Workload.simulate(c.At, 0)
		if err != nil {
			return err
		}
		if p.fits(t.Workload.LimitBytes) {
			return nil
		}
		all = append(all, p.Scored)
	}
	return smallest(all, t.Workload.LimitBytes)
}

// profile runs one setting, or with Anchored three, and scales the layers' profile to them.
func (t *degreesTuning) profile(ctx context.Context) error {
	at := t.ProfileAt
	if at == (Degrees{}) {
		var err error
		if at, err = t.profileAt(); err != nil {
			return err
		}
	}
	batches := ProfileBatches
	if t.Anchored {
		batches = anchoredBatches
	}
	first, err := t.try(ctx, at, Iterations(at, batches))
	if err != nil {
		return err
	}
	t.out.Calibrated = t.Workload
	observed := first
	if t.Anchored {
		if observed, err = t.anchor(ctx, first); err != nil {
			return err
		}
	}
	o := Observing{At: observed.setting.At, Skip: 1}
	if err := t.out.Calibrated.known(observed.setting, &o); err != nil {
		return err
	}
	t.out.Profiled, err = Observe(observed.timeline, o)
	return err
}

// anchor runs the ends of the grid too and scales the layers' profile. The equations are to be asked from the anchor
// of one pipeline with most micro-batches: see profileAt.
func (t *degreesTuning) anchor(ctx context.Context, first anchor) (observed anchor, err error) {
	anchors := []anchor{first}
	observed = first
	for _, end := range t.ends(first.setting.At) {
		iterations := anchorIterations
		if end.MicroBatches < fewMicros {
			iterations++
		}
		one, err := t.try(ctx, end, iterations)
		if err != nil {
			return observed, err
		}
		anchors = append(anchors, one)
		if end.Pipelines == 1 && end.MicroBatches > observed.setting.At.MicroBatches {
			observed = one
		}
	}
	for _, a := range anchors {
		t.out.Anchors = append(t.out.Anchors, a.setting.At)
	}
	t.out.Calibrated, t.out.Factors, err = t.Workload.calibrated(anchors)
	return observed, err
}

// try runs a setting for some iterations, recording them.
func (t *degreesTuning) try(ctx context.Context, at Degrees, iterations int) (anchor, error) {
	p, err := t.Workload.Predict(ctx, at)
	if err != nil {
		return anchor{}, err
	}
	trial, err := t.Machine(ctx, p, iterations, true)
	if err != nil {
		return anchor{}, fmt.Errorf("tune: profiling %s: %w", at, err)
	}
	t.profiledS += trial.TookS
	t.told("profiled " + at.String())
	return anchor{p, trial.Timeline}, nil
}

// ends are the settings of the fewest and of the most micro-batches that there are beside the
// profiled one. Of the fewest two pipelines run, if they fit: they show what it takes
// to be one of several, and keep the devices as busy as they will be.
func (t *degreesTuning) ends(profiled Degrees) []Degrees {
	grid := t.out.Grid
	var ends []Degrees
	for _, m := range []int{grid[0].At.MicroBatches, grid[len(grid)-1].At.MicroBatches} {
		if m == profiled.MicroBatches || slices.ContainsFunc(ends, func(e Degrees) bool { return e.MicroBatches == m }) {
			continue
		}
		most := 1
		if len(ends) == 0 {
			most = min(2, t.Pipelines)
		}
		for n := most; n > 0; n-- {
			at := Degrees{m, n}
			if p, err := t.Workload.simulate(at, 0); err == nil && p.fits(t.Workload.LimitBytes) {
				ends = append(ends, at)
				break
			}
		}
	}
	return ends
}

// predict predicts every setting of the grid, by simulation and by the equations.
func (t *degreesTuning) predict(ctx context.Context) error {
	began := time.Now()
	failed := make([]error, len(t.out.Grid))
	slots, wait := make(chan struct{}, runtime.GOMAXPROCS(0)), sync.WaitGroup{}
	for i := range t.out.Grid {
		slots <- struct{}{}
		wait.Go(func() {
			c := &t.out.Grid[i]
			c.Simulated, failed[i] = t.out.Calibrated.Predict(ctx, c.At)
			<-slots
		})
	}
	wait.Wait()
	for _, err := range failed {
		if err != nil {
			return err
		}
	}
	for _, c := range t.out.Grid {
		t.told("predicted " + c.At.String())
	}
	t.simulatedS = time.Since(began).Seconds()
	began = time.Now()
	for i := range t.out.Grid {
		c := &t.out.Grid[i]
		var err error
		if c.Printed, err = t.equations(c.At, Printed); err == nil {
			c.Adjusted, err = t.equations(c.At, Adjusted)
		}
		if err != nil {
			return err
		}
	}
	t.equationsS = time.Since(began).Seconds()
	return nil
}

// profileAt is what an anchored profile has between its ends: one pipeline and the size of
// micro-batches in the middle of all, the smaller of two, or the next one below that fits. Of others it
// is one pipeline and the largest number of micro-batches but one: "a rather large
// M and a small N so that GPUs are not fully utilized" (section 5.2.1). Equation 2 holds for
// larger micro-batches than the profiled ones, and takes smaller ones to be slower than they
// are; but the smallest of all are the slowest to profile. Where devices are full even so,
// it is the largest number of all.
func (t *degreesTuning) profileAt() (Degrees, error) {
	var micros []int // rising
	for _, c := range t.out.Grid {
		if n := len(micros); n == 0 || micros[n-1] != c.At.MicroBatches {
			micros = append(micros, c.At.MicroBatches)
		}
	}
	most := Degrees{micros[len(micros)-1], 1}
	if len(micros) < 2 {
		return most, nil
	}
	if t.Anchored {
		at := Degrees{micros[len(micros)/2], 1}
		for _, m := range micros[len(micros)/2:] {
			if p, err := t.Workload.simulate(Degrees{m, 1}, 0); err == nil && p.fits(t.Workload.LimitBytes) {
				return p.At, nil
			}
		}
		return at, nil
	}
	at := Degrees{micros[len(micros)-2], 1}
	var o Observing
	if err := t.Workload.known(&Pipelined{Scored: Scored{At: at}, Plan: t.Workload.plan(at, 0)}, &o); err != nil {
		return at, err
	}
	const full = 0.99
	for i := range t.Workload.Base.Stages {
		if o.Reached(i, "F") < full || o.Reached(i, "B") < full {
			return at, nil
		}
	}
	return most, nil
}

func (t *degreesTuning) equations(at Degrees, form Form) (Scored, error) {
	p, err := t.out.Profiled.Predict(at, form)
	if err != nil {
		return Scored{}, err
	}
	s := Scored{At: at, StepS: p.StepS}
	for _, d := range p.Devices {
		s.MemoryBytes = append(s.MemoryBytes, d.MemoryBytes)
	}
	return s, nil
}

// known fills in what the layers' profile knows of a setting: the part of its peak rate that
// each stage's device computes at, one set of parameters of each stage, and what its update
// takes for a moment.
func (w *Workload) known(p *Pipelined, o *Observing) error {
	costs, err := sim.CostsOf(w.Profile, w.Cluster, p.Plan)
	if err != nil {
		return fmt.Errorf("tune: %s: %w", p.At, err)
	}
	parts := make([][2]float64, len(p.Plan.Stages))
	for i, st := range p.Plan.Stages {
		forward, backward, err := w.Profile.Reached(w.Cluster.Devices[st.Devices[0]], st.FirstLayer, st.LastLayer, p.Plan.MicroBatch)
		if err != nil {
			return fmt.Errorf("tune: %w", err)
		}
		parts[i] = [2]float64{forward, backward}
		o.ReferenceBytes = append(o.ReferenceBytes, costs.Stages[i][0].ParameterBytes)
		o.UpdateBytes = append(o.UpdateBytes, costs.Stages[i][0].UpdatePeak)
	}
	o.Reached = func(stage int, kind string) float64 {
		switch {
		case stage >= len(parts):
			return 1
		case kind == "F":
			return parts[stage][0]
		case kind == "U":
			return 1 // an update does not depend on how its batch was cut
		}
		return parts[stage][1]
	}
	return nil
}

// choose has the three predictors choose.
func (t *degreesTuning) choose() error {
	scores := map[Method][]Scored{}
	for _, c := range t.out.Grid {
		scores[BySimulator] = append(scores[BySimulator], c.Simulated.Scored)
		scores[ByPrinted] = append(scores[ByPrinted], c.Printed)
		scores[ByAdjusted] = append(scores[ByAdjusted], c.Adjusted)
	}
	for _, m := range []Method{BySimulator, ByPrinted, ByAdjusted} {
		choose := fastest
		c := Choice{Method: m, TuningS: t.ProfileS + t.profiledS, PredictionS: t.equationsS, Tried: max(1, len(t.out.Anchors))}
		if m == BySimulator {
			choose, c.PredictionS = frugal, t.simulatedS
			if !t.Anchored { // it predicts from the layers' profile alone
				c.TuningS, c.Tried = t.ProfileS, 0
			}
		}
		best, err := choose(scores[m], t.Workload.LimitBytes)
		if err != nil && m == BySimulator {
			return err
		}
		t.add(c, best, err)
	}
	for _, c := range t.out.Grid {
		if c.At == t.out.Choices[0].At {
			t.out.Best = c.Simulated
		}
	}
	return nil
}

// add files a choice or why there is none.
func (t *degreesTuning) add(c Choice, chosen Scored, err error) {
	if err != nil {
		c.Refused = err.Error()
	} else {
		c.At, c.Predicted = chosen.At, chosen
	}
	t.out.Choices = append(t.out.Choices, c)
}

// traverse tries every setting, follows the guidelines and holds the predictions against what
// was measured.
func (t *degreesTuning) traverse(ctx context.Context) error {
	all := make([]Scored, len(t.out.Grid))
	spent := 0.0
	for i := range t.out.Grid {
		c := &t.out.Grid[i]
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		trial, err := t.Machine(ctx, c.Simulated, Iterations(c.At, TraversalBatches), false)
		if err != nil {
			return fmt.Errorf("tune: trying %s: %w", c.At, err)
		}
		c.Measured, all[i] = &trial.Scored, trial.Scored
		spent += trial.TookS
		t.told("tried " + c.At.String())
	}
	for _, by := range []struct {
		method Method
		choose func([]Scored, int64) (Scored, error)
		choice Choice
	}{
		{ByTraversal, fastest, Choice{TuningS: spent, Tried: len(all)}},
		{ByMaxNum, MaxNum, Choice{}},
		{ByMaxSize, MaxSize, Choice{}},
	} {
		chosen, err := by.choose(all, t.Workload.LimitBytes)
		by.choice.Method = by.method
		var over *DegreesError
		if err != nil && !errors.As(err, &over) {
			return err
		}
		t.add(by.choice, chosen, err)
	}
	for i := range t.out.Choices {
		for _, c := range t.out.Grid {
			if t.out.Choices[i].Refused == "" && c.At == t.out.Choices[i].At {
				t.out.Choices[i].Measured = c.Measured
			}
		}
	}
	t.out.Errors = errorsOf(t.out.Grid)
	return nil
}

// rounds is how often every choice is run again, in turn.
const rounds = 5

// again runs what was chosen once more, the settings in turn in several rounds, and measures the choices by
// the median. A traversal's own choice is the one whose few batches happened to be fastest, on a machine whose speed
// moves by more than settings differ.
func (t *degreesTuning) again(ctx context.Context) error {
	tried := map[Degrees][]*Trial{}
	var order []*Pipelined
	for _, c := range t.out.Grid {
		if slices.ContainsFunc(t.out.Choices, func(o Choice) bool { return o.Refused == "" && o.At == c.At }) {
			order = append(order, c.Simulated)
		}
	}
	for round := range rounds {
		for _, p := range order {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			trial, err := t.Machine(ctx, p, Iterations(p.At, TraversalBatches), false)
			if err != nil {
				return fmt.Errorf("tune: %s again: %w", p.At, err)
			}
			tried[p.At] = append(tried[p.At], trial)
		}
		t.Progress(t.of, t.of, fmt.Sprintf("the choices again, round %d of %d", round+1, rounds))
	}
	for i := range t.out.Choices {
		c := &t.out.Choices[i]
		if trials := tried[c.At]; c.Refused == "" && len(trials) > 0 {
			slices.SortFunc(trials, func(a, b *Trial) int { return cmp.Compare(a.StepS, b.StepS) })
			c.Measured = &trials[rounds/2].Scored
		}
	}
	return nil
}

// errorsOf compares each predictor with what was measured, over the grid.
func errorsOf(grid []Cell) []PredictionError {
	var out []PredictionError
	for _, by := range []struct {
		method Method
		score  func(Cell) Scored
	}{
		{BySimulator, func(c Cell) Scored { return c.Simulated.Scored }},
		{ByPrinted, func(c Cell) Scored { return c.Printed }},
		{ByAdjusted, func(c Cell) Scored { return c.Adjusted }},
	} {
		e := PredictionError{Method: by.method}
		var steps []float64
		for _, c := range grid {
			if c.Measured == nil {
				continue
			}
			step := math.Abs(by.score(c).StepS/c.Measured.StepS - 1)
			memory := math.Abs(float64(by.score(c).Peak())/float64(max(c.Measured.Peak(), 1)) - 1)
			e.Settings++
			steps = append(steps, step)
			e.MeanStep += step
			e.MeanMemory += memory
			e.WorstStep, e.WorstMemory = max(e.WorstStep, step), max(e.WorstMemory, memory)
		}
		if e.Settings > 0 {
			e.MeanStep /= float64(e.Settings)
			slices.Sort(steps)
			e.MedianStep = middle(steps)
			e.MeanMemory /= float64(e.Settings)
		}
		out = append(out, e)
	}
	return out
}
