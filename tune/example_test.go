package tune_test

import (
	"context"
	"fmt"
	"time"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/tune"
)

// A search finds the plan whose simulated step is the shortest, and keeps its rivals.
func ExampleSearch() {
	c, err := cluster.Preset("dapple-a:1x2")
	if err != nil {
		fmt.Println(err)
		return
	}
	m, err := model.Build("mlp", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	costs, err := profile.Analytic(m, c.DeviceTypes, []int{4, 8, 16}, "sgd", 0)
	if err != nil {
		fmt.Println(err)
		return
	}
	found, err := tune.Search(context.Background(), tune.Request{Profile: costs, Cluster: c, Batch: 16,
		Runnable: true, Longest: time.Hour})
	if err != nil {
		fmt.Println(err)
		return
	}
	best := found.Best
	fmt.Printf("%s: %d of %d devices\n", best.Schedule, len(best.Devices()), len(c.Devices))
	fmt.Println("rivals are slower:", found.Rivals[0].Predicted.StepS >= best.Predicted.StepS)
	// Output:
	// dp: 1 of 2 devices
	// rivals are slower: true
}
