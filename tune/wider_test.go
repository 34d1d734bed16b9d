package tune

import (
	"context"
	"testing"

	"pgregory.net/rapid"
)

// TestAWiderSearchIsNoSlower: a search of all micro-batch sizes gives a step no longer than a search with one of them
// fixed. The batch is so large that the plans of all sizes together are too many to examine.
func TestAWiderSearchIsNoSlower(t *testing.T) {
	t.Parallel()
	checkSearches(t, 20, func(t *rapid.T) {
		p, c := world(t, 7, 2)
		request := Request{Profile: p, Cluster: c, Batch: 32}
		request.Fix.Schedule = rapid.SampledFrom([]string{"zb-h1", "zb-auto", "zb-v", "interleaved", "bfs", "1f1b"}).
			Draw(t, "schedule")
		wide, err := Search(context.Background(), request)
		if err != nil {
			t.Fatal(err)
		}
		for _, size := range []int{1, 2, 4} {
			request.Fix.MicroBatch = size
			narrow, err := Search(context.Background(), request)
			if err != nil {
				t.Fatal(err)
			}
			if a, b := wide.Best.Predicted.StepS, narrow.Best.Predicted.StepS; a > b*(1+1e-9) {
				t.Fatalf("%s takes %v s (%s), and with micro-batches of %d %v s (%s)", request.Fix.Schedule, a,
					nameOf(wide.Best), size, b, nameOf(narrow.Best))
			}
		}
	})
}
