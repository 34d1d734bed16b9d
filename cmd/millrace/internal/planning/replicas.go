package planning

import (
	"errors"
	"strings"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/cmd/internal/prepare"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/tune/predict"
	"github.com/millrace-ml/millrace/tune/shape"
)

// replicas says what the replicas of a stage divide among themselves, and when they sum gradients. It leaves out
// defaults.
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

// apart returns how the step of a plan for described devices divides into parts, and what it depends on. It returns nil
// if the costs are not computed, if steps overlap, or if a simulation would be too much work.
func apart(p *prepare.Prepared) (*shape.Prediction, []shape.Sensitivity, error) {
	if p.Model == nil || p.Job.Machine.Cluster == "" || p.Job.Plan.Profile != "" || p.Plan.Predicted == nil {
		return nil, nil, nil
	}
	best, sensitive, err := shape.Planned{Model: p.Model, Cluster: p.Cluster, Plan: p.Plan, Clip: p.Job.Train.Clip > 0,
		Costs: func(c *cluster.Cluster) (*profile.Profile, error) {
			own := *p
			err := own.CostsOn(c)
			return own.Profile, err
		}}.Explain()
	var work *predict.WorkError
	if errors.Is(err, shape.ErrStream) || errors.As(err, &work) {
		return nil, nil, nil // the picture and the table of memory show what is known
	}
	return best, sensitive, err
}
