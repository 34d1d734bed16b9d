package planners

import (
	"context"
	"math"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
)

// TestNoPlannerTakesAnEndlessBatch: planners refuse batches that are negative, zero, or so large that a search would
// not end.
func TestNoPlannerTakesAnEndlessBatch(t *testing.T) {
	c, err := cluster.Preset("pipedream-a")
	if err != nil {
		t.Fatal(err)
	}
	p := &profile.Profile{Version: profile.Version, Model: "two", Source: "imported"}
	for _, name := range []string{"a", "b"} {
		p.Layers = append(p.Layers, profile.Layer{Name: name, Kind: "linear", TiedTo: -1,
			Costs: []profile.Cost{{Device: c.Devices[0], MicroBatch: 64, ForwardS: 1, BackwardS: 2}}})
	}
	for _, planner := range plan.Planners() {
		for _, batch := range []int{math.MinInt, -4, 0, plan.MaxBatch + 1, 1e12, 1e18, math.MaxInt} {
			_, err := planner.Plan(context.Background(), plan.Request{Profile: p, Cluster: c, Batch: batch})
			if err == nil || !strings.Contains(err.Error(), "it is 1 to 268435455") ||
				!strings.Contains(err.Error(), planner.Name) {
				t.Errorf("%s, batch %d: %v", planner.Name, batch, err)
			}
		}
	}
}
