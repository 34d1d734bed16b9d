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

// Baseline is one of the systems that AvgPipe is compared with (section 7.1), as simulated.
type Baseline struct {
	Name      string         `json:"name"`
	Plan      *plan.Plan     `json:"plan"`
	Predicted plan.Predicted `json:"predicted"`
	Fits      bool           `json:"fits"` // within the Workload's limit
}

// Utilisation is the part of the devices' time in which they compute.
func (b Baseline) Utilisation() float64 { return 1 - b.Predicted.Bubble }

// Baselines are data parallelism, GPipe, DAPPLE, PipeDream and PipeDream-2BW on the workload's
// devices: the pipelines over its stages, none recomputing, as in the paper. Those that cut a batch
// cut it into microBatches, which section 7.1 has as the number of GPUs; data
// parallelism accumulates over what is fastest. One that cannot be planned is left out.
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
			pl.Stages[i].Warmup = 0 // the family's own
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

// DataParallel is the fastest data parallelism over all devices, the largest micro-batches that fit before others;
// false where none can be planned.
func (w *Workload) DataParallel(ctx context.Context) (best Baseline, ok bool) {
	for _, size := range w.Profile.Sizes(w.Cluster.Devices[0]) {
		if ctx.Err() != nil || w.Batch%size != 0 || w.Batch/size < len(w.Cluster.Devices) {
			continue
		}
		pl, err := split.DataParallel(w.Profile, w.Cluster, size, w.Batch/size, len(w.Cluster.Devices))
		if err != nil {
			continue // a size that the profile does not have on every device
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

// Needs is a baseline's memory as a budget: that of its fullest device, or of all devices together.
func (b Baseline) Needs(together bool) Budget {
	if together {
		return Budget{TogetherBytes: Scored{MemoryBytes: b.Predicted.MemoryBytes}.Together()}
	}
	return Budget{EachBytes: slices.Max(b.Predicted.MemoryBytes)}
}

// EqualMemory is a baseline and AvgPipe held to its memory (section 7.1.1).
type EqualMemory struct {
	Baseline
	// AvgPipe is the best degrees that hold no more than the baseline; nil where none do, and then Smallest says what
	// the leanest need.
	AvgPipe       *Pipelined `json:"avgpipe,omitempty"`
	SmallestBytes int64      `json:"smallest_bytes,omitempty"`
}

// Speedup is how many times faster AvgPipe is on a batch; 0 where it does not fit.
func (e EqualMemory) Speedup() float64 {
	if e.AvgPipe == nil {
		return 0
	}
	return e.Predicted.StepS / e.AvgPipe.StepS
}

// AtEqualMemory holds AvgPipe to the memory of each baseline's fullest device in turn, and of the devices.
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

// Within is a baseline and the best of settings within a budget, and within what each device has; 0 is any amount.
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

// Schedules is a setting under 1F1B, under the depth that advance forward propagation settles
// at, and under AFAB (Fig. 17).
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
