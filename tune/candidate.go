package tune

import (
	"fmt"
	"slices"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/sim"
)

// Program is the lowered Program of a plan.
func Program(p *profile.Profile, pl *plan.Plan, clip bool, repeat int) (*schedule.Program, error) {
	name, s := schedule.FromPlan(pl)
	s.Repeat = repeat
	program, err := schedule.Generate(name, s)
	if err != nil {
		return nil, err
	}
	return schedule.Lower(program, schedule.LowerOptions{Tied: sim.TiedStages(p, pl), Clip: clip, PostValidate: pl.PostValidate})
}

// Steps is how many steps a prediction is the median of: more where computations vary.
func Steps(costs sim.Costs) int {
	if costs.Varies() {
		return 9
	}
	return fewestSteps
}

// fewestSteps is how many steps a prediction plays where all take the same.
const fewestSteps = 3

// Simulate predicts a plan: its steady step over simulated steps. cores, clipping and
// the rest are as they will be in the run. A step of pipelines side by side is an iteration of
// all of them, a batch each. A plan without a flush is a stream, in which
// minibatches end in groups: its step is what each one more takes on average, the difference
// of two streams of which one is as long again. A plan of too many micro-batches is a WorkError.
func Simulate(p *profile.Profile, c *cluster.Cluster, pl *plan.Plan, clip bool) (plan.Predicted, error) {
	predicted, _, err := simulate(p, c, pl, clip, func(float64) bool { return true })
	return predicted, err
}

// simulate is Simulate for a search: what workers hold under other timings, which several simulations more say, is
// looked into where the step is worth it, and left out (rough) where not.
func simulate(p *profile.Profile, c *cluster.Cluster, pl *plan.Plan, clip bool, worth func(stepS float64) bool) (predicted plan.Predicted, rough bool, err error) {
	costs, err := sim.CostsOf(p, c, pl)
	if err != nil {
		return predicted, false, err
	}
	run := func(repeat int) (sim.Summary, error) {
		program, err := Program(p, pl, clip, repeat)
		if err != nil {
			return sim.Summary{}, err
		}
		return sim.Expect(program, costs, sim.Options{Cores: Cores(c, pl), Jitter: true})
	}
	repeat, streams := Steps(costs), !schedule.Policy(pl.Weights).Flushes()
	if pl.Together() > 1 {
		repeat = max(repeat, settling)
	}
	played := repeat
	if streams {
		repeat = 2 * filled(pl)
		played = provenAsPlayed * (repeat + repeat/2)
	}
	if err := checkWork(pl, played*costs.Plays(len(sim.Devices(pl)), Cores(c, pl))); err != nil {
		return predicted, false, err
	}
	sum, err := run(repeat)
	if err != nil {
		return predicted, false, err
	}
	if streams {
		half, err := run(repeat / 2)
		if err != nil {
			return predicted, false, err
		}
		busy := 0.0
		if more := float64(sum.Steps - half.Steps); more > 0 {
			sum.StepS = (sum.EndS - half.EndS) / more
		}
		for _, b := range sum.BusyS {
			busy += b
		}
		sum.Bubble = max(0, 1-busy/(float64(len(sum.BusyS))*sum.StepS)) // rounding can leave less
	}
	if !(sum.StepS > 0) {
		return predicted, false, fmt.Errorf("tune: a simulated step takes %v s; the profile of %s has no times", sum.StepS, p.Model)
	}
	held := peaks{likely: sum.PeakBytes}
	if rough = !worth(sum.StepS); !rough {
		if held, err = peaksOf(p, c, pl, clip, costs, sum.PeakBytes); err != nil {
			return predicted, false, err
		}
	}
	return plan.Predicted{
		StepS: sum.StepS, SamplesPerSecond: float64(pl.Batch()*pl.Together()) / sum.StepS, Bubble: sum.Bubble,
		MemoryBytes: held.likely, AtMostBytes: held.atMost, EvaluationBytes: held.evaluation, BusyS: sum.BusyS, PeakActivations: sum.PeakActivations,
	}, rough, nil
}

// filled is how many steps of a stream fill all of its workers, and empty them again.
func filled(pl *plan.Plan) int {
	return max(3, (2*len(sim.Devices(pl))+pl.MicroBatches-1)/pl.MicroBatches)
}

// peaks is what workers hold at most, by device.
type peaks struct {
	likely             []int64 // in training, if one of them falls behind by slowCore
	atMost, evaluation []int64 // what no timing of training exceeds, and none of an evaluation; nil where they are not known
}

const (
	// boundedWorkers is the most workers of which each is simulated behind the others.
	boundedWorkers = 16
	// slowCore is how many times as slow a worker is taken to be for a while. Of 1.25, 1.6 and 2 it came closest to what
	// convnet and gpt held on a machine whose cores differ by up to 1.3 for seconds and stumble in between.
	slowCore = 2.0
)

