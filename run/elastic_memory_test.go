package run

import (
	"testing"

	"github.com/millrace-ml/millrace/plan"
)

// TestElasticMemoryIsAsPredicted: the prediction includes the models of all pipelines with their optimizer states, the
// reference and the queue. No run holds more, except 4 bytes for each loss. A run may hold less for two reasons: some
// messages did not have to wait, and the queue had one step less.
func TestElasticMemoryIsAsPredicted(t *testing.T) {
	for _, sized := range sizedModels(t) {
		m := sized.model
		for _, pipelines := range []int{1, 2, 4} {
			pl := planOf(m, evenCuts(len(m.Layers), 2), sizedMicro, 3, "elastic")
			pl.Weights, pl.Elastic = "elastic", plan.NewElastic(pipelines)
			got, most, transit, costs := sized.held(t, pl, 8, 0)
			messages := int64(pipelines*3) * costs.Stages[0][0].ActivationBytes
			for w, n := range most {
				step := costs.Stages[w][0].ReferenceBytes
				t.Logf("%s, %d pipelines, worker %d: %d bytes, predicted %d (%.2f %%); a step of the queue is %d, messages at "+
					"most %d",
					m.Name, pipelines, w, got.PeakBytes[w], n, 100*(float64(got.PeakBytes[w])/float64(n)-1), step, messages)
				if off := got.PeakBytes[w] - n; off > int64(4*pipelines*pl.MicroBatches)+transit || -off >= messages+step {
					t.Errorf("%s, %d pipelines: worker %d holds %d bytes; predicted %d", m.Name, pipelines, w, got.PeakBytes[w], n)
				}
			}
		}
	}
}
