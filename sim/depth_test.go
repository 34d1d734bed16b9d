package sim

import (
	"slices"
	"testing"

	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/schedule/check"
	"github.com/millrace-ml/millrace/schedule/programs"
)

// TestPipelineDepthOtherThanNOAM: a pipeline deeper than NOAM hides transfers and keeps more versions and activations
// (PipeDream, section 5.5). By hand: four stages of 1 s forward and 2 s backward, transfers of 1 s. On stages 0 to 3,
// the time from the forward of a minibatch to the end of its backward is 18, 13, 8 and 3 s. With K minibatches in
// flight on a stage, each takes at least a K-th of that time, and the slowest stage decides. NOAM's depths 4, 3, 2 and
// 1 give 18/4 = 4.5 s. Depth 1 on every stage gives 18 s. Depths 7, 5, 3 and 1 give 3 s, the computing time of the last
// stage, and greater depths gain nothing. A stage holds the activations of K minibatches and K versions of its weights.
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
