package tune

import (
	"context"
	"slices"
	"testing"

	"github.com/millrace-ml/millrace/tune/predict"
	"pgregory.net/rapid"
)

// TestAWiderSearchIsNoSlower: the plan of a search of all micro-batch sizes is at least as fast as the plan of a search
// with one of these sizes fixed. The batch is so large that the plans of all sizes together are too many to examine.
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

// TestDepthsOfSplitBackwardsAreMoved: the model has more layers than an exhaustive search examines. The test changes
// the plan that the search finds by one micro-batch in flight, on one stage or on both. No changed plan is faster by
// more than worthMoving.
func TestDepthsOfSplitBackwardsAreMoved(t *testing.T) {
	t.Parallel()
	checkSearches(t, 20, func(t *rapid.T) {
		p, c := world(t, mostExhausted+1, 2)
		request := Request{Profile: p, Cluster: c, Batch: 16}
		request.Fix.Schedule = rapid.SampledFrom([]string{"zb-h1", "zb-auto"}).Draw(t, "schedule")
		found, err := Search(context.Background(), request)
		if err != nil {
			t.Fatal(err)
		}
		m, now := found.Best.MicroBatches, []int{3, 3} // zb-auto's own depths: 2S-1 for each stage
		if request.Fix.Schedule == "zb-h1" {
			now = []int{2, 1} // zb-h1's own depths: S-i
		}
		for i, st := range found.Best.Stages {
			if st.Warmup > 0 {
				now[i] = st.Warmup
			}
		}
		for _, by := range [][2]int{{1, 0}, {-1, 0}, {0, 1}, {0, -1}, {1, 1}, {-1, -1}} {
			pl := *found.Best
			pl.Stages = slices.Clone(pl.Stages)
			for i := range pl.Stages {
				pl.Stages[i].Warmup = min(now[i], m) + by[i]
			}
			if a, b := pl.Stages[0].Warmup, pl.Stages[1].Warmup; b < 1 || a > m || b > a {
				continue
			}
			q, err := predict.Plan(p, c, &pl, false)
			if err != nil {
				t.Fatal(err)
			}
			if took := found.Best.Predicted.StepS; q.StepS < took*(1-1.01*worthMoving) {
				t.Fatalf("%s takes %v s with warm-up %v, and %v s with %d, %d", request.Fix.Schedule, took, now, q.StepS,
					pl.Stages[0].Warmup, pl.Stages[1].Warmup)
			}
		}
	})
}
