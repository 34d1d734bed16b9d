package avgpipe

import (
	"context"
	"fmt"
	"slices"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/schedule/programs"
	"github.com/millrace-ml/millrace/sim"
	"github.com/millrace-ml/millrace/trace"
	"github.com/millrace-ml/millrace/tune/predict"
	"github.com/millrace-ml/millrace/tune/roles"
)

// Workload is a partitioned model whose degrees are to be tuned. AvgPipe takes the partition as given (section 6).
type Workload struct {
	Profile *profile.Profile
	// Beside is the profile for several pipelines that share the devices; nil means Profile.
	Beside  *profile.Profile
	Cluster *cluster.Cluster
	// Base has the stages, one device for each, and whether they recompute. Its micro-batches and depths are ignored.
	Base  *plan.Plan
	Batch int  // samples of one pipeline's batch
	Clip  bool // the update needs the global gradient norm
	// LimitBytes is the memory of each device; 0 means no limit.
	LimitBytes int64

	// SideBySide lets devices run kernels of several pipelines at once, if one pipeline does not fill them. Equation 2
	// assumes that they do, and GPUs do so if processes share them. If SideBySide is false, a device runs one
	// computation at a time, as in package run.
	SideBySide bool

	means bool // the mean of a stage's time follows from the profile's times and Spreads; see aroundMeans
}

// Pipelined is a setting that is ready to run: a plan for one pipeline with its depths of advance forward
// propagation, and the number of pipelines that share the devices.
type Pipelined struct {
	Scored
	Plan *plan.Plan `json:"plan"`
	// Bubble is the fraction of the devices' time in which they do not compute, 0 to 1.
	Bubble float64 `json:"bubble"`
	// IdleS is how long each device does not compute during a batch, in seconds.
	IdleS []float64 `json:"idle_s"`

	busyS float64 // busiest worker's time for a batch; no depth makes the step shorter than that
}

// afab is the advance that runs all forwards first, on every stage.
const afab = -1

// plan returns the base plan with the given degrees. A stage's warm-up has up to `advance` forwards more than in 1F1B;
// how many depends on the stage (family.Graded). With afab, every stage runs all forwards first.
func (w *Workload) plan(at Degrees, advance int) *plan.Plan {
	pl := *w.Base
	pl.Stages = slices.Clone(w.Base.Stages)
	pl.MicroBatches, pl.MicroBatch = at.MicroBatches, w.Batch/at.MicroBatches
	order, weights := roles.Pipelines(), schedule.Sync
	pl.Elastic, pl.Predicted, pl.LowerBound, pl.Why = nil, nil, nil, nil
	if at.Pipelines > 1 {
		order, weights = roles.Averaging()
		pl.Elastic = plan.NewElastic(at.Pipelines)
	}
	pl.Schedule, pl.Weights = order.Name, string(weights)
	pl.PostValidate = pl.PostValidate && weights.Synchronous()
	depths := slices.Repeat([]int{at.MicroBatches}, len(pl.Stages))
	if advance != afab {
		var err error
		if depths, err = family.AdvanceDepths(len(pl.Stages), at.MicroBatches, advance, family.Graded); err != nil {
			panic("tune: depths of checked degrees: " + err.Error())
		}
	}
	for i := range pl.Stages {
		pl.Stages[i].Warmup = depths[i]
	}
	return &pl
}

// Program returns the lowered Program of some iterations of a setting.
func (w *Workload) Program(p *Pipelined, iterations int) (*schedule.Program, error) {
	program, err := programs.Build(p.Plan, w.Profile.TiedLayers(), w.Clip, iterations)
	if err != nil {
		return nil, fmt.Errorf("tune: %s: %w", p.At, err)
	}
	return program, nil
}

// profileOf returns the profile for a number of pipelines.
func (w *Workload) profileOf(pipelines int) *profile.Profile {
	if pipelines > 1 && w.Beside != nil {
		return w.Beside
	}
	return w.Profile
}

// run simulates some iterations of a setting; 0 means as many as a prediction needs. A step of the Summary is an
// iteration, in which every pipeline does a batch. So the time of a batch is a step's time divided by the number of
// pipelines.
func (w *Workload) run(p *Pipelined, iterations int, record bool) (*trace.Timeline, sim.Summary, error) {
	costs, err := sim.CostsOf(w.profileOf(p.At.Pipelines), w.Cluster, p.Plan)
	if err != nil {
		return nil, sim.Summary{}, fmt.Errorf("tune: %s: %w", p.At, err)
	}
	if iterations == 0 {
		iterations = predict.Steps(costs)
		if p.At.Pipelines > 1 {
			iterations = max(iterations, predict.Settling)
		}
		if w.means {
			iterations = max(iterations, (variedMicros+p.At.MicroBatches-1)/p.At.MicroBatches)
		}
	}
	if w.means {
		aroundMeans(costs, p.At, iterations)
	}
	program, err := w.Program(p, iterations)
	if err != nil {
		return nil, sim.Summary{}, err
	}
	o := sim.Options{Vary: costs.Noise.Vary(), Record: record}
	return sim.Run(program, costs, o)
}

