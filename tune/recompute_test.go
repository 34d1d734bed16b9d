package tune

import (
	"context"
	"slices"
	"testing"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/plan/plantest"
)

// held searches with this recompute fixed, and returns the largest memory of a worker, in bytes, under the best plan.
func held(t *testing.T, schedule, recompute string, want plan.Recompute) int64 {
	t.Helper()
	r, err := Search(context.Background(), Request{
		Profile: plantest.Chain(18, 1), Cluster: cluster.Local("cpu", 2, 0, 0, 0, 1e9, 0.01), Batch: 16,
		Fix: Overrides{Stages: 2, MicroBatch: 1, Schedule: schedule, Recompute: recompute},
	})
	if err != nil {
		t.Fatalf("%s, %s: %v", schedule, recompute, err)
	}
	for i, st := range r.Best.Stages {
		if st.Recompute != want {
			t.Errorf("%s, recompute %s: stage %d has %v, want %v", schedule, recompute, i, st.Recompute, want)
		}
	}
	return slices.Max(r.Best.Predicted.Needs())
}

// TestRecomputeIsKeptOrFound: a fixed recompute applies to every stage of every family. In the second part nothing is
// fixed. The memory is only enough for stages of nine layers if three layers at a time are recomputed, and the search
// finds a plan that fits. No plan would fit without recompute, or if all layers were recomputed together.
func TestRecomputeIsKeptOrFound(t *testing.T) {
	for _, schedule := range []string{"1f1b", "zb-h1", "interleaved"} {
		held(t, schedule, "none", plan.KeepAll)
		held(t, schedule, "every:2", plan.Every(2))
	}
	nothing, all, some := held(t, "1f1b", "none", plan.KeepAll), held(t, "1f1b", "all", plan.KeepInput),
		held(t, "1f1b", "every:3", plan.Every(3))
	if !(some < all && some < nothing) {
		t.Fatalf("held: %d without, %d all at once, %d three at a time", nothing, all, some)
	}
	r, err := Search(context.Background(), Request{
		Profile: plantest.Chain(18, 1), Cluster: cluster.Local("cpu", 2, 0, some, 0, 1e9, 0.01), Batch: 16,
		Fix: Overrides{Stages: 2, MicroBatch: 1, Schedule: "1f1b"},
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, bytes := range r.Best.Predicted.Needs() {
		if bytes > some {
			t.Errorf("worker %d holds %d of %d", i, bytes, some)
		}
	}
}

// TestComputingAgainMayBeFaster: an exhaustive search uses measured times of recompute, even if they are less than a
// forward and a backward.
func TestComputingAgainMayBeFaster(t *testing.T) {
	p := plantest.Chain(1, 1)
	p.Layers[0].Costs[0].BareForwardS, p.Layers[0].Costs[0].AgainS = new(0.5), new(2.)
	r, err := Search(context.Background(), Request{Profile: p, Cluster: cluster.Local("cpu", 2, 0, 1<<20, 0, 1e9, 1e9),
		Batch: 4})
	if err != nil {
		t.Fatal(err)
	}
	if !r.Exhaustive || r.Best.Predicted.StepS > 5*1.001 { // each device computes two micro-batches of 2.5 s
		t.Errorf("exhaustive %v: %v s, %v; want 5 s", r.Exhaustive, r.Best.Predicted.StepS, r.Best.Why)
	}
}
