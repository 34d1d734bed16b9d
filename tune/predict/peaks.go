package predict

import (
	"slices"

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
	// evaluation; nil if unknown. Between processes both hold if messages arrive as they are sent (PeaksOf).
	AtMost, Evaluation []int64
}

// boundedWorkers is the largest number of workers for which Peaks has upper bounds. The bounds need simulations for
// each worker.
const boundedWorkers = 16

// peakSteps is the number of steps in which peaks are searched, because messages of neighbouring steps can coincide.
const peakSteps = 2

// boundsPeaks says whether a plan's memory is examined beyond the simulated timing: that of a few workers that share a
// memory, or of hosts on which the profile was measured, which train.
func boundsPeaks(p *profile.Profile, c *cluster.Cluster, pl *plan.Plan) bool {
	devices := pl.Devices()
	if len(devices) > boundedWorkers {
		return false
	}
	return c.InOneMemory(0, len(c.Devices)-1) ||
		!slices.ContainsFunc(devices, func(d int) bool { return p.On(c.Devices[d]).Engine == "" })
}

// PeaksOf returns the peak memory of a plan's workers. `simulated` holds the peaks of the simulated timing. For other
// timings PeaksOf examines peakSteps steps, or enough steps of a stream to fill it. If that is too much to simulate, if
// there are more than boundedWorkers workers, or if described devices do not share a memory, it returns only
// `simulated`. Between processes it takes messages to arrive as they are sent. If a link is slower than that, a sender
// may hold more, namely the messages that have not left.
func PeaksOf(p *profile.Profile, c *cluster.Cluster, pl *plan.Plan, clip bool, costs sim.Costs,
	simulated []int64) (Peaks, error) {
	out := Peaks{Likely: simulated}
	repeat := peakSteps
	if !schedule.Policy(pl.Weights).Flushes() {
		repeat = filled(pl)
	}
	if !boundsPeaks(p, c, pl) || CheckWork(pl, 2*repeat*len(pl.Devices())) != nil {
		return out, nil
	}
	program, err := programs.AtLeast(pl, p.TiedLayers(), clip, repeat)
	if err != nil {
		return out, err
	}
	linked := !c.InOneMemory(0, len(c.Devices)-1)
	if linked {
		costs.OneMemory = func(_, _ int) bool { return true }
	}
	if out.AtMost, err = sim.AtMostBytes(program, costs); err != nil {
		return out, err
	}
	if linked {
		for w, bytes := range simulated { // a sender held what a slow link had not taken
			out.AtMost[w] = max(out.AtMost[w], bytes)
		}
	}
	out.Evaluation, err = sim.EvaluationBytes(program, costs)
	return out, err
}
