package tune

import (
	"testing"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/tune/predict"
)

// TestWhatAPlannerSaysIsSimulated: every planner's plan can be scheduled. That is true for any multiple of the profiled
// size and any division among replicas.
func TestWhatAPlannerSaysIsSimulated(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"pipedream-a:2x2", "pipedream-a:4x4", "dapple-c:7"} {
		c, err := cluster.Preset(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, batch := range []int{8, 16, 24, 40, 64, 7 * 8 * 3, 512} {
			for _, planner := range plan.Planners() {
				p := imported(9, 8)
				for i := range p.Layers { // first layers compute and last ones hold weights, so only the first get replicas
					p.Layers[i].Costs[0].ForwardS /= float64(1 + i*i)
					p.Layers[i].Costs[0].BackwardS /= float64(1 + i*i)
					p.Layers[i].ParameterBytes <<= i
				}
				pl, err := planner.Plan(t.Context(), plan.Request{Profile: p, Cluster: c, Batch: batch})
				if err != nil {
					t.Fatal(err)
				}
				if _, err := predict.Plan(p, c, pl, false); err != nil {
					t.Errorf("%s, batch %d on %s: %d micro-batches, stages %+v: %v", planner.Name, batch, name, pl.MicroBatches,
						pl.Stages, err)
				}
			}
		}
	}
}
