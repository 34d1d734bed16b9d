package sim

import (
	"slices"
	"testing"

	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/schedule/lower"
	"github.com/millrace-ml/millrace/sim/memory"
)

// TestOlderVersionsHaveThePrecisionOfTheWeights: by hand, weights in bf16 take 20 B, and their gradients in 32 bits
// take 40 B. With states, a worker holds 100 B throughout. When an update begins, it also holds the gradients and older
// versions of 20 B each. With stash, the worker of stage s of three has 2-s of them. With double buffering it has one,
// and with latest none.
func TestOlderVersionsHaveThePrecisionOfTheWeights(t *testing.T) {
	for policy, want := range map[schedule.Policy][]int64{
		schedule.Stash:          {100 + 40 + 2*20, 100 + 40 + 20, 100 + 40},
		schedule.DoubleBuffered: {100 + 40 + 20, 100 + 40 + 20, 100 + 40 + 20},
		schedule.Latest:         {100 + 40, 100 + 40, 100 + 40},
	} {
		micros := 1
		if policy == schedule.DoubleBuffered { // a minibatch has at least as many micro-batches as there are stages
			micros = 3
		}
		p, err := family.Generate("1f1b-rr", schedule.Settings{Placement: schedule.Replicated(3, 1), MicroBatches: micros,
			Repeat: 12, Weights: policy})
		if err == nil {
			p, err = lower.Lower(p, lower.Options{})
		}
		if err != nil {
			t.Fatal(err)
		}
		costs := Uniform(3, 1, 2, 0)
		for s := range costs.Stages {
			costs.Stages[s][0].Held = memory.Held{FixedBytes: 100, WeightBytes: 20, ParameterBytes: 40}
		}
		_, sum, err := Run(p, costs, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(sum.PeakBytes, want) {
			t.Errorf("%s: %v bytes, by hand %v", policy, sum.PeakBytes, want)
		}
	}
}
