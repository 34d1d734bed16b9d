package avgpipe

import (
	"context"
	"fmt"
	"slices"

	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/tune"
	"github.com/millrace-ml/millrace/tune/roles"
)

// Partition returns the Base of a Workload. Its stages are the fixed split, or the result of AvgPipe's partitioner
// (PipeDream's, section 6). The partitioner uses every device; if there are fewer layers than devices, it may use fewer
// devices.
//
// Errors: a split that contradicts the model or the devices, as in Search; a fixed number of stages, which the
// partitioner does not support.
func Partition(ctx context.Context, w *Workload, fix tune.Overrides) (*plan.Plan, error) {
	check := tune.Request{Profile: w.Profile, Cluster: w.Cluster, Batch: w.Batch, Fix: fix}
	if err := check.Check(); err != nil {
		return nil, err
	}
	if fix.Split == nil && fix.Stages > 0 {
		return nil, fmt.Errorf("tune: %d stages are fixed and AvgPipe's partitioner takes every device; give a split or "+
			"as many devices", fix.Stages)
	}
	planner := roles.Partitioner()
	base := &plan.Plan{
		Version: plan.Version, Model: w.Profile.Model, ModelID: w.Profile.ModelID, Cluster: w.Cluster.Name,
		Replication: string(schedule.RoundRobin), Planner: planner.Name, MicroBatch: 1, MicroBatches: 1,
	}
	first := 0
	for i, cut := range slices.Concat(fix.Split, []int{len(w.Profile.Layers)}) {
		base.Stages = append(base.Stages, plan.Stage{FirstLayer: first, LastLayer: cut - 1, Devices: []int{i}})
		first = cut
	}
	if fix.Split == nil && len(w.Cluster.Devices) > 1 {
		var err error
		fewer := "off"
		if len(w.Cluster.Devices) > len(w.Profile.Layers) {
			fewer = "on"
		}
		if base, err = planner.Plan(ctx, plan.Request{
			Profile: w.Profile, Cluster: w.Cluster.Unlimited(), Batch: w.Batch, MicroBatch: fix.MicroBatch,
			Boundary: fix.Boundary,
			Set:      map[string]string{"use_fewer_machines": fewer},
		}); err != nil {
			return nil, fmt.Errorf("tune: AvgPipe's partitioner: %w", err)
		}
	}
	again, _, err := fix.FixedRecompute()
	if err != nil {
		return nil, err
	}
	for i := range base.Stages {
		base.Stages[i].Recompute = again
	}
	if len(base.Stages) > 1 {
		base.Boundary = fix.Boundary
	}
	return base, nil
}
