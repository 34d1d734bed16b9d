package tune

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/plan"
)

// mostLimits is how many limits FittingLimit tries.
const mostLimits = 40

// FittingLimit is a memory limit for every device under which a planner gives a plan that the
// simulator finds to keep it, and that plan; it is from, at least, and what some device has. Planners of the papers count
// what their papers count, weights and activations say, and what else a worker holds, such as workspace and
// what is on its way, the simulator alone knows. So what a planner calls the smallest limit may
// not be enough for its plan: the limit is raised to what that plan holds until it is. A planner that names
// none is asked about limits each a quarter above the last.
func FittingLimit(ctx context.Context, p plan.Planner, r plan.Request, from int64) (bytes int64, fits *plan.Plan, err error) {
	limit := max(1, from)
	for d := range r.Cluster.Devices {
		limit = max(limit, r.Cluster.MemoryBytes(d))
	}
	for range mostLimits {
		r.Cluster = limitedTo(r.Cluster, limit)
		pl, err := p.Plan(ctx, r)
		var memory *plan.MemoryError
		switch {
		case errors.As(err, &memory):
			limit = max(limit+limit/16+1, memory.SmallestBytes)
			continue
		case errors.Is(err, plan.ErrMemory):
			limit += limit/4 + 1
			continue
		case err != nil:
			return 0, nil, err
		}
		predicted, err := Simulate(r.Profile, r.Cluster, pl, false)
		if err != nil {
			return 0, nil, err
		}
		peak := slices.Max(predicted.Needs())
		if peak <= limit {
			return limit, pl, nil
		}
		limit = peak
	}
	return 0, nil, fmt.Errorf("tune: planner %s has no plan that keeps %s a device", p.Name, cluster.FormatBytes(limit))
}

// limitedTo is the cluster with so much memory on every device.
func limitedTo(c *cluster.Cluster, bytes int64) *cluster.Cluster {
	next := *c
	next.DeviceTypes = map[string]cluster.DeviceType{}
	for name, t := range c.DeviceTypes {
		t.MemoryBytes = bytes
		next.DeviceTypes[name] = t
	}
	next.Nodes = slices.Clone(c.Nodes)
	for i := range next.Nodes {
		next.Nodes[i].MemoryBytes = 0
	}
	return &next
}
