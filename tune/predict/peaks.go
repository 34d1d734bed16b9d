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

// Peaks is what workers hold at most, by device.
type Peaks struct {
	Likely []int64 // in training, if one of them falls behind by slowCore
	// what no timing of training exceeds, and none of an evaluation; nil where they are not known
	AtMost, Evaluation []int64
}

const (
	// boundedWorkers is the most workers of which each is simulated behind the others.
	boundedWorkers = 16
	// slowCore is how many times as slow a worker is taken to be for a while. Of 1.25, 1.6 and 2 it
	// came closest to what convnet and gpt held on a machine whose cores differ by up to 1.3 for
	// seconds and stumble in between.
	slowCore = 2.0
)

// peakSteps is how many steps peaks are looked for in: one's messages meet the other's.
const peakSteps = 2

// boundsPeaks says whether a plan's memory is looked into beyond the simulated timing.
func boundsPeaks(c *cluster.Cluster, pl *plan.Plan) bool {
	return len(pl.Devices()) <= boundedWorkers && c.InOneMemory(0, len(c.Devices)-1)
}

// PeaksOf is what a plan's workers hold, simulated being the peaks of the timing that its costs
// give. It looks at peakSteps steps, or at as much of a stream as fills it; where that is more than
// is simulated, at that timing alone.
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
	if out.Evaluation, err = sim.EvaluationBytes(program, costs); err != nil || slices.Equal(out.AtMost, simulated) {
		return out, err
	}
	behind, err := sim.BehindBytes(program, costs, slowCore, sim.Options{Cores: Cores(c, pl)})
	if err != nil {
		return out, err
	}
	out.Likely = slices.Clone(simulated)
	for w, bytes := range behind {
		out.Likely[w] = max(out.Likely[w], bytes)
		if out.AtMost != nil {
			out.Likely[w] = min(out.Likely[w], out.AtMost[w])
		}
	}
	return out, nil
}
