package planning

import (
	"strings"

	"github.com/millrace-ml/millrace/plan"
)

// replicas says what the replicas of stages divide and when they sum, where that is not as usual.
func replicas(pl *plan.Plan) string {
	var says []string
	if pl.Shard != plan.ShardNothing {
		says = append(says, map[plan.Shard]string{plan.ZeRO1: "divide the optimizer's states",
			plan.ZeRO2: "divide the optimizer's states and gradients",
			plan.ZeRO3: "divide the optimizer's states, gradients and weights"}[pl.Shard]+" (shard "+pl.Shard.String()+")")
	}
	if pl.Gradients != plan.GradientsOverlapped {
		says = append(says, "sum gradients "+map[bool]string{true: "behind the last backward",
			false: "beside the last backward"}[pl.Gradients == plan.GradientsBehind]+" (gradients "+
			pl.Gradients.String()+")")
	}
	return strings.Join(says, "; ")
}
