package tune

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
)

// imported returns a profile of one size. The costs of other sizes are in proportion.
func imported(layers, size int) *profile.Profile {
	p := &profile.Profile{Version: profile.Version, Model: "imported", Source: "imported"}
	for i := range layers {
		p.Layers = append(p.Layers, profile.Layer{
			Name: string(rune('a' + i)), Kind: "linear", From: []int{i - 1}, TiedTo: -1, ParameterBytes: 1 << 20,
			Costs: []profile.Cost{{Device: profile.AnyDevice, MicroBatch: size, ForwardS: 0.01, BackwardS: 0.02,
				OutputBytes: 1 << 10, SavedBytes: 1 << 10}},
		})
	}
	return p
}

// TestBatchesOfAnySizeEnd: for any batch, a search ends or refuses.
func TestBatchesOfAnySizeEnd(t *testing.T) {
	c, err := cluster.Preset("pipedream-a:2x2")
	if err != nil {
		t.Fatal(err)
	}
	for _, batch := range []int{64, 65536, 1 << 20, 99999989} { // the last is prime
		found, err := Search(t.Context(), Request{Profile: imported(5, 64), Cluster: c, Batch: batch,
			Time: 200 * time.Millisecond})
		var memory *MemoryError
		if err != nil && !errors.As(err, &memory) {
			t.Errorf("batch %d: %v", batch, err)
		}
		if err == nil && found.Best.Batch() != batch {
			t.Errorf("batch %d: a plan of %d samples", batch, found.Best.Batch())
		}
	}
	for _, batch := range []int{0, -4, plan.MaxBatch + 1, 1e12, 1e18} {
		_, err := Search(t.Context(), Request{Profile: imported(5, 64), Cluster: c, Batch: batch})
		if err == nil || !strings.Contains(err.Error(), "it is 1 to 268435455") {
			t.Errorf("batch %d: %v", batch, err)
		}
	}
}

// TestASmallestLimitSaysWhatWasLeftOut: the micro-batches that would fit are too many to simulate. The error says so.
func TestASmallestLimitSaysWhatWasLeftOut(t *testing.T) {
	c := cluster.Local("cpu", 2, 0, 10<<20, 0, 1e9, 0.01)
	p := imported(2, 64)
	for i := range p.Layers {
		p.Layers[i].Costs[0].SavedBytes = 64 << 20
	}
	_, err := Search(t.Context(), Request{Profile: p, Cluster: c, Batch: 1 << 27, Time: 100 * time.Millisecond})
	var memory *MemoryError
	if !errors.As(err, &memory) || memory.Skipped == "" ||
		!strings.HasSuffix(err.Error(), "; not all were looked at: "+memory.Skipped) ||
		strings.Contains(memory.Skipped, "tune:") {
		t.Errorf("got %v", err)
	}
}

// TestEveryFallingStops: everyFalling stops when `yield` returns false, long before it has listed all depths.
func TestEveryFallingStops(t *testing.T) {
	n := 0
	everyFalling(6, 1<<20, func([]int) bool { n++; return n < 100 })
	if n != 100 {
		t.Errorf("went on to %d", n)
	}
}

// TestLongest: a search of a fixed amount of work ends after Longest with the best plan so far. If Longest is hours,
// the result is the same every time.
func TestLongest(t *testing.T) {
	c, err := cluster.Preset("pipedream-a:2x2")
	if err != nil {
		t.Fatal(err)
	}
	within := func(longest, limit time.Duration) *Result {
		found, err := Search(t.Context(), Request{Profile: imported(14, 8), Cluster: c, Batch: 64, Longest: longest,
			Time: limit})
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	long, short, timed := within(time.Hour, 0), within(time.Nanosecond, 0), within(time.Hour, time.Nanosecond)
	if again := within(time.Hour, 0); again.Tried != long.Tried || again.Estimated != long.Estimated {
		t.Errorf("%d plans simulated and %d estimated, then %d and %d", long.Tried, long.Estimated, again.Tried,
			again.Estimated)
	}
	for _, r := range []*Result{short, timed} {
		if r.Tried >= long.Tried || r.Best.Predicted.StepS < long.Best.Predicted.StepS {
			t.Errorf("in no time %d plans simulated, the best %v s; in an hour %d and %v s", r.Tried, r.Best.Predicted.StepS,
				long.Tried, long.Best.Predicted.StepS)
		}
	}
	for _, r := range []Request{{Longest: -1}, {Time: -1}} {
		r.Profile, r.Cluster, r.Batch = imported(3, 8), c, 64
		if _, err := Search(t.Context(), r); err == nil || !strings.Contains(err.Error(), "-1ns to search") {
			t.Errorf("%v, %v: %v", r.Longest, r.Time, err)
		}
	}
}
