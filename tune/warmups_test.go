package tune

import (
	"testing"

	"github.com/millrace-ml/millrace/plan"
)

// TestALayoutNamesAWarmupThatIsNotItsOwn: a plan's name has the warm-up only if that is not the schedule's own. On S =
// 2 stages, zb-h1 has 2, 1 (S-i), and zb-auto 3, 3 (2S-1).
func TestALayoutNamesAWarmupThatIsNotItsOwn(t *testing.T) {
	for _, c := range []struct {
		schedule string
		warmup   [2]int
		want     string
	}{
		{"zb-h1", [2]int{2, 1}, ""}, {"zb-h1", [2]int{3, 3}, ", warm-up 3, 3"}, {"zb-h1", [2]int{0, 0}, ""},
		{"zb-auto", [2]int{3, 3}, ""}, {"zb-auto", [2]int{2, 2}, ", warm-up 2, 2"}, {"1f1b", [2]int{4, 1}, ", warm-up 4, 1"},
		{"interleaved", [2]int{4, 1}, ""},
	} {
		pl := &plan.Plan{Schedule: c.schedule, MicroBatch: 16, MicroBatches: 4}
		for d, k := range c.warmup {
			pl.Stages = append(pl.Stages, plan.Stage{FirstLayer: d, LastLayer: d, Devices: []int{d}, Warmup: k})
		}
		if got, want := nameOf(pl), pl.Layout()+c.want; got != want {
			t.Errorf("%s with warm-up %v is %q, not %q", c.schedule, c.warmup, got, want)
		}
	}
}
