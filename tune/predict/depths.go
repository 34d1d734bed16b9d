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

// Advanced returns a copy of a plan that runs more forwards in advance of 1F1B (AvgPipe §4.2), with a new prediction.
// How many more depends on the stage.
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

// deepening lists the families that allow forwards in advance. These are the families with depths, each named by its
// general family.
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

// WithDepths returns a copy of a plan with the given depths K_i, by stage, and a new prediction.
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

// DepthsFit says whether the simulator predicts that a plan with these depths fits the memory of its devices.
func DepthsFit(p *profile.Profile, c *cluster.Cluster, pl *plan.Plan, clip bool, depths []int) bool {
	out, err := WithDepths(p, c, pl, clip, depths)
	if err != nil {
		return false
	}
	_, over := Over(c, out, out.Predicted)
	return over == 0
}

// Over returns the device that exceeds its memory most in a prediction, and by how many bytes; `bytes` is 0 if none
// does.
func Over(c *cluster.Cluster, pl *plan.Plan, q *plan.Predicted) (device int, bytes int64) {
	needs := q.Needs()
	for i, d := range pl.Devices() {
		if limit := c.MemoryBytes(d); limit > 0 && needs[i]-limit > bytes {
			device, bytes = d, needs[i]-limit
		}
	}
	return device, bytes
}
