package tune

import (
	"errors"
	"slices"
	"testing"

	"github.com/millrace-ml/millrace/plan"
	"pgregory.net/rapid"
)

// TestFixedStagesGiveNoFasterPlan: a search in a small space with a fixed schedule finds a plan as fast as the searches
// that fix the number of stages too.
func TestFixedStagesGiveNoFasterPlan(t *testing.T) {
	t.Parallel()
	for _, schedule := range []string{"1f1b", "zb-h1"} {
		found := 0
		checkSearches(t, 2, func(t *rapid.T) {
			p, c := world(t, rapid.IntRange(3, 5).Draw(t, "layers"), rapid.IntRange(2, 3).Draw(t, "devices"))
			r := Request{Profile: p, Cluster: c, Batch: 4, Fix: Overrides{Schedule: schedule, MicroBatches: 4}}
			free, err := Search(t.Context(), r)
			if memory := (*MemoryError)(nil); errors.As(err, &memory) {
				return
			} else if err != nil {
				t.Fatal(err)
			}
			if !free.search.exhausted {
				return // costs that vary are not examined
			}
			for S := 2; S <= len(c.Devices); S++ {
				r.Fix.Stages = S
				of, err := Search(t.Context(), r)
				if err != nil || slices.ContainsFunc(of.Best.Stages, func(st plan.Stage) bool { return st.Recompute.Again() }) {
					continue // no plan fits, or recompute is faster, which random costs may say, and measured ones seldom
				}
				found++
				if of.Best.Predicted.StepS < free.Best.Predicted.StepS*(1-tie) {
					t.Fatalf("%s: %d stages take %g s, any number takes %g", schedule, S, of.Best.Predicted.StepS,
						free.Best.Predicted.StepS)
				}
			}
		})
		if found == 0 {
			t.Errorf("%s: nothing was compared", schedule)
		}
	}
}
