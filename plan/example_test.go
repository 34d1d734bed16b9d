package plan_test

import (
	"context"
	"fmt"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/plan"
	_ "github.com/millrace-ml/millrace/plan/dapple" // registers the planner
	"github.com/millrace-ml/millrace/profile"
)

// This example plans for a model on a cluster, with costs that are computed from the devices' descriptions.
func ExampleLookupPlanner() {
	c, err := cluster.Preset("dapple-a:2x2")
	if err != nil {
		fmt.Println(err)
		return
	}
	m, err := model.Build("bert-48", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	costs, err := profile.Analytic(m, c.DeviceTypes, []int{1, 2}, "adam", 2)
	if err != nil {
		fmt.Println(err)
		return
	}
	dapple, err := plan.LookupPlanner("dapple")
	if err != nil {
		fmt.Println(err)
		return
	}
	p, err := dapple.Plan(context.Background(), plan.Request{Profile: costs, Cluster: c, Batch: 64, MicroBatch: 2})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(p.Summary())
	for i, s := range p.Stages {
		fmt.Printf("stage %d: layers %d to %d on devices %v\n", i, s.FirstLayer, s.LastLayer, s.Devices)
	}
	// Output:
	// 1f1b, 2 stages of 2 workers, 32 micro-batches of 2
	// stage 0: layers 0 to 49 on devices [0 1]
	// stage 1: layers 50 to 98 on devices [2 3]
}
