package avgpipe

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace-ml/millrace/internal/crash"
	"github.com/millrace-ml/millrace/internal/progress"
)

// Batches that AvgPipe spends on a setting: twenty on the one it profiles (section 5.2.1), ten
// on each that the traversal tries (section 5.1).
const (
	ProfileBatches   = 20
	TraversalBatches = 10
)

// MostSettings is how many settings there are to profile.
const MostSettings = 4

// DegreesRequest is a search for AvgPipe's degrees.
type Request struct {
	Workload  *Workload
	Sizes     []int // of micro-batches, in samples
	Pipelines int   // at most
	Machine   Machine
	// ProfileAt is the setting to profile; none chooses it: one pipeline and rather many
	// micro-batches, so that devices are not full (section 5.2.1).
	ProfileAt Degrees
	// ProfileS is what measuring the layers took.
	ProfileS float64
	// Anchored scales the layers' profile to what stages took in the profiled settings: what a machine asks for whose
	// layers were measured briefly, if at all. The simulator as the machine has nothing to add to a profile.
	Anchored bool
	// Settings is how many settings an Anchored request profiles at most, 1 to MostSettings. 1, or 0, is the paper's
	// one setting of twenty batches (section 5.2.1); more spend them on the fewest micro-batches and the most (of one
	// pipeline and of two) besides, in this order.
	Settings int
	// Rivals traverses the grid, and follows both guidelines.
	Rivals bool
	// Rounds is how often Rivals traverses the grid, once for 0: measured is then the median of each setting's
	// trials, and how far those are apart is reported beside the predictions' errors.
	Rounds int
	// Progress is told of what is predicted and tried, and what is left; nil is nobody.
	Progress *progress.Work
}

// Method is a way to choose the degrees.
type Method string

// The methods, in the order in which they are reported.
const (
	// millrace's: every setting simulated from the layers' profile, scaled to the profiled setting
	BySimulator Method = "simulator"
	ByPrinted   Method = "equations, as printed" // AvgPipe's: equations 1 to 8 on the profiled setting
	ByAdjusted  Method = "equations, adjusted"   // the same, see Adjusted
	ByTraversal Method = "traversal"             // every setting tried
	ByMaxNum    Method = "max-num"               // most micro-batches, then most pipelines
	ByMaxSize   Method = "max-size"              // largest micro-batches, then most pipelines
)

// ByTrial is no way to choose: among the errors, it is what one trial of a setting says of its median trial.
const ByTrial Method = "one trial"