// variedMicros is the least number of micro-batches in a simulation of varying instructions. With fewer, the median
// over its steps would depend on few random factors.
const variedMicros = 48

// aroundMeans scales the varying forwards and backwards of each stage. In this simulation their mean is then the one
// they would have over infinitely many iterations. Otherwise a setting with few micro-batches would be predicted to be
// slow if its forwards are slow by chance. The waits that variation causes remain.
func aroundMeans(costs sim.Costs, at Degrees, iterations int) {
	for s, replicas := range costs.Stages {
		for r := range replicas {
			c := &replicas[r]
			spread := costs.Noise.SpreadOf(s, r)
			if spread == 0 {
				continue
			}
			for kind, takes := range map[schedule.Kind]*float64{schedule.F: &c.ForwardS, schedule.B: &c.BackwardS} {
				sum, micros := 0.0, at.MicroBatches*iterations
				for pipeline := range at.Pipelines {
					for m := range micros {
						sum += sim.Variation(schedule.Instruction{Kind: kind, Pipeline: int16(pipeline), Stage: int32(s),
							Micro: int32(m)}, spread)
					}
				}
				*takes *= sim.MeanVariation(spread) * float64(at.Pipelines*micros) / sum
			}
		}
	}
}

// simulate scores a setting at a depth.
func (w *Workload) simulate(at Degrees, advance int) (*Pipelined, error) {
	return w.score(&Pipelined{Scored: Scored{At: at}, Plan: w.plan(at, advance)})
}

// score simulates a setting that is ready to run.
func (w *Workload) score(p *Pipelined) (*Pipelined, error) {
	_, sum, err := w.run(p, 0, false)
	if err != nil {
		return nil, err
	}
	if w.SideBySide && p.At.Pipelines > 1 {
		beside, err := w.sideBySide(p)
		if err != nil {
			return nil, err
		}
		if beside.StepS < sum.StepS {
			sum.StepS, sum.BusyS, sum.Bubble = beside.StepS, beside.BusyS, beside.Bubble
		}
	}
	own := w.profileOf(p.At.Pipelines)
	costs, err := sim.CostsOf(own, w.Cluster, p.Plan)
	if err != nil {
		return nil, err
	}
	held, err := predict.PeaksOf(own, w.Cluster, p.Plan, w.Clip, costs, sum.PeakBytes)
	if err != nil {
		return nil, err
	}
	p.StepS, p.MemoryBytes, p.busyS = sum.StepS/float64(p.At.Pipelines), held.Likely,
		slices.Max(sum.BusyS)/float64(p.At.Pipelines)
	p.Bubble, p.IdleS = sum.Bubble, nil
	for _, busy := range sum.BusyS {
		p.IdleS = append(p.IdleS, max(0, sum.StepS-busy)/float64(p.At.Pipelines))
	}
	if !(p.StepS > 0) {
		return nil, fmt.Errorf("tune: %s: a simulated batch takes %v s; the profile of %s has no times", p.At, p.StepS,
			w.Profile.Model)
	}
	return p, nil
}

// Advance returns how many forwards the first stage runs in advance of 1F1B.
func (p *Pipelined) Advance() int {
	return p.Plan.Stages[0].Warmup - min(len(p.Plan.Stages), p.At.MicroBatches)
}

// Setting returns the number of forwards in advance of 1F1B with which a job gets the depths of the plan. It may be
// more than Advance, because no stage runs more forwards than there are micro-batches. ok is false if no number gives
// these depths: every stage then runs all its forwards first.
func (p *Pipelined) Setting() (advance int, ok bool) {
	for x := range p.At.MicroBatches + 1 {
		depths, err := family.AdvanceDepths(len(p.Plan.Stages), p.At.MicroBatches, x, family.Graded)
		if err != nil {
			return 0, false
		}
		same := func(st plan.Stage, k int) bool { return st.Warmup == k }
		if slices.EqualFunc(p.Plan.Stages, depths, same) {
			return x, true
		}
	}
	return 0, false
}

// fasterBy is the fraction by which a deeper warm-up must shorten a step to be worth its memory.
const fasterBy = 1e-3

// Predict returns the simulator's prediction for a setting. It looks for the depth that Algorithm 1 would find during
// training. Among the depths that fit in the memory and are fastest, this is the one with the fewest forwards in
// advance of 1F1B. Times do not fall evenly with depth, because a message may just miss its turn on a link. So Predict
// does not stop at the first slower step. It tries every number of forwards in advance up to twice the number of
// stages, until a step takes only as long as its busiest worker computes. Several pipelines depend less on the depth,
// so for them it tries only powers of two. Beyond that it tries 4, 8, 16 ... times the number of stages, and AFAB.
func (w *Workload) Predict(ctx context.Context, at Degrees) (*Pipelined, error) {
	all, err := w.atEveryDepth(ctx, at)
	if err != nil {
		return nil, err
	}
	return shallowest(all, Budget{EachBytes: w.LimitBytes}), nil
}

