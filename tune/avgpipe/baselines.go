package avgpipe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/plan/split"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/tune/predict"
	"github.com/millrace-ml/millrace/tune/roles"
)

// Baseline is the simulation of a system that AvgPipe is compared with (section 7.1).
type Baseline struct {
	Name      string         `json:"name"`
	Plan      *plan.Plan     `json:"plan"`
	Predicted plan.Predicted `json:"predicted"`
	Fits      bool           `json:"fits"` // within the Workload's limit
}

// Utilisation returns the fraction of the devices' time in which they compute.
func (b Baseline) Utilisation() float64 { return 1 - b.Predicted.Bubble }

// Baselines returns data parallelism, GPipe, DAPPLE, PipeDream and PipeDream-2BW on the workload's devices. The
// pipelines use the workload's stages, as in the paper. Baselines that divide a batch divide it into `microBatches`
// micro-batches (section 7.1: the number of GPUs). PipeDream-2BW uses at least as many micro-batches as stages. Data
// parallelism uses the number of micro-batches that DataParallel chooses. A baseline whose micro-batches do not divide
// the batch is left out.
func (w *Workload) Baselines(ctx context.Context, microBatches int) ([]Baseline, error) {
	if microBatches < 1 || w.Batch%microBatches != 0 {
		return nil, fmt.Errorf("tune: a batch of %d samples does not divide into %d micro-batches; give a divisor of it",
			w.Batch, microBatches)
	}
	var out []Baseline
	if dp, ok := w.DataParallel(ctx); ok {
		out = append(out, dp)
	}
	stages, planner := len(w.Base.Stages), roles.Partitioner().Name
	for _, system := range family.Systems() {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		micros := microBatches
		switch w := system.Weights; {
		case w.Accumulates():
			micros = max(microBatches, stages)
		case !w.Flushes():
			micros = 1
		}
		if w.Batch%micros != 0 {
			continue
		}
		pl := w.plan(Degrees{micros, 1}, 0)
		pl.Schedule, pl.Weights, pl.Planner, pl.PostValidate = system.Family, string(system.Weights), planner, false
		for i := range pl.Stages {
			pl.Stages[i].Warmup = 0 // 0 means the family's own warm-up
		}
		predicted, err := predict.Plan(w.Profile, w.Cluster, pl, w.Clip)
		if err != nil {
			return nil, fmt.Errorf("tune: %s: %w", system.Name, err)
		}
		out = append(out, w.baseline(system.Name, pl, predicted))
	}
	return out, nil
}

func (w *Workload) baseline(name string, pl *plan.Plan, predicted plan.Predicted) Baseline {
	return Baseline{Name: name, Plan: pl, Predicted: predicted, Fits: w.LimitBytes == 0 ||
		slices.Max(predicted.Needs()) <= w.LimitBytes}
}

// DataParallel returns the fastest data parallelism over all devices. A plan that fits is preferred to a faster plan
// that does not. ok is false if there is no plan.
func (w *Workload) DataParallel(ctx context.Context) (best Baseline, ok bool) {
	for _, size := range w.Profile.Sizes(w.Cluster.Devices[0]) {
		if ctx.Err() != nil || w.Batch%size != 0 || w.Batch/size < len(w.Cluster.Devices) {
			continue
		}
		pl, err := split.DataParallel(w.Profile, w.Cluster, size, w.Batch/size, len(w.Cluster.Devices))
		if err != nil {
			continue // the profile lacks this size on some device
		}
		predicted, err := predict.Plan(w.Profile, w.Cluster, pl, w.Clip)
		if err != nil {
			continue
		}
		b := w.baseline("data parallelism", pl, predicted)
		if !ok || b.Fits && !best.Fits || b.Fits == best.Fits && b.Predicted.StepS < best.Predicted.StepS {
			best, ok = b, true
		}
	}
	return best, ok
}

// Needs returns a baseline's memory as a budget: the memory of its fullest device or, with `together`, of all devices.
func (b Baseline) Needs(together bool) Budget {
	if together {
		return Budget{TogetherBytes: Scored{MemoryBytes: b.Predicted.MemoryBytes}.Together()}
	}
	return Budget{EachBytes: slices.Max(b.Predicted.MemoryBytes)}
}

// EqualMemory compares a baseline with AvgPipe within the baseline's memory (section 7.1.1).
type EqualMemory struct {
	Baseline
	// AvgPipe is the best setting that needs no more memory than the baseline. If no setting does, AvgPipe is nil, and
	// SmallestBytes is the least memory that a setting needs.
	AvgPipe       *Pipelined `json:"avgpipe,omitempty"`
	SmallestBytes int64      `json:"smallest_bytes,omitempty"`
}

// Speedup returns how many times faster AvgPipe trains a batch; 0 if AvgPipe does not fit.
func (e EqualMemory) Speedup() float64 {
	if e.AvgPipe == nil {
		return 0
	}
	return e.Predicted.StepS / e.AvgPipe.StepS
}

// AtEqualMemory compares each baseline with AvgPipe. On each device AvgPipe may use the memory of the baseline's
// fullest device, but no more than the workload's limit.
func (w *Workload) AtEqualMemory(ctx context.Context, grid []Degrees, baselines []Baseline) ([]EqualMemory, error) {
	settings, err := w.Settings(ctx, grid)
	if err != nil {
		return nil, err
	}
	var out []EqualMemory
	for _, b := range baselines {
		row, err := settings.Within(b, b.Needs(false), w.LimitBytes)
		if err != nil {
			return nil, err
		}
		out = append(out, row)
	}
	return out, nil
}

// Within compares a baseline with the best setting within a budget, on devices with eachBytes of memory. If eachBytes
// is 0, only the budget limits the memory.
func (s Settings) Within(b Baseline, budget Budget, eachBytes int64) (EqualMemory, error) {
	budget.EachBytes = min(cmp.Or(budget.EachBytes, eachBytes), cmp.Or(eachBytes, budget.EachBytes))
	row := EqualMemory{Baseline: b}
	var over *LimitError
	held, err := s.Best(budget)
	switch {
	case errors.As(err, &over):
		row.SmallestBytes = over.SmallestBytes
	case err != nil:
		return row, err
	}
	row.AvgPipe = held
	return row, nil
}

// Schedules predicts a setting three times: under 1F1B, at the depth that advance forward propagation chooses, and
// under AFAB (Fig. 17).
func (w *Workload) Schedules(ctx context.Context, at Degrees) (oneF1B, advance, all *Pipelined, err error) {
	if advance, err = w.Predict(ctx, at); err != nil {
		return nil, nil, nil, err
	}
	if oneF1B, err = w.simulate(at, 0); err != nil {
		return nil, nil, nil, err
	}
	all, err = w.simulate(at, afab)
	return oneF1B, advance, all, err
}
