package tight

import (
	"context"

	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/family"
)

// chunked simulates the plans of families that place several stages on a worker, for every cut.
func (e *every) chunked(ctx context.Context) error {
	n, W := len(e.p.Layers), len(e.c.Devices)
	for _, f := range family.All() {
		if f.Place == nil || f.Streaming || !f.AdmitsPolicy(schedule.Sync) {
			continue
		}
		for v := 1; v <= n/W+1; v++ {
			on := f.Placement(W, v)
			if len(on) > n || f.Chunks > 1 && v != f.Chunks {
				continue
			}
			err := everyCut(n, len(on), func(first []int) error {
				for _, m := range plan.Divisors(e.batch) {
					if err := context.Cause(ctx); err != nil {
						return err
					}
					pl := &plan.Plan{Version: plan.Version, Replication: "round_robin", MicroBatch: m, MicroBatches: e.batch / m,
						Schedule: f.Name, Weights: string(schedule.Sync), Planner: "given"}
					for i, l := range first {
						st := plan.Stage{FirstLayer: l, LastLayer: n - 1, Devices: on[i]}
						if i+1 < len(first) {
							st.LastLayer = first[i+1] - 1
						}
						pl.Stages = append(pl.Stages, st)
					}
					if _, err := e.play(pl); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// everyCut yields the first layers of the stages for every way to cut n layers into stages.
func everyCut(n, stages int, yield func(first []int) error) error {
	first := make([]int, stages)
	var walk func(i int) error
	walk = func(i int) error {
		if i == stages {
			return yield(first)
		}
		for l := first[i-1] + 1; l <= n-(stages-i); l++ {
			first[i] = l
			if err := walk(i + 1); err != nil {
				return err
			}
		}
		return nil
	}
	return walk(1)
}
