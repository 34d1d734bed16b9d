package sim

import (
	"slices"
	"testing"

	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/schedule/check"
	"github.com/millrace-ml/millrace/schedule/programs"
)

// PipeDream, section 5.5: a deeper pipeline than NOAM hides transfers and stashes more. By hand: four stages of 1 s
// forward and 2 s backward, transfers of 1 s. From the forward of a minibatch on stages 0 to 3 to the end of its
// backward there pass 18, 13, 8 and 3 s; with K of them in flight on a stage one more takes a K-th of that at least,
// and the slowest stage decides. NOAM's 4, 3, 2 and 1 give 18/4 = 4.5 s, one alone 18 s, and 7, 5, 3 and 1 what the
// last stage computes, 3 s; any more give nothing. A stage holds the activations of K minibatches, and as many versions
// of its weights.
func TestPipelineDepthOtherThanNOAM(t *testing.T) {
	for _, c := range []struct {
		depths []int
		stepS  float64
	}{{[]int{4, 3, 2, 1}, 4.5}, {[]int{1, 1, 1, 1}, 18}, {[]int{7, 5, 3, 1}, 3}, {[]int{9, 6, 4, 1}, 3}} {
		pl := &plan.Plan{Schedule: "1f1b-rr", Weights: "stash", Replication: "round_robin", MicroBatch: 1, MicroBatches: 1}
		for s, k := range c.depths {
			pl.Stages = append(pl.Stages, plan.Stage{FirstLayer: s, LastLayer: s, Devices: []int{s}, Warmup: k})
		}
		const few = 60
		ends := map[int]float64{}
		for _, n := range []int{few, 2 * few} {
			p, err := programs.Build(pl, nil, false, n)
			if err != nil {
				t.Fatal(err)
			}
			rep, err := check.Check(p)
			if err != nil {
				t.Fatal(err)
			}
			_, sum, err := Run(p, Uniform(4, 1, 2, 1), Options{})
			if err != nil {
				t.Fatal(err)
			}
			ends[n] = sum.EndS
			if !slices.Equal(sum.PeakActivations, c.depths) || !slices.Equal(rep.Versions, c.depths) {
				t.Errorf("depths %v: %v minibatches and %v versions of weights are held", c.depths, sum.PeakActivations,
					rep.Versions)
			}
		}
		exactly(t, (ends[2*few]-ends[few])/few, c.stepS, "depths %v: a minibatch more", c.depths)
	}
}
