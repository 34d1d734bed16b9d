package predict

import (
	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/programs"
	"github.com/millrace-ml/millrace/sim"
)

// Peaks is what workers hold at most, by device.
type Peaks struct {
	Likely []int64 // in training, in the timing that its costs give
	// what no timing of training exceeds, and none of an evaluation; nil where they are not known
	AtMost, Evaluation []int64
}

// boundedWorkers is the most workers for which a plan is simulated with each worker in turn behind the others.
const boundedWorkers = 16

// peakSteps is how many steps peaks are looked for in: one's messages meet the other's.
const peakSteps = 2

// boundsPeaks says whether a plan's memory is looked into beyond the simulated timing.
func boundsPeaks(c *cluster.Cluster, pl *plan.Plan) bool {
	return len(pl.Devices()) <= boundedWorkers && c.InOneMemory(0, len(c.Devices)-1)
}

// PeaksOf is the peak memory of a plan's workers; simulated has the peaks of the timing by its costs. It looks at
// peakSteps steps, or at enough of a stream to fill it. Where that is too much to simulate, it looks at that timing
// alone.
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
	program, err := programs.Build(pl, p.TiedLayers(), clip, repeat)
	if err != nil {
		return out, err
	}
	if out.AtMost, err = sim.AtMostBytes(program, costs); err != nil {
		return out, err
	}
	out.Evaluation, err = sim.EvaluationBytes(program, costs)
	return out, err
}
