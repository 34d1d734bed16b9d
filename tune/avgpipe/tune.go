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

// The numbers of batches that AvgPipe spends: twenty on the setting that it profiles (section 5.2.1), ten on each
// setting that the traversal tries (section 5.1).
const (
	ProfileBatches   = 20
	TraversalBatches = 10
)

// MostSettings is the largest number of settings that a profile uses.
const MostSettings = 4

// Request describes a search for AvgPipe's degrees.
type Request struct {
	Workload  *Workload
	Sizes     []int // micro-batch sizes to try, in samples
	Pipelines int   // largest number of pipelines to try
	Machine   Machine
	// ProfileAt is the setting to profile. Empty means one pipeline and rather many micro-batches, so that devices are
	// not full (section 5.2.1).
	ProfileAt Degrees
	// ProfileS is the time spent on measuring the layers, in seconds.
	ProfileS float64
	// Anchored scales the layers' profile to the stages' times in the profiled settings. A machine needs this if its
	// layers were measured briefly or not at all. With the simulator as the machine it changes nothing.
	Anchored bool
	// Settings is the largest number of settings that an Anchored request profiles, 1 to MostSettings; 0 means 1. A
	// single setting runs the paper's twenty batches (section 5.2.1), and several settings share these. The second
	// setting has the fewest micro-batches. The third and the fourth have the most, with one pipeline and with two.
	Settings int
	// Rivals makes Tune also run the methods that the paper compares with: ByTraversal tries every setting, and
	// ByMaxNum and ByMaxSize follow guidelines.
	Rivals bool
	// Rounds is how often Rivals traverses the grid; 0 means once. The measured time is the median of a setting's
	// trials. Their scatter is reported with the predictions' errors.
	Rounds int
	// Progress receives what is predicted and tried, and what is left; it may be nil.
	Progress *progress.Work
}

// Method is a way to choose the degrees.
type Method string

// The methods: millrace's own, AvgPipe's equations in two forms, and the three that the paper compares them with.
const (
	// millrace's: every setting simulated from the layers' profile, which an Anchored request scales to the profiled
	// settings
	BySimulator Method = "simulator"
	ByPrinted   Method = "equations, as printed" // AvgPipe's: equations 1 to 8 on the profiled setting
	ByAdjusted  Method = "equations, adjusted"   // equations 1 to 8 as in Adjusted
	ByTraversal Method = "traversal"             // every setting is tried
	ByMaxNum    Method = "max-num"               // most micro-batches, then most pipelines
	ByMaxSize   Method = "max-size"              // largest micro-batches, then most pipelines
)

// ByTrial is not a way to choose. In Result.Errors, it names the error of one trial against the setting's median trial.
const ByTrial Method = "one trial"

// Cell is one setting of the grid.
type Cell struct {
	At        Degrees    `json:"at"`
	Simulated *Pipelined `json:"simulated"`
	// StrainedS is the time of a batch of Simulated in a bad moment of the machine; only for an Anchored request. See
	// steadiest.
	StrainedS float64 `json:"strained_s,omitempty"`
	Printed   Scored  `json:"printed"`
	Adjusted  Scored  `json:"adjusted"`
	Measured  *Scored `json:"measured,omitempty"`
}

// PredictionError is the relative error of predictions over the traversed grid.
type PredictionError struct {
	Method      Method  `json:"method"`
	MeanStep    float64 `json:"mean_step"`
	MedianStep  float64 `json:"median_step"` // hardly changes if the machine is slow during one setting's trial
	WorstStep   float64 `json:"worst_step"`
	MeanMemory  float64 `json:"mean_memory"` // mean error for the memory of the fullest device
	WorstMemory float64 `json:"worst_memory"`
	Settings    int     `json:"settings"`
}

// Result holds what Tune has found.
type Result struct {
	Best     *Pipelined   `json:"best"` // the simulator's choice, with its prediction
	Profiled *Observation `json:"profiled"`
	// Factors holds the ratios of each stage's measured times to the layers' profile, and Anchors the settings that were
	// measured. Both are set only for an Anchored request.
	Factors []StageFactors    `json:"factors,omitempty"`
	Anchors []Degrees         `json:"anchors,omitempty"`
	Choices []Choice          `json:"choices"`
	Grid    []Cell            `json:"grid"`
	Errors  []PredictionError `json:"errors,omitempty"` // only with Rivals
	// Calibrated is the workload that the predictions use: the request's, with its layers scaled by Factors.
	Calibrated *Workload `json:"-"`
}

// Tune chooses M and N as AvgPipe does (section 5), and also by simulation. It profiles one setting for ProfileBatches,
// or several settings (Request.Settings), and predicts every setting of the grid. The answer is the best setting within
// the limit. Among settings that simulation cannot rank, it is the one with the least memory, or for an Anchored
// request the steadiest. Simulation and equations use the layers' profile. The equations also use the profiled
// setting's Timeline; the simulator does so only for an Anchored request. With Rivals the paper's other methods choose
// too, and all predictions are compared with the traversal's measurements.
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

// soFar returns the result so far if ctx has ended, and nil after any other error.
func (t *tuning) soFar(ctx context.Context) *Result {
	if ctx.Err() == nil {
		return nil
	}
	return t.out
}

type tuning struct {
	Request
	out        *Result
	simulatedS float64 // seconds to predict the grid by simulation
	equationsS float64 // seconds to predict the grid by equations
	profiledS  float64 // seconds to run the settings of the profile
}

// trialS is the overhead of a trial, in seconds. predictionS and simulationS are in seconds for each micro-batch of
// each pipeline: the time of a prediction, and the time of a simulation that replaces a machine.
const (
	trialS      = 0.02
	predictionS = 0.0006
	simulationS = 0.0003
)

// trials names the group of all pieces of work that run a setting.
const trials = "trials"

// Trying returns the piece of work that runs a setting for some batches of about batchS seconds each.
func Trying(at Degrees, batches int, batchS float64) progress.Piece {
	return progress.Piece{What: "trying " + at.String(), Kind: "trial of " + at.String(), Group: trials,
		Cost: trialS + float64(Iterations(at, batches)*at.Pipelines)*batchS}
}

// trial returns the piece of work that runs a predicted setting of the grid.
func (t *tuning) trial(c *Cell) progress.Piece {
	if !t.Anchored {
		return played("trying", "simulation", c.At, simulationS)
	}
	return Trying(c.At, TraversalBatches, c.Simulated.StepS)
}

// prediction returns the piece of work that predicts a setting of the grid.
func (t *tuning) prediction(at Degrees) progress.Piece {
	return played("predicting", "prediction", at, predictionS)
}

// predictions returns the piece of work that predicts all settings of the grid, several at once. `done` counts its
// progress.
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

// played returns a piece of work that simulates a setting. eachS is the simulation's time for each micro-batch of each
// pipeline, in seconds.
func played(what, kind string, at Degrees, eachS float64) progress.Piece {
	return progress.Piece{What: what + " " + at.String(), Kind: kind + " of " + at.String(), Group: kind,
		Cost: eachS * float64(at.MicroBatches*at.Pipelines)}
}

// inOrder returns the order in which settings of the grid are predicted and tried. The slowest come first, so that
// the total time is known early.
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

// traversal returns the trials that Rivals makes.
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
	var done atomic.Int64 // cost of the settings predicted so far, in units of 1e-9
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

// predicted keeps the settings that were predicted. If the prediction did not end early, a setting that failed is an
// error. It is also an error if none was predicted.
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

// choose makes the three predictors choose.
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
			if !t.Anchored { // the simulator then predicts only from the layers' profile
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
