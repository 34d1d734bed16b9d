package profile

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// timed returns a cost with seven durations: the argument multiplied by 1, 2, ... 7.
func timed(by float64) Cost {
	return Cost{ForwardS: by, BackwardS: 2 * by, FeedS: 3 * by, BackwardInputS: new(4 * by), BackwardWeightS: new(5 * by),
		BareForwardS: new(6 * by), AgainS: new(7 * by)}
}

// TestEveryTimeIsWorkedOut: WithTimes computes every time of a cost and leaves the original cost unchanged.
func TestEveryTimeIsWorkedOut(t *testing.T) {
	one, three := timed(1), timed(3)
	got := one.WithTimes(&three, func(own, others float64) float64 { return 2*own + others })
	if d := cmp.Diff(timed(5), got); d != "" {
		t.Errorf("twice one and three times as much (-want +got):\n%s", d)
	}
	want := Cost{ForwardS: 10, BackwardS: 200, FeedS: 30, BackwardInputS: new(400.), BackwardWeightS: new(500.),
		BareForwardS: new(60.), AgainS: new(700.)}
	if d := cmp.Diff(want, one.Slowed(10, 100)); d != "" {
		t.Errorf("forwards ten and backwards a hundred times as long (-want +got):\n%s", d)
	}
	if d := cmp.Diff(timed(1), one); d != "" {
		t.Errorf("the cost itself (-want +got):\n%s", d)
	}
	three.AgainS, three.BackwardWeightS = nil, nil
	got = one.WithTimes(&three, func(own, _ float64) float64 { return own })
	if got.AgainS != nil || got.BackwardWeightS != nil || got.BareForwardS == nil {
		t.Errorf("times that one of the two does not know: %+v", got)
	}
	bare := Cost{ForwardS: 1, BackwardS: 2}
	if d := cmp.Diff(Cost{ForwardS: 2, BackwardS: 6}, bare.Slowed(2, 3)); d != "" {
		t.Errorf("where little is known (-want +got):\n%s", d)
	}
}
