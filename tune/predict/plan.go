package predict

import (
	"fmt"
	"slices"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/programs"
	"github.com/millrace-ml/millrace/sim"
)

// Steps returns how many steps are simulated for a prediction. The prediction is the median over all of these steps
// except the first. If computations vary, a prediction needs more steps.
func Steps(costs sim.Costs) int {
	if costs.Noise.Varies() {
		return 9
	}
	return fewestSteps
}

// Shown returns how many steps of a plan are simulated to be drawn. A stream needs so many that a step in the middle
// has all its neighbours, unless they have too many instructions to draw.
func Shown(pl *plan.Plan, costs sim.Costs) int {
	steps := Steps(costs)
	if n := filled(pl); !schedule.Policy(pl.Weights).Flushes() && StepInstructions(pl) <= mostShown/int64(n) {
		return max(steps, n)
	}
	return steps
}

// fewestSteps is the number of simulated steps if all take the same time.
const fewestSteps = 3

// Settling is the least number of simulated iterations for pipelines that share devices. They begin together and then
// shift into each other's bubbles.
const Settling = 6

// Plan predicts a plan. It simulates several steps, with the cluster's cores and clipping as in a run, and takes the
// steady step. If pipelines run side by side, a step is an iteration of all of them, with a batch each. A plan without
// a flush is a stream, in which minibatches end in groups. Its step is the average time of a further minibatch. This
// average comes from the difference of two streams, one about twice as long as the other. A plan with too many
// instructions gives a WorkError.
func Plan(p *profile.Profile, c *cluster.Cluster, pl *plan.Plan, clip bool) (plan.Predicted, error) {
	predicted, _, err := PlanIf(p, c, pl, clip, func(float64) bool { return true })
	return predicted, err
}

// PlanIf does the same as Plan, for a search. The memory under other timings takes several more simulations. PlanIf
// computes it only if `worth` accepts the step; otherwise `rough` is true.
func PlanIf(p *profile.Profile, c *cluster.Cluster, pl *plan.Plan, clip bool,
	worth func(stepS float64) bool) (predicted plan.Predicted, rough bool, err error) {
	costs, err := sim.CostsOf(p, c, pl)
	if err != nil {
		return predicted, false, err
	}
	var sum sim.Summary
	if schedule.Policy(pl.Weights).Flushes() {
		sum, err = flushing(p, pl, clip, costs)
	} else {
		sum, err = steadily(p, pl, clip, costs)
	}
	if err != nil {
		return predicted, false, err
	}
	if !(sum.StepS > 0) {
		return predicted, false, fmt.Errorf("tune: a simulated step takes %v s; the profile of %s has no times",
			sum.StepS, p.Model)
	}
	held := Peaks{Likely: sum.PeakBytes}
	if rough = !worth(sum.StepS); !rough {
		if held, err = PeaksOf(p, c, pl, clip, costs, sum.PeakBytes); err != nil {
			return predicted, false, err
		}
	}
	return plan.Predicted{
		StepS: sum.StepS, SamplesPerSecond: float64(pl.Batch()*pl.Together()) / sum.StepS, Bubble: sum.Bubble,
		MemoryBytes: held.Likely, AtMostBytes: held.AtMost, EvaluationBytes: held.Evaluation, BusyS: sum.BusyS,
		PeakActivations: sum.PeakActivations, PeakGradients: sum.PeakGradients,
	}, rough, nil
}

// flushing simulates several steps of a plan with a flush.
func flushing(p *profile.Profile, pl *plan.Plan, clip bool, costs sim.Costs) (sum sim.Summary, err error) {
	steps := Steps(costs)
	if pl.Together() > 1 {
		steps = max(steps, Settling)
	}
	if err := CheckWork(pl, steps*costs.Plays(len(pl.Devices()))); err != nil {
		return sum, err
	}
	program, err := programs.Build(pl, p.TiedLayers(), clip, steps)
	if err != nil {
		return sum, err
	}
	return sim.Expect(program, costs, sim.Options{})
}

// steadily simulates two streams of a plan, and returns the average step of the minibatches that the longer one has
// more.
func steadily(p *profile.Profile, pl *plan.Plan, clip bool, costs sim.Costs) (sum sim.Summary, err error) {
	steps := settled(pl)
	if err := CheckWork(pl, streamed(pl)*costs.Plays(len(pl.Devices()))); err != nil {
		return sum, err
	}
	var both [2]sim.Summary
	for i := range both { // a Program from outside has a period of its own, and is then a little longer
		program, err := programs.AtLeast(pl, p.TiedLayers(), clip, (i+1)*steps)
		if err == nil {
			both[i], err = sim.Expect(program, costs, sim.Options{})
		}
		if err != nil {
			return sum, err
		}
	}
	return both[1].Steadily(both[0], costs.Cores.Scarce(len(pl.Devices()))), nil
}

// settled returns a number of steps of a stream that is enough to fill and empty all its workers. It is a multiple of
// Turns, unless these are more than mostTurns. Then the steps are as many, and the mean of as many steps is nearly the
// same.
func settled(pl *plan.Plan) int {
	turns, few := Turns(pl)
	if !few {
		return max(filled(pl), mostTurns)
	}
	return (filled(pl) + turns - 1) / turns * turns
}

// Turns returns the number of steps of a stream in which each replica of a stage has as many micro-batches as the
// others. Replicas take turns, so single steps may take longer and shorter than the mean. `few` is false if there are
// more than mostTurns.
func Turns(pl *plan.Plan) (turns int, few bool) {
	micros := pl.MicroBatches
	for _, s := range pl.Stages {
		n := len(s.Devices)
		if schedule.Policy(pl.Weights).Served() {
			n-- // the last one holds the weights
		}
		if micros = schedule.LeastCommonMultiple(micros, max(1, n)); micros > mostTurns*pl.MicroBatches {
			return mostTurns, false
		}
	}
	return micros / pl.MicroBatches, true
}

// mostTurns limits the steps of a stream after which replicas come out even.
const mostTurns = 1024

// streamed returns how many steps take as long to simulate and to prove as the two streams of a prediction.
func streamed(pl *plan.Plan) int { return provenAsPlayed * 3 * settled(pl) }

// filled returns a number of steps of a stream that is enough to fill and empty all its workers.
func filled(pl *plan.Plan) int {
	return max(3, (2*len(pl.Devices())+pl.MicroBatches-1)/pl.MicroBatches)
}

// Cores returns how many cores a plan's worker shares with other workers, as package sim counts them. It returns 0 if
// each worker has its own core.
func Cores(c *cluster.Cluster, pl *plan.Plan, worker int) int {
	devices := pl.Devices()
	for _, pool := range sim.Pools(c, devices).Scarce(len(devices)) {
		if slices.Contains(pool.Workers, worker) {
			return pool.Cores
		}
	}
	return 0
}
