package run

import (
	"testing"

	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/schedule"
)

// frozenModels are sizedModels with a beginning that is frozen, and with it biases of what learns: of the transformer
// the embedding and a block, of the convnet its first convolution.
func frozenModels(t *testing.T) []sizedModel {
	t.Helper()
	return sizedModels(t, []string{"embed", "block0.*", "*.bias"}, []string{"conv1"})
}

// With frozen layers too each worker holds at most what the simulator says, to the byte where no message came in
// time: no gradients or states of theirs, nothing that a backward of theirs would need, and no gradients that would
// cross the cuts between them. Both are less than where nothing is frozen, and so is what is summed over replicas.
func TestMemoryOfFrozenLayersIsAsPredicted(t *testing.T) {
	learning := sizedModels(t)
	for i, sized := range frozenModels(t) {
		m := sized.model
		for _, family := range []string{"1f1b", "zb-h2", "interleaved", "dp"} {
			for _, again := range []plan.Recompute{plan.KeepAll, plan.Every(2)} {
				pl := twoWorkers(m, family, schedule.Sync)
				for s := range pl.Stages {
					pl.Stages[s].Recompute = again
				}
				got, most, transit, costs := sized.held(t, pl, 3, 0)
				message := int64(0)
				for _, replicas := range costs.Stages {
					message = max(message, replicas[0].ActivationBytes)
				}
				for w, n := range most {
					off := got.PeakBytes[w] - n
					t.Logf("%s %s, recompute %v: worker %d holds %d bytes, %+d of what no timing exceeds", m.Name, family, again, w,
						got.PeakBytes[w], off)
					if off > n/1000+transit || off < -10*message {
						t.Errorf("%s %s, recompute %v: worker %d holds %d bytes; no timing should exceed %d, and few messages of %d "+
							"bytes come in time", m.Name, family, again, w, got.PeakBytes[w], n, message)
					}
				}
				if family != "dp" {
					continue
				}
				all := *pl
				all.ModelID = learning[i].model.ID()
				before, said, _, unfrozen := learning[i].held(t, &all, 3, 0)
				if most[0] >= said[0] || got.PeakBytes[0] >= before.PeakBytes[0] {
					t.Errorf("%s: %d bytes are said and %d held; where nothing is frozen %d and %d", m.Name, most[0], got.PeakBytes[0],
						said[0], before.PeakBytes[0])
				}
				one, other := costs.Stages[0][0], unfrozen.Stages[0][0]
				if one.ParameterBytes >= other.ParameterBytes || one.AllReduceS >= other.AllReduceS {
					t.Errorf("%s: %d bytes are summed in %g s; where nothing is frozen %d in %g s", m.Name, one.ParameterBytes,
						one.AllReduceS, other.ParameterBytes, other.AllReduceS)
				}
			}
		}
	}
}
