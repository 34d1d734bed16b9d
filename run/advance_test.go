package run

import (
	"slices"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/engine/ref"
	"github.com/millrace-ml/millrace/plan"
)

// TestAdvancingChangesNoBit: during a run, warm-up depths adapt and then settle, within the given memory. That holds
// with one pipeline and with two. The weights are those of a run whose depths do not adapt.
func TestAdvancingChangesNoBit(t *testing.T) {
	for _, pipelines := range []int{1, 2} {
		c := small(t, 3, 40)
		c.Engine = ref.New()
		c.Plan.MicroBatch, c.Plan.MicroBatches = 1, 8
		c.Plan.Schedule, c.Plan.Weights, c.Plan.Elastic = "elastic", "elastic", plan.NewElastic(pipelines)
		want := train(t, c)
		var seen [][]int
		settled := false
		a := &Advancing{Plan: c.Plan, Model: c.Model, Clip: c.Train.Clip > 0, Every: 3, Patience: 9,
			Fits: func(k []int) bool { return k[0] <= 6 },
			OnDepths: func(next, _ []int, stepS float64, last bool) {
				if stepS < 0 || settled {
					t.Errorf("a step of %v s; settled: %v", stepS, settled)
				}
				seen, settled = append(seen, next), last
			}}
		c.Next = a.Next
		got := train(t, c)
		if err := sameWeights(want.Weights, got.Weights); err != nil {
			t.Errorf("%d pipelines: %v", pipelines, err)
		}
		// The depths of the first stage are 3, 4, 5 and 6, and then the fastest of these.
		if !settled || len(seen) != 5 || !slices.Equal(seen[0], []int{3, 2, 1}) || !slices.Equal(seen[1], []int{4, 3, 1}) ||
			seen[3][0] != 6 {
			t.Errorf("%d pipelines: depths %v, settled: %v", pipelines, seen, settled)
		}
	}
}

func TestAdvancingRefusesOrdersWithDepthsOfTheirOwn(t *testing.T) {
	c := small(t, 2, 4)
	c.Plan.Schedule = "zb-v"
	c.Next = (&Advancing{Plan: c.Plan, Model: c.Model}).Next
	if _, err := Train(t.Context(), c); err == nil || !strings.Contains(err.Error(), "depths of its own") {
		t.Errorf("got %v", err)
	}
}
