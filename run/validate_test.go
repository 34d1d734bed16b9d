package run

import (
	"math/rand/v2"
	"testing"

	"github.com/millrace-ml/millrace/schedule"
)

// synchronous is the version that a micro-batch goes through where steps end in a flush.
func synchronous(c Config) func(stage, micro, replica int) int {
	return func(_, micro, _ int) int { return micro / c.Plan.MicroBatches }
}

// Updates that go before the norm is known leave the bits of updates that waited, whether norms are
// over the limit never, sometimes or always, in every order that ends in a flush.
func TestValidatedUpdatesEqualThoseThatWait(t *testing.T) {
	e := testEngine(t)
	for _, f := range schedule.Families() {
		if !f.AdmitsPolicy(schedule.Sync) || f.AdmitsPolicy(schedule.Elastic) {
			continue
		}
		t.Run(f.Name, func(t *testing.T) {
			ran, never, sometimes, always := 0, 0, 0, 0
			for seed := range uint64(60) {
				g := rand.New(rand.NewPCG(seed, 31))
				c := randomConfig(t, e, g)
				c.Steps = 2 + g.IntN(5)
				c.KeepSteps = c.Steps
				c.Clip = []float64{1e-4, 0.2, 0.5, 1, 1e6}[g.IntN(5)]
				if !c.placed(f, g) {
					continue
				}
				c.Plan.PostValidate = true
				if _, err := ProgramOf(c.Plan, c.Model, true, 1); err != nil {
					continue
				}
				ran++
				want, clipped := sequentially(t, c, synchronous(c))
				got := train(t, c)
				if err := sameWeights(want, got.Weights); err != nil {
					t.Fatalf("seed %d, %d of %d updates clipped: %v\n%+v", seed, clipped, c.Steps, err, *c.Plan)
				}
				if len(got.Timeline.Steps) != c.Steps || len(got.Timeline.Losses) != c.Steps || got.Steps != c.Steps {
					t.Fatalf("seed %d: %d steps marked, %d losses, %d done of %d", seed, len(got.Timeline.Steps), len(got.Timeline.Losses), got.Steps, c.Steps)
				}
				switch clipped {
				case 0:
					never++
					checkOrder(t, c, got)
				case c.Steps:
					always++
				default:
					sometimes++
				}
			}
			t.Logf("%d cases: norms over the limit never in %d, sometimes in %d, always in %d", ran, never, sometimes, always)
			if ran < 8 || never == 0 || sometimes == 0 || always == 0 {
				t.Errorf("%d of 60 cases suited the family: norms over the limit never in %d, sometimes in %d, always in %d", ran, never, sometimes, always)
			}
		})
	}
}