// peakSteps is how many steps peaks are looked for in: one's messages meet the other's.
const peakSteps = 2

// boundsPeaks says whether a plan's memory is looked into beyond the simulated timing.
func boundsPeaks(c *cluster.Cluster, pl *plan.Plan) bool {
	return len(sim.Devices(pl)) <= boundedWorkers && c.InOneMemory(0, len(c.Devices)-1)
}

// peaksOf is what a plan's workers hold, simulated being the peaks of the timing that its costs give. It looks at peakSteps
// steps, or at as much of a stream as fills it; where that is more than is simulated, at that timing alone.
func peaksOf(p *profile.Profile, c *cluster.Cluster, pl *plan.Plan, clip bool, costs sim.Costs, simulated []int64) (peaks, error) {
	out := peaks{likely: simulated}
	repeat := peakSteps
	if !schedule.Policy(pl.Weights).Flushes() {
		repeat = filled(pl)
	}
	if !boundsPeaks(c, pl) || checkWork(pl, 2*repeat*len(sim.Devices(pl))) != nil {
		return out, nil
	}
	program, err := Program(p, pl, clip, repeat)
	if err != nil {
		return out, err
	}
	if out.atMost, err = sim.AtMostBytes(program, costs); err != nil {
		return out, err
	}
	if out.evaluation, err = sim.EvaluationBytes(program, costs); err != nil || slices.Equal(out.atMost, simulated) {
		return out, err
	}
	behind, err := sim.BehindBytes(program, costs, slowCore, sim.Options{Cores: Cores(c, pl)})
	if err != nil {
		return out, err
	}
	out.likely = slices.Clone(simulated)
	for w, bytes := range behind {
		out.likely[w] = max(out.likely[w], bytes)
		if out.atMost != nil {
			out.likely[w] = min(out.likely[w], out.atMost[w])
		}
	}
	return out, nil
}

// Cores is how many cores a plan's workers share, as sim and run count it: 0 where each
// has its own.
func Cores(c *cluster.Cluster, pl *plan.Plan) int {
	if c.Cores >= len(sim.Devices(pl)) {
		return 0
	}
	return c.Cores
}

// candidate is a plan with what the simulator says of it.
type candidate struct {
	plan      *plan.Plan
	predicted plan.Predicted
	rough     bool // its memory is of the simulated timing alone: it is slower than another of its kind, which fits
}

// over is by how many bytes the worst device is over its memory; 0 if none is.
func (c candidate) over(cl *cluster.Cluster) int64 {
	worst := int64(0)
	for i, d := range sim.Devices(c.plan) {
		if limit := cl.MemoryBytes(d); limit > 0 {
			worst = max(worst, c.predicted.Needs()[i]-limit)
		}
	}
	return worst
}

// fullest is the device that is the most over its memory, and by how many bytes.
func (c candidate) fullest(cl *cluster.Cluster) (device int, over int64) {
	for i, d := range sim.Devices(c.plan) {
		if limit := cl.MemoryBytes(d); limit > 0 && c.predicted.Needs()[i]-limit > over {
			device, over = d, c.predicted.Needs()[i]-limit
		}
	}
	return device, over
}

// better prefers plans that fit, then the shorter step, then the smaller peak: schedules that
// differ only in depth often tie in time.
func (c candidate) better(than candidate, cl *cluster.Cluster) bool {
	if a, b := c.over(cl), than.over(cl); a > 0 || b > 0 {
		return a < b
	}
	a, b := c.predicted.StepS, than.predicted.StepS
	if d := a - b; d < -tie*b || d > tie*b {
		return d < 0
	}
	return slices.Max(c.predicted.Needs()) < slices.Max(than.predicted.Needs())
}

// describe names a plan in a few words.
func describe(p *profile.Profile, pl *plan.Plan) string {
	if len(pl.Stages) == 1 {
		if n := len(pl.Stages[0].Devices); n > 1 {
			return fmt.Sprintf("data parallelism on %d workers, %d x %d", n, pl.MicroBatches, pl.MicroBatch)
		}
		return fmt.Sprintf("one worker, %d x %d", pl.MicroBatches, pl.MicroBatch)
	}
	var begins []string
	for _, st := range pl.Stages[1:] {
		first := st.FirstLayer
		if pl.Order != nil {
			first = pl.Order[first]
		}
		name := p.Layers[first].Name
		if part := st.Fraction(st.FirstLayer); part < 1 {
			name = fmt.Sprintf("%.4g %% of %s", 100*part, name)
		}
		begins = append(begins, name)
	}
	again := ""
	if slices.ContainsFunc(pl.Stages, func(s plan.Stage) bool { return s.Recompute.Again() }) {
		again = ", recomputing"
	}
	return fmt.Sprintf("%s on %d stages cut before %v, %d x %d%s", pl.Schedule, len(pl.Stages), begins, pl.MicroBatches, pl.MicroBatch, again)
}
