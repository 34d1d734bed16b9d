package tune

import (
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/programs"
	"github.com/millrace-ml/millrace/sim"
	"github.com/millrace-ml/millrace/trace"
)

// firstStep simulates a plan's first step, for a drawing; nil where nobody would read so much. A stream of single
// minibatches is simulated until every worker has had two.
func firstStep(r Request, pl *plan.Plan, costs sim.Costs) (*trace.Timeline, error) {
	if len(pl.Devices()) > 64 || pl.MicroBatches > 4096 {
		return nil, nil
	}
	steps := 1
	if !schedule.Policy(pl.Weights).Synchronous() && pl.MicroBatches == 1 {
		for i, s := range pl.Stages {
			steps = max(steps, 2*len(s.Devices)+len(pl.Stages)-1-i)
		}
	}
	program, err := programs.Build(pl, r.Profile.TiedLayers(), r.Clip, steps)
	if err != nil {
		return nil, err
	}
	t, _, err := sim.Run(program, costs, sim.Options{Record: true, Vary: costs.Noise.Vary()})
	return t, err
}
