// Package avgpipe is AvgPipe's partitioner (PPoPP'23, section 6), which is PipeDream's.
//
// It makes the slowest stage as fast as possible. Its pipelines are straight and synchronous. No stage is
// replicated, because AvgPipe uses parallel pipelines instead. All micro-batches of a batch share one version of the
// weights. The order is 1F1B, which AvgPipe's advance forward propagation then deepens. A pipeline may have fewer
// stages than devices. AvgPipe's tuner chooses the numbers of micro-batches and pipelines. Here there are at least
// as many micro-batches as stages, if the profile's sizes allow it. Inputs and errors are those of package
// pipedream.
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
