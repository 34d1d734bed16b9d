package bound

import (
	"testing"

	"github.com/millrace-ml/millrace/profile"
)

// TestHalvesThatTakeLessThanTheWhole: in a measured profile, the two halves of a backward may take less time than the
// whole backward. Here the halves take 1 s and 2 s, and the whole takes 5 s. A backward in halves then takes 3 s, so
// the bound for orders with split backwards counts at most 3 s for a backward. The bound for other orders counts the
// whole backward. With recompute, the forward takes 1 s instead of 2 s, and the backward 0.5 s more. The sum is then 1
// + 3 + 0.5 = 4.5 s.
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
