// Package avgpipe is AvgPipe's partitioner (PPoPP'23, section 6), which is PipeDream's.
//
// The slowest stage is made as fast as can be. Its pipelines are straight and synchronous: no stage is
// replicated (that is what its parallel pipelines are for), all micro-batches of a batch share one version of
// the weights, and the order is 1F1B, which its advance forward propagation then deepens. A pipeline of fewer
// stages than devices is allowed. How many micro-batches and how many pipelines is its tuner's to say; here
// it is as many micro-batches as stages at least, where the profile's sizes have it. It takes and refuses
// what package pipedream does.
package avgpipe

import (
	"context"
	"slices"

	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/plan/pipedream"
)

func init() {
	settings := slices.Clone(pipedream.Settings)
	for i := range settings {
		if n := settings[i].Name; n == "straight_pipeline" || n == "use_fewer_machines" {
			settings[i].Default = "on"
		}
	}
	plan.RegisterPlanner(plan.Planner{
		Name: "avgpipe", Averages: true, Paper: "Elastic Averaging for Efficient Pipelined DNN Training (Chen et " +
			"al., PPoPP 2023), section 6",
		Settings: settings,
		Plan: func(ctx context.Context, r plan.Request) (*plan.Plan, error) {
			return pipedream.Flushed(ctx, "avgpipe", settings, r)
		},
	})
}