// Choice is a method's choice, and the cost of making it.
type Choice struct {
	Method Method  `json:"method"`
	At     Degrees `json:"at"`
	// TuningS is the time spent on the machine for the choice, seconds: the layers' profile and the
	// profiled setting, or the trials. PredictionS is what predicting took by the clock.
	TuningS     float64 `json:"tuning_s"`
	PredictionS float64 `json:"prediction_s"`
	Tried       int     `json:"tried"` // settings run
	Predicted   Scored  `json:"predicted"`
	// Measured is the setting's own trial, where it was run; of an Anchored request, the median of
	// rounds with those of the other choices, or over the whole grid.
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
	// StrainedS is a batch of Simulated in a bad moment of the machine, of an Anchored request: see steadiest.
	StrainedS float64 `json:"strained_s,omitempty"`
	Printed   Scored  `json:"printed"`
	Adjusted  Scored  `json:"adjusted"`
	Measured  *Scored `json:"measured,omitempty"`
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

// Result is a search done.
type Result struct {
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

// Tune chooses M and N as AvgPipe does (section 5), and by simulation beside that: one setting is
// profiled for ProfileBatches, every setting of the grid is predicted, and the best one that keeps
// to the limit is the answer; of those that simulation cannot tell apart the one that holds least;
// of an Anchored request the steadiest. Both predictors are fed from one profile, the layers' and
// the profiled setting's; see Anchored. With Rivals the paper's other methods choose too, and all
// predictions are held against what the traversal measured.
func Tune(ctx context.Context, r Request) (*Result, error) {
	grid, err := Grid(r.Workload.Batch, r.Sizes, r.Pipelines)
	if err != nil {
		return nil, err
	}
	if r.Rounds < 0 {
		return nil, fmt.Errorf("tune: %d rounds over the grid; it is traversed once at least", r.Rounds)
	}
	if r.Progress == nil {
		r.Progress = &progress.Work{}
	}
	t := &tuning{Request: r, out: &Result{}}
	for _, at := range grid {
		t.out.Grid = append(t.out.Grid, Cell{At: at})
	}
	r.Progress.Plan(time.Now(), "profile", progress.Piece{What: "profile", Cost: progress.Unknown})
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
	if r.Rivals && ctx.Err() == nil {
		if err := t.traverse(ctx); err != nil {
			return t.soFar(ctx), err
		}
		if t.Anchored && t.Rounds < 2 {
			if err := t.again(ctx); err != nil {
				return t.soFar(ctx), err
			}
		}
	}
	if ctx.Err() != nil {
		return t.out, context.Cause(ctx)
	}
	return t.out, nil
}

// soFar is the result so far if ctx has ended; nil where something else went wrong.
func (t *tuning) soFar(ctx context.Context) *Result {
	if ctx.Err() == nil {
		return nil
	}
	return t.out
}

// tuning is a search under way.
type tuning struct {
	Request
	out        *Result
	simulatedS float64 // what predicting the grid by simulation took, and
	equationsS float64 // by equations
	profiledS  float64 // what running the settings of the profile took
}

// A trial takes about this beside its batches, seconds. A prediction takes so long for each micro-batch of each
// pipeline, and as the machine a simulation.
const (
	trialS      = 0.02
	predictionS = 0.0006
	simulationS = 0.0003
)

// trials is the group of pieces of work that each run a setting.
const trials = "trials"

// Trying is a piece of work that runs a setting for some batches of about batchS seconds each.
func Trying(at Degrees, batches int, batchS float64) progress.Piece {
	return progress.Piece{What: "trying " + at.String(), Kind: "trial of " + at.String(), Group: trials,
		Cost: trialS + float64(Iterations(at, batches)*at.Pipelines)*batchS}
}

// trial is the piece of work that runs a setting of the grid, where it is predicted.
func (t *tuning) trial(c *Cell) progress.Piece {
	if !t.Anchored {
		return played("trying", "simulation", c.At, simulationS)
	}
	return Trying(c.At, TraversalBatches, c.Simulated.StepS)
}

// prediction is the piece of work that predicts a setting of the grid.
func (t *tuning) prediction(at Degrees) progress.Piece {
	return played("predicting", "prediction", at, predictionS)
}

// predictions is the piece of work that predicts all settings of the grid, several at once; done counts them.
func (t *tuning) predictions(done *atomic.Int64) progress.Piece {
	all := progress.Piece{What: "predicting " + strconv.Itoa(len(t.out.Grid)) + " settings", Kind: "predictions",
		Group: "predictions"}
	for i := range t.out.Grid {
		all.Cost += t.prediction(t.out.Grid[i].At).Cost
	}
	if done != nil {
		all.Far = func() float64 { return float64(done.Load()) / (1e9 * all.Cost) }
	}
	return all
}

// played is a piece of work that plays a setting, which takes so long for each micro-batch of each pipeline.
func played(what, kind string, at Degrees, eachS float64) progress.Piece {
	return progress.Piece{What: what + " " + at.String(), Kind: kind + " of " + at.String(), Group: kind,
		Cost: eachS * float64(at.MicroBatches*at.Pipelines)}
}

// inOrder is the settings of the grid in the order in which they are predicted and tried: what takes long comes first,
// so that it is known early how long all take.
func (t *tuning) inOrder(piece func(c *Cell) progress.Piece) []int {
	order := make([]int, len(t.out.Grid))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Compare(piece(&t.out.Grid[b]).Cost, piece(&t.out.Grid[a]).Cost)
	})
	return order
}

