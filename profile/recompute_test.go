package profile

import (
	"math"
	"strings"
	"testing"
)

// TestComputingAgainBetweenSizes: between two measured sizes, the times of recomputing and of copying inputs are
// interpolated linearly. If recomputing was not measured at one size, it takes as long as a forward.
func TestComputingAgainBetweenSizes(t *testing.T) {
	cost := func(size int, s float64) Cost {
		return Cost{Device: "cpu", MicroBatch: size, ForwardS: 2 * s, BackwardS: 3 * s, BareForwardS: new(s),
			AgainS: new(4 * s), FeedS: s / 4}
	}
	p := &Profile{Version: Version, Model: "m", Layers: []Layer{{Name: "l", TiedTo: -1,
		Costs: []Cost{cost(2, 1), cost(6, 5)}}}}
	costs, _, err := p.At("cpu", 3)
	if err != nil {
		t.Fatal(err)
	}
	if f, b := costs[0].Again(); math.Abs(f-2) > 1e-12 || math.Abs(b-8) > 1e-12 ||
		math.Abs(costs[0].FeedS-0.5) > 1e-12 {
		t.Errorf("forward %v s, backward %v s, inputs %v s; want 2, 8 and 0.5", f, b, costs[0].FeedS)
	}
	p.Layers[0].Costs[1].AgainS = nil
	if costs, _, err = p.At("cpu", 3); err != nil {
		t.Fatal(err)
	}
	if f, b := costs[0].Again(); math.Abs(f-4) > 1e-12 || math.Abs(b-10) > 1e-12 {
		t.Errorf("where one size was not measured: forward %v s, backward %v s; want 4 and 10", f, b)
	}
	p.Layers[0].Costs[0].FeedS = -1
	if err := p.Validate(); err == nil || !strings.Contains(err.Error(), "feed_s is -1") {
		t.Errorf("inputs copied in less than no time: %v", err)
	}
}
