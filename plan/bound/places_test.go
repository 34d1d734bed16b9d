package bound

import (
	"testing"

	"github.com/millrace-ml/millrace/cluster"
)

// TestManyGroupsAreNotListed: 25 groups of 8 have about 14 million sets of devices, so exactPlaces returns nil. For two
// groups of 8 it returns a list.
func TestManyGroupsAreNotListed(t *testing.T) {
	if p := exactPlaces(25, 8, true); p != nil {
		t.Errorf("%d places are listed", len(p.all))
	}
	if p := exactPlaces(2, 8, true); p == nil {
		t.Error("the places of two groups are not listed")
	}
}

// TestOccupiedHasNoLatency: 10 bytes occupy the faster link for 10 x 0.25 s = 2.5 s, without its latency. The fastest
// message takes 2.75 s. The other link has the least latency, 0.0625 s. If occupied subtracted this latency from 2.75
// s, its result would be too large.
func TestOccupiedHasNoLatency(t *testing.T) {
	links := []cluster.Line{{FixedS: 0.25, PerByteS: 0.25}, {FixedS: 0.0625, PerByteS: 0.5}}
	if got := occupied(links, 10); got != 2.5 {
		t.Errorf("%v s, want 2.5", got)
	}
}
