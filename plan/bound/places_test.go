package bound

import (
	"testing"

	"github.com/millrace-ml/millrace/cluster"
)

// TestManyGroupsAreNotListed: 25 groups of 8 have about 14 million sets of devices, so the exact list is given up. Two
// groups of 8 have a list.
func TestManyGroupsAreNotListed(t *testing.T) {
	if p := exactPlaces(25, 8, true); p != nil {
		t.Errorf("%d places are listed", len(p.all))
	}
	if p := exactPlaces(2, 8, true); p == nil {
		t.Error("the places of two groups are not listed")
	}
}

// TestOccupiedHasNoLatency: 10 bytes occupy the faster link for 10 x 0.25 s = 2.5 s, without its latency. Here the
// other link has the least latency. If the test's function subtracted that latency, 0.0625 s, from the time of the
// fastest message, 2.75 s, the result would be too long.
func TestOccupiedHasNoLatency(t *testing.T) {
	links := []cluster.Line{{FixedS: 0.25, PerByteS: 0.25}, {FixedS: 0.0625, PerByteS: 0.5}}
	if got := occupied(links, 10); got != 2.5 {
		t.Errorf("%v s, want 2.5", got)
	}
}
