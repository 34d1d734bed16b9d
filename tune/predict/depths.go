package predict

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/schedule/family"
)

// Advanced is a plan with so many forwards in advance of 1F1B (AvgPipe §4.2), graded by stage,
// predicted anew.
func Advanced(p *profile.Profile, c *cluster.Cluster, pl *plan.Plan, clip bool, advance int) (*plan.Plan, error) {
	f, err := family.Lookup(pl.Schedule)
	if err != nil {
		return nil, fmt.Errorf("tune: %w", err)
	}
	if f.Warmup == nil {
		return nil, fmt.Errorf("tune: schedule %s has depths of its own; forwards in advance are for %s", f.Name,
			strings.Join(deepening(), " and "))
	}
	depths, err := family.AdvanceDepths(len(pl.Stages), pl.MicroBatches, advance, family.Graded)
	if err != nil {
		return nil, fmt.Errorf("tune: %w", err)
	}
	return WithDepths(p, c, pl, clip, depths)
}

// deepening are the families that forwards in advance are for: those with depths, each by the one
// that it is a choice of.
func deepening() []string {
	var names []string
	for _, f := range family.All() {
		if f.Warmup != nil {
			names = append(names, cmp.Or(f.General, f.Name))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// WithDepths is a plan with other depths K_i by stage, predicted anew.
func WithDepths(p *profile.Profile, c *cluster.Cluster, pl *plan.Plan, clip bool, depths []int) (*plan.Plan, error) {
	out := *pl
	out.Stages = slices.Clone(pl.Stages)
	for i := range out.Stages {
		out.Stages[i].Warmup = depths[i]
	}
	predicted, err := Plan(p, c, &out, clip)
	if err != nil {
		return nil, err
	}
	out.Predicted, out.LowerBound = &predicted, nil
	return &out, nil
}

// DepthsFit says whether a plan with these depths is within the memory of its devices, by the
// simulator.
func DepthsFit(p *profile.Profile, c *cluster.Cluster, pl *plan.Plan, clip bool, depths []int) bool {
	out, err := WithDepths(p, c, pl, clip, depths)
	if err != nil {
		return false
	}
	_, over := Over(c, out, out.Predicted)
	return over == 0
}

// Over is the device that a prediction has the most over its memory, and by how many bytes; 0 if none is.
func Over(c *cluster.Cluster, pl *plan.Plan, q *plan.Predicted) (device int, bytes int64) {
	needs := q.Needs()
	for i, d := range pl.Devices() {
		if limit := c.MemoryBytes(d); limit > 0 && needs[i]-limit > bytes {
			device, bytes = d, needs[i]-limit
		}
	}
	return device, bytes
}
