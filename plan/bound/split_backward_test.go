package bound

import (
	"testing"

	"github.com/millrace-ml/millrace/profile"
)

// A profile may have measured the halves of a backward as less than the whole, 1 and 2 s of 5: orders with halves take
// 3 s then, and a bound for them no more. That of other orders is of the whole backward. Computed again, a layer takes
// the half second longer that it takes there.
func TestHalvesThatTakeLessThanTheWhole(t *testing.T) {
	cost := profile.Cost{ForwardS: 2, BackwardS: 5, BackwardInputS: new(1.0), BackwardWeightS: new(2.0)}
	if c := cheapest([]profile.Cost{cost}, true)[0]; c.ForwardS+c.BackwardS != 5 || *c.BackwardInputS != 1 {
		t.Errorf("with halves: %v and %v, the first half %v", c.ForwardS, c.BackwardS, *c.BackwardInputS)
	}
	if c := cheapest([]profile.Cost{cost}, false)[0]; c.ForwardS+c.BackwardS != 7 {
		t.Errorf("without: %v and %v", c.ForwardS, c.BackwardS)
	}
	cost.BareForwardS, cost.AgainS = new(1.0), new(5.5)
	if c := cheapest([]profile.Cost{cost}, true)[0]; c.ForwardS+c.BackwardS != 4.5 {
		t.Errorf("computed again: %v and %v", c.ForwardS, c.BackwardS)
	}
}
