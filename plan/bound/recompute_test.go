package bound

import (
	"testing"

	"github.com/millrace-ml/millrace/profile"
	"pgregory.net/rapid"
)

// TestCheapestIsBelowBoth: cheapest bounds a forward plus its backward, and a forward plus the backward's first
// half. Each bound equals the smaller of the sums with and without recompute.
func TestCheapestIsBelowBoth(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		some := rapid.Float64Range(0, 4)
		forward, backward, bare, again := some.Draw(t, "forward"), some.Draw(t, "backward"), some.Draw(t,
			"bare"), some.Draw(t, "again")
		input := backward * rapid.Float64Range(0, 1).Draw(t, "input")
		costs := []profile.Cost{{ForwardS: forward, BackwardS: backward, BackwardInputS: new(input),
			BareForwardS: new(bare), AgainS: new(again)}}
		c := cheapest(costs, false)[0]
		if want := min(forward+backward, bare+again); !nearly(c.ForwardS+c.BackwardS, want) {
			t.Errorf("forward and backward take %v s, want %v", c.ForwardS+c.BackwardS, want)
		}
		// Package sim adds the extra time of a recompute to the first half.
		if want := min(forward, bare+max(0, again-backward)) + input; !nearly(c.ForwardS+*c.BackwardInputS, want) {
			t.Errorf("forward and the first half take %v s, want %v", c.ForwardS+*c.BackwardInputS, want)
		}
		if c.ForwardS < 0 || c.BackwardS < 0 || *c.BackwardInputS < 0 || costs[0].ForwardS != forward ||
			*costs[0].BackwardInputS != input {
			t.Errorf("%+v of %+v", c, costs[0])
		}
	})
}

// nearly reports whether a and b are equal up to rounding.
func nearly(a, b float64) bool { return a-b < 1e-9 && b-a < 1e-9 }
