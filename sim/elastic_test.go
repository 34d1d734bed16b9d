package sim

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/schedule/lower"
)

func loweredOf(t testing.TB, order string, s schedule.Settings) *schedule.Program {
	t.Helper()
	p, err := family.Generate(order, s)
	if err != nil {
		t.Fatal(err)
	}
	if p, err = lower.Lower(p, lower.Options{}); err != nil {
		t.Fatal(err)
	}
	return p
}

// TestElasticFillsBubbles uses uniform stages whose backward takes twice as long as the forward. One pipeline of M
// micro-batches on S stages takes 3 (M+S-1) for a batch. With N pipelines a batch takes at least 1/N of that, because a
// pipeline ends each iteration before it begins the next. It also takes at least the 3 M that a stage computes. The
// simulated time is at most 3 % above the larger of these two bounds.
func TestElasticFillsBubbles(t *testing.T) {
	for _, stages := range []int{2, 3, 4, 6} {
		for _, m := range []int{1, 2, 3, 5, 8} {
			for n := 1; n <= 6; n++ {
				p := loweredOf(t, "elastic", schedule.Settings{Placement: straight(stages), MicroBatches: m, Repeat: 40,
					Elastic: plan.NewElastic(n)})
				_, sum, err := Run(p, Uniform(stages, 1, 2, 0), Options{})
				if err != nil {
					t.Fatal(err)
				}
				each := sum.StepS / float64(n)
				least := max(float64(3*(m+stages-1))/float64(n), float64(3*m))
				if each < least-1e-9 || each > least*1.03 {
					t.Errorf("%d pipelines on %d stages, %d micro-batches: a batch takes %.4g, want %.4g", n, stages, m, each, least)
				}
			}
		}
	}
}

// TestElasticMemory compares the peak on one stage with a sum: N times the bytes of a pipeline, the reference, and the
// most bytes of queue and gradients together.
func TestElasticMemory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 5).Draw(t, "pipelines")
		m := rapid.IntRange(1, 4).Draw(t, "micro-batches")
		p, err := family.Generate("elastic", schedule.Settings{Placement: straight(1), MicroBatches: m, Repeat: 6,
			Elastic: plan.NewElastic(n)})
		if err != nil {
			t.Fatal(err)
		}
		if p, err = lower.Lower(p, lower.Options{}); err != nil {
			t.Fatal(err)
		}
		c := Uniform(1, 1, 2, 0)
		k := &c.Stages[0][0]
		k.FixedBytes, k.ReferenceBytes, k.ParameterBytes, k.SavedBytes = 3000, 1100, 1000, 0
		_, sum, err := Run(p, c, Options{})
		if err != nil {
			t.Fatal(err)
		}
		// A pipeline's gradients, with its buffers, become a step in the queue.
		if want := int64(n*3000 + 1100 + n*1100); sum.PeakBytes[0] != want {
			t.Fatalf("%d pipelines hold %d bytes at most, want %d", n, sum.PeakBytes[0], want)
		}
	})
}

// TestElasticUpdateTimes compares a step of one worker and n pipelines with a sum by hand. Each pipeline has m
// micro-batches, and an update that pulls it towards the reference and puts its step into the queue. The reference's
// update adds up n steps. If the times of these updates were not measured, each update takes as long as a plain one.
func TestElasticUpdateTimes(t *testing.T) {
	for _, n := range []int{1, 2, 3, 5} {
		for _, m := range []int{1, 4} {
			p := loweredOf(t, "elastic", schedule.Settings{Placement: straight(1), MicroBatches: m, Repeat: 8,
				Elastic: plan.NewElastic(n)})
			c := Uniform(1, 1, 2, 0)
			c.Stages[0][0].UpdateS = 0.5
			compute := float64(3 * n * m)
			for _, k := range []struct{ elastic, reference, want float64 }{
				{0.75, 0.125, compute + float64(n)*(0.75+0.125)},
				{0, 0, compute + float64(n+1)*0.5},
			} {
				c.Stages[0][0].PulledUpdateS, c.Stages[0][0].ReferenceUpdateS = k.elastic, k.reference
				want := k.want
				if n == 1 {
					want = compute + 0.5 // one pipeline trains without a reference
				}
				_, sum, err := Run(p, c, Options{})
				if err != nil {
					t.Fatal(err)
				}
				if sum.StepS < want-1e-9 || sum.StepS > want+1e-9 {
					t.Errorf("%d pipelines, %d micro-batches, updates of %v and %v: %v a step, want %v", n, m, k.elastic, k.reference,
						sum.StepS, want)
				}
			}
		}
	}
}
