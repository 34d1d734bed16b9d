package predict

import (
	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/programs"
	"github.com/millrace-ml/millrace/sim"
)

// Peaks holds the peak memory of workers, by device.
type Peaks struct {
	Likely []int64 // in training, with the simulated timing
	// AtMost is an upper bound for any timing of training; nil if unknown. Evaluation is an upper bound for any
	// evaluation; nil if unknown.
	AtMost, Evaluation []int64
}

// boundedWorkers is the largest number of workers for which Peaks has upper bounds. The bounds need simulations for
// each worker.
const boundedWorkers = 16

// peakSteps is the number of steps in which peaks are searched, because messages of neighbouring steps can coincide.
const peakSteps = 2

// boundsPeaks says whether a plan's memory is examined beyond the simulated timing.
func boundsPeaks(c *cluster.Cluster, pl *plan.Plan) bool {
	return len(pl.Devices()) <= boundedWorkers && c.InOneMemory(0, len(c.Devices)-1)
}

// PeaksOf returns the peak memory of a plan's workers. `simulated` holds the peaks of the simulated timing. For other
// timings PeaksOf examines peakSteps steps, or enough steps of a stream to fill it. If that is too much to simulate, if
// there are more than boundedWorkers workers, or if the devices do not share a memory, it returns only `simulated`.
func PeaksOf(p *profile.Profile, c *cluster.Cluster, pl *plan.Plan, clip bool, costs sim.Costs,
	simulated []int64) (Peaks, error) {
	out := Peaks{Likely: simulated}
	repeat := peakSteps
	if !schedule.Policy(pl.Weights).Flushes() {
		repeat = filled(pl)
	}
	if !boundsPeaks(c, pl) || CheckWork(pl, 2*repeat*len(pl.Devices())) != nil {
		return out, nil
	}
	program, err := programs.AtLeast(pl, p.TiedLayers(), clip, repeat)
	if err != nil {
		return out, err
	}
	if out.AtMost, err = sim.AtMostBytes(program, costs); err != nil {
		return out, err
	}
	out.Evaluation, err = sim.EvaluationBytes(program, costs)
	return out, err
}
