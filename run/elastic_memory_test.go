package run

import (
	"slices"
	"testing"

	"github.com/millrace-ml/millrace/plan"
)

// TestElasticMemoryIsAsPredicted: the N models with their optimizer states, the reference and the
// queue are in the prediction, and it is what the allocator counts, to less than what one
// step in the queue holds.
func TestElasticMemoryIsAsPredicted(t *testing.T) {
	for _, sized := range sizedModels(t) {
		m := sized.model
		for _, pipelines := range []int{1, 2, 4} {
			pl := planOf(m, evenCuts(len(m.Layers), 2), sizedMicro, 3, "elastic")
			pl.Weights, pl.Elastic = "elastic", plan.NewElastic(pipelines)
			got, want, costs := sized.held(t, pl, 8, 0)
			// How many messages are on their way at once depends on clocks that are not the real ones.
			messages := int64(pipelines*3) * costs.Stages[0][0].ActivationBytes
			for w, n := range want.PeakBytes {
				step := costs.Stages[w][0].ReferenceBytes
				t.Logf("%s, %d pipelines, worker %d: %d bytes, predicted %d (%.2f %%); a step of the queue is %d, messages at most %d",
					m.Name, pipelines, w, got.PeakBytes[w], n, 100*(float64(got.PeakBytes[w])/float64(n)-1), step, messages)
				if off := max(got.PeakBytes[w]-n, n-got.PeakBytes[w]) - messages; off > n/50 || pipelines > 1 && off >= step {
					t.Errorf("%s, %d pipelines: worker %d holds %d bytes; predicted %d", m.Name, pipelines, w, got.PeakBytes[w], n)
				}
			}
			if !slices.Equal(got.Timeline.PeakActivations, want.PeakActivations) {
				t.Errorf("%s, %d pipelines: %v micro-batches held; predicted %v", m.Name, pipelines, got.Timeline.PeakActivations, want.PeakActivations)
			}
		}
	}
}
