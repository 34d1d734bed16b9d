package extending_test

import (
	"context"
	"fmt"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
)

// begin: planner
func init() {
	plan.RegisterPlanner(plan.Planner{
		Name: "even", Paper: "nobody's: as many layers on every device",
		Plan: func(_ context.Context, r plan.Request) (*plan.Plan, error) {
			layers, devices := len(r.Profile.Layers), len(r.Cluster.Devices)
			if layers < devices {
				return nil, fmt.Errorf("plan: even: %d layers for %d devices; give each one at least", layers, devices)
			}
			p := r.Blank("even", "round_robin")
			p.MicroBatch = max(1, r.MicroBatch)
			p.MicroBatches = r.Batch / p.MicroBatch
			for d := range devices {
				first, next := d*layers/devices, (d+1)*layers/devices
				p.Stages = append(p.Stages, plan.Stage{FirstLayer: first, LastLayer: next - 1, Devices: []int{d},
					Warmup: min(devices-d, p.MicroBatches)})
			}
			p.Objective = plan.Objective{Name: "layers of the largest stage", Unit: "layers",
				Value: float64((layers + devices - 1) / devices)}
			return p, p.Validate()
		},
	})
}

// end: planner

// A registered planner can be chosen with `plan --planner`, and tune tries it among the others.
func Example_planner() {
	c, err := cluster.Preset("dapple-a:1x3")
	if err != nil {
		fmt.Println(err)
		return
	}
	m, err := model.Build("gpt", map[string]any{"layers": 2})
	if err != nil {
		fmt.Println(err)
		return
	}
	costs, err := profile.Analytic(m, c.DeviceTypes, []int{1}, "adam", 2)
	if err != nil {
		fmt.Println(err)
		return
	}
	even, err := plan.LookupPlanner("even")
	if err != nil {
		fmt.Println(err)
		return
	}
	p, err := even.Plan(context.Background(), plan.Request{Profile: costs, Cluster: c, Batch: 8})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(p.Summary())
	for _, s := range p.Stages {
		fmt.Printf("layers %d to %d on device %d\n", s.FirstLayer, s.LastLayer, s.Devices[0])
	}
	// Output:
	// 1f1b, 3 stages, 8 micro-batches of 1
	// layers 0 to 1 on device 0
	// layers 2 to 3 on device 1
	// layers 4 to 6 on device 2
}
