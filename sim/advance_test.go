package sim

import (
	"testing"

	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/family"
)

// advanced simulates a step of a family with the given warm-up depths. A message takes a quarter of the time of a
// forward.
func advanced(t *testing.T, family string, warmup []int, stages, m int) (stepS float64, held []int) {
	t.Helper()
	p := loweredOf(t, family, schedule.Settings{Placement: straight(stages), MicroBatches: m, Warmup: warmup})
	_, sum, err := Run(p, Uniform(stages, 1, 2, 0.25), Options{})
	if err != nil {
		t.Fatal(err)
	}
	return sum.StepS, sum.PeakActivations
}

// TestAdvanceReachesAFAB uses 8 stages, 32 micro-batches and messages of a quarter of a forward. With the depths that
// the controller settles on, a step takes at most 3 % longer than AFAB's 120.5, and the stages hold fewer
// micro-batches. Deepening only the first stage gains next to nothing.
func TestAdvanceReachesAFAB(t *testing.T) {
	const stages, m = 8, 32
	sum := func(xs []int) (n int) {
		for _, x := range xs {
			n += x
		}
		return n
	}
	afab, all := advanced(t, "afab", nil, stages, m)
	plain, one := advanced(t, "1f1b", nil, stages, m)
	alone := []int{m, 7, 6, 5, 4, 3, 2, 1}
	first, _ := advanced(t, "1f1b", alone, stages, m)
	if afab != 120.5 || plain != 134 || first != 133.5 {
		t.Errorf("AFAB %v, 1F1B %v, the first stage alone %v; want 120.5, 134 and 133.5", afab, plain, first)
	}
	for _, rule := range family.AdvanceRules() {
		a := family.Advance{Stages: stages, MicroBatches: m, Rule: rule, Patience: 3}
		k, err := a.Depths()
		if err != nil {
			t.Fatal(err)
		}
		asked := 0
		for settled := false; !settled; asked++ {
			took, _ := advanced(t, "1f1b", k, stages, m)
			k, settled = a.Next(took, true)
		}
		took, held := advanced(t, "1f1b", k, stages, m)
		t.Logf("%s: %v after %d iterations, step %v, %d micro-batches held in all; 1F1B %d, AFAB %d", rule, k, asked, took,
			sum(held), sum(one), sum(all))
		// The printed rule has the same advance on every stage. Each increase then gains a little, until nearly all
		// micro-batches are in advance. So this rule settles on large advances. Only the graded rule must hold at most
		// a quarter of the micro-batches that AFAB holds.
		if took > afab*1.03 || sum(held) >= sum(all) || rule == family.Graded && sum(held) > sum(all)/4 {
			t.Errorf("%s settles on %v: step %v and %v held; AFAB %v and %v", rule, k, took, held, afab, all)
		}
	}
}