// traversal is the trials that Rivals makes.
func (t *tuning) traversal() []progress.Piece {
	var all []progress.Piece
	for i := range t.out.Grid {
		p := t.trial(&t.out.Grid[i])
		p.Times = max(t.Rounds, 1)
		all = append(all, p)
	}
	return all
}

// predict predicts every setting of the grid, by simulation and by the equations.
func (t *tuning) predict(ctx context.Context) error {
	began := time.Now()
	order := t.inOrder(func(c *Cell) progress.Piece { return t.prediction(c.At) })
	defer func() { t.Progress.End(time.Now()) }()
	strained := t.out.Calibrated.strained()
	failed := make([]error, len(t.out.Grid))
	slots, wait := make(chan struct{}, runtime.GOMAXPROCS(0)), sync.WaitGroup{}
	var done atomic.Int64 // in billionths of a cost
	t.Progress.Begin(time.Now(), t.predictions(&done))
	for _, i := range order {
		slots <- struct{}{}
		wait.Go(crash.Caught(func() {
			c := &t.out.Grid[i]
			defer func() { done.Add(int64(1e9 * t.prediction(c.At).Cost)) }()
			if failed[i] = context.Cause(ctx); failed[i] != nil {
				<-slots
				return
			}
			if c.Simulated, failed[i] = t.out.Calibrated.Predict(ctx, c.At); failed[i] == nil && t.Anchored {
				bad := &Pipelined{Scored: Scored{At: c.At}, Plan: c.Simulated.Plan}
				if bad, failed[i] = strained.score(bad); failed[i] == nil {
					c.StrainedS = bad.StepS
				}
			}
			<-slots
		}))
	}
	wait.Wait()
	if err := t.predicted(context.Cause(ctx), failed); err != nil {
		return err
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

func (t *tuning) equations(at Degrees, form Form) (Scored, error) {
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

// predicted keeps the settings that were predicted before it was stopped, and is what failed.
func (t *tuning) predicted(stopped error, failed []error) error {
	var done []Cell
	for i, err := range failed {
		switch {
		case err == nil:
			done = append(done, t.out.Grid[i])
		case stopped == nil:
			return err
		}
	}
	if t.out.Grid = done; len(done) == 0 {
		return stopped
	}
	return nil
}

// choose has the three predictors choose.
func (t *tuning) choose() error {
	scores := map[Method][]Scored{}
	for _, c := range t.out.Grid {
		scores[BySimulator] = append(scores[BySimulator], c.Simulated.Scored)
		scores[ByPrinted] = append(scores[ByPrinted], c.Printed)
		scores[ByAdjusted] = append(scores[ByAdjusted], c.Adjusted)
	}
	for _, m := range []Method{BySimulator, ByPrinted, ByAdjusted} {
		choose := fastest
		c := Choice{Method: m, TuningS: t.ProfileS + t.profiledS, PredictionS: t.equationsS,
			Tried: max(1, len(t.out.Anchors))}
		if m == BySimulator {
			choose, c.PredictionS = frugal, t.simulatedS
			if !t.Anchored { // it predicts from the layers' profile alone
				c.TuningS, c.Tried = t.ProfileS, 0
			}
		}
		best, err := choose(scores[m], t.Workload.LimitBytes)
		if m == BySimulator && t.Anchored {
			best, err = steadiest(t.out.Grid, t.Workload.LimitBytes)
		}
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
func (t *tuning) add(c Choice, chosen Scored, err error) {
	if err != nil {
		c.Refused = err.Error()
	} else {
		c.At, c.Predicted = chosen.At, chosen
	}
	t.out.Choices = append(t.out.Choices, c)
}