// atEveryDepth simulates a setting at 1F1B's depths and deeper ones. It stops when a deeper warm-up cannot make the
// step noticeably shorter, because the busiest worker's time is reached.
func (w *Workload) atEveryDepth(ctx context.Context, at Degrees) ([]*Pipelined, error) {
	if err := at.check(); err != nil {
		return nil, err
	}
	if w.Batch%at.MicroBatches != 0 {
		return nil, fmt.Errorf("tune: a batch of %d samples does not divide into %d micro-batches; give a divisor of it",
			w.Batch, at.MicroBatches)
	}
	now, err := w.simulate(at, 0)
	if err != nil {
		return nil, err
	}
	all := []*Pipelined{now}
	for _, pl := range w.deeper(at) {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if now.StepS*(1-fasterBy) <= now.busyS {
			break
		}
		if now, err = w.score(&Pipelined{Scored: Scored{At: at}, Plan: pl}); err != nil {
			return nil, err
		}
		all = append(all, now)
	}
	return all, nil
}

// shallowest chooses among depths, which are in order from 1F1B's to the deepest. It begins with the first. It replaces
// its choice by a deeper one that fits, if that is noticeably faster or if the choice does not fit.
func shallowest(all []*Pipelined, within Budget) *Pipelined {
	best := all[0]
	for _, deeper := range all[1:] {
		if within.admits(deeper.Scored) &&
			(deeper.StepS < best.StepS*(1-fasterBy) || !within.admits(best.Scored)) {
			best = deeper
		}
	}
	return best
}

// deeper returns plans whose warm-ups are deeper than those of 1F1B. Each plan has other depths than the plan before
// it.
func (w *Workload) deeper(at Degrees) []*plan.Plan {
	stages := len(w.Base.Stages)
	if stages < 2 {
		return nil
	}
	var tried []int
	for x := 1; x <= 2*stages; x++ {
		if at.Pipelines == 1 || x&(x-1) == 0 {
			tried = append(tried, x)
		}
	}
	for x := 4 * stages; x < at.MicroBatches; x *= 2 {
		tried = append(tried, x)
	}
	before, out := w.plan(at, 0), []*plan.Plan(nil)
	for _, x := range append(tried, afab) {
		pl := w.plan(at, x)
		if slices.EqualFunc(pl.Stages, before.Stages, func(a, b plan.Stage) bool { return a.Warmup == b.Warmup }) {
			continue
		}
		before, out = pl, append(out, pl)
	}
	return out
}

// Trial is the result of some batches of a setting, on a machine or in the simulator.
type Trial struct {
	Scored
	TookS    float64         `json:"took_s"` // time spent on the trial
	Timeline *trace.Timeline `json:"-"`      // every event and memory sample, if requested
}

// Machine runs a setting for some iterations, and on request records every event.
type Machine func(ctx context.Context, p *Pipelined, iterations int, record bool) (*Trial, error)

// Simulated returns the simulator as the machine. A trial costs the simulated time.
func (w *Workload) Simulated() Machine {
	return func(_ context.Context, p *Pipelined, iterations int, record bool) (*Trial, error) {
		t, sum, err := w.run(p, iterations, record)
		if err != nil {
			return nil, err
		}
		if w.SideBySide && p.At.Pipelines > 1 && !record {
			beside, err := w.sideBySide(p)
			if err != nil {
				return nil, err
			}
			if beside.StepS < sum.StepS {
				sum.StepS, sum.EndS = beside.StepS, sum.EndS*beside.StepS/sum.StepS
			}
		}
		return &Trial{
			Scored: Scored{At: p.At, StepS: sum.StepS / float64(p.At.Pipelines), MemoryBytes: sum.PeakBytes},
			TookS:  sum.EndS, Timeline: t,
		}, nil
	}
}

// fewest is the least number of iterations of a trial: the first is cold, and the others must have a median.
const fewest = 3

// Iterations returns how many iterations of all pipelines a trial of the given number of batches needs. Several
// pipelines get at least enough iterations to settle.
func Iterations(at Degrees, batches int) int {
	least := fewest
	if at.Pipelines > 1 {
		least = predict.Settling
	}
	return max(least, (batches+at.Pipelines-1)/at.Pipelines)
}

// Best returns the simulator's choice from the grid, without a trial.
func (w *Workload) Best(ctx context.Context, grid []Degrees) (*Pipelined, error) {
	settings, err := w.Settings(ctx, grid)
	if err != nil {
		return nil, err
	}
	return settings.Best(Budget{EachBytes: w.LimitBytes})
}

// Over returns the workload with the stages of another plan. ok is false if there is only one stage, if a stage has
// several devices, or if a device has several stages.
func (w *Workload) Over(pl *plan.Plan) (*Workload, bool) {
	if len(pl.Stages) < 2 {
		return nil, false
	}
	seen := map[int]bool{}
	for _, st := range pl.Stages {
		if len(st.Devices) != 1 || seen[st.Devices[0]] {
			return nil, false
		}
		seen[st.Devices[0]] = true
	}
	other := *w
	other.Base = pl
	return &other, true
}
