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

// Workload is a partitioned model whose degrees are to be tuned: AvgPipe takes the partition
// as given (section 6).
type Workload struct {
	Profile *profile.Profile
	// Beside is the profile of several pipelines that share the devices, where it is another; nil: Profile.
	Beside  *profile.Profile
	Cluster *cluster.Cluster
	// Base says the stages and their devices, one each, and whether they recompute; its
	// micro-batches and depths are not read.
	Base  *plan.Plan
	Batch int  // samples of one pipeline's batch
	Clip  bool // the update needs the global gradient norm
	// LimitBytes is the memory of each device; 0 is no limit.
	LimitBytes int64

	// SideBySide has devices run kernels of several pipelines at once where a pipeline alone does not fill them. A GPU
	// does so for the processes that share it, and equation 2 has it. False: one computation at a time, as run does.
	SideBySide bool

	means bool // of what a stage takes, the profile's times and Spreads give the mean rightly: see aroundMeans
}

// Pipelined is a setting made ready to run: a plan for one pipeline, with the depths of
// advance forward propagation, and how many of these share the devices.
type Pipelined struct {
	Scored
	Plan *plan.Plan `json:"plan"`
	// Bubble is the part of the devices' time in which they do not compute, 0 to 1.
	Bubble float64 `json:"bubble"`
	// IdleS is for how much of a batch's time each device does not compute, seconds.
	IdleS []float64 `json:"idle_s"`

	busyS float64 // the busiest worker's time for a batch: no depth makes the step shorter
}

// afab as an advance sends all micro-batches ahead, on every stage.
const afab = -1

// plan is the base at some degrees, with so many forwards in advance of 1F1B, graded by stage.
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

// Program is the lowered Program of some iterations of a setting.
func (w *Workload) Program(p *Pipelined, iterations int) (*schedule.Program, error) {
	program, err := programs.Build(p.Plan, w.Profile.TiedLayers(), w.Clip, iterations)
	if err != nil {
		return nil, fmt.Errorf("tune: %s: %w", p.At, err)
	}
	return program, nil
}

// profileOf is the profile of so many pipelines.
func (w *Workload) profileOf(pipelines int) *profile.Profile {
	if pipelines > 1 && w.Beside != nil {
		return w.Beside
	}
	return w.Profile
}

// run simulates some iterations; the time of a batch is an iteration's over its pipelines.
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

// variedMicros is how many micro-batches a simulation of instructions that vary has at least: the
// median over its steps is then not that of a few draws.
const variedMicros = 48

// aroundMeans scales a stage's varying forwards and backwards to their mean over all iterations there could be.
// Otherwise a setting with few micro-batches that happened to draw slow forwards, over so many iterations, would be
// predicted to be slow. What others wait for them stays.
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

// score simulates a setting made ready.
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

// Advance is how many forwards more than 1F1B has the first stage sends ahead.
func (p *Pipelined) Advance() int {
	return p.Plan.Stages[0].Warmup - min(len(p.Plan.Stages), p.At.MicroBatches)
}

// fasterBy is by how much a deeper warm-up must shorten a step to be worth its memory.
const fasterBy = 1e-3

// Predict is the simulator's word on a setting. It looks for the depth that Algorithm 1 looks for
// while it trains: the fewest forwards in advance of 1F1B that are fastest within the
// memory. Times do not fall evenly with depth (a message may miss its turn on a link by
// little), so that a first slower step is no reason to stop: every number up to
// twice the stages is tried, of several pipelines, which depend less on it, the powers of two
// among them; beyond that 4, 8, 16 ... times the stages, and AFAB.
func (w *Workload) Predict(ctx context.Context, at Degrees) (*Pipelined, error) {
	all, err := w.atEveryDepth(ctx, at)
	if err != nil {
		return nil, err
	}
	return shallowest(all, Budget{EachBytes: w.LimitBytes}), nil
}

// atEveryDepth simulates a setting at 1F1B's depths and deeper ones, until the busiest worker
// is all that a step takes.
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

// shallowest is the first depth than which no deeper one that fits is faster by much; 1F1B where none fits.
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

// deeper is the plans beyond 1F1B that are tried, each with other depths than the one before.
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

// Trial is what some batches of a setting told, on a machine or in the simulator.
type Trial struct {
	Scored
	TookS    float64         `json:"took_s"` // what trying it cost
	Timeline *trace.Timeline `json:"-"`      // every event and memory sample, where that was asked for
}

// Machine runs a setting for so many iterations, and records every event of it on request.
type Machine func(ctx context.Context, p *Pipelined, iterations int, record bool) (*Trial, error)

// Simulated is the simulator as the machine: what is tried costs the time that it would
// have taken there.
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

// fewest is how many iterations a trial has at least: the first is cold, and of the others
// there must be a median.
const fewest = 3

// Iterations is how many iterations of all pipelines make at least so many batches, and let
// several pipelines settle.
func Iterations(at Degrees, batches int) int {
	least := fewest
	if at.Pipelines > 1 {
		least = predict.Settling
	}
	return max(least, (batches+at.Pipelines-1)/at.Pipelines)
}

// Best is the simulator's choice of the grid alone: nothing is run.
func (w *Workload) Best(ctx context.Context, grid []Degrees) (*Pipelined, error) {
	settings, err := w.Settings(ctx, grid)
	if err != nil {
		return nil, err
	}
	return settings.Best(Budget{EachBytes: w.LimitBytes})
}

// Over is the workload with the stages of another plan. Each of these must be on a device of its own, and there must
// be several; false where not.
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
