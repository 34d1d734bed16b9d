package dapple

import (
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/plan/dapple/servers"
	"github.com/millrace-ml/millrace/plan/plantest"
)

// TestSaysThatSetsWereLeftOut: PlaceEach keeps at most MaxWays sets of devices, and Limited says whether it left some
// out. If none were left out, the plan's reasons do not mention sets.
func TestSaysThatSetsWereLeftOut(t *testing.T) {
	for _, c := range []struct {
		devices, each int
		limited       bool
	}{{16, 8, false}, {1024, 8, true}} {
		s := servers.New(c.devices, c.each, servers.Left)
		half := s.None() // taken: half of the devices of every other server
		for i := 0; i < len(half); i += 2 {
			half[i] = uint32(c.each / 2)
		}
		ways := s.PlaceEach(half, 1, min(64, c.devices/4))
		if s.Limited != c.limited || len(ways) > servers.MaxWays {
			t.Errorf("%d devices, %d a server: %d sets, left out %v, want %v", c.devices, c.each, len(ways), s.Limited,
				c.limited)
		}
	}
	r := plantest.EvenChain(8, 2, 1e9)
	p, err := find(t.Context(), plan.Request{Profile: r.Profile, Cluster: r.Cluster, Batch: 8, Formula: "artifact"})
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(strings.Join(p.Why, " "), "sets of devices") {
		t.Errorf("two devices have no sets left out: %v", p.Why)
	}
}

// TestSaysWhereItCuts: for a profile that branches, the plan's reasons say where it cuts; for a chain they do not.
func TestSaysWhereItCuts(t *testing.T) {
	for _, branched := range []bool{false, true} {
		r := plantest.EvenChain(8, 2, 1e9)
		if branched {
			r.Profile.Layers[5].From = []int{4, 1}
		}
		p, err := find(t.Context(), plan.Request{Profile: r.Profile, Cluster: r.Cluster, Batch: 8,
			Set: map[string]string{"dp": "no"}})
		if err != nil {
			t.Fatal(err)
		}
		if said := strings.Contains(strings.Join(p.Why, " "), "Layers branch"); said != branched {
			t.Errorf("branches %v: %v", branched, p.Why)
		}
	}
}
