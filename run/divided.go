package run

import (
	"fmt"

	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/stage/optim"
)

// pieces returns the plan and the model as they are executed: each piece of a divided layer (BaPipe §3.3.2) becomes
// a layer. Reports, checkpoints and resuming use the whole layers.
func pieces(p *plan.Plan, m *model.Model) (*plan.Plan, *model.Model, error) {
	if !p.Divided() {
		return p, m, nil
	}
	p, parts, err := p.Pieces(len(m.Layers))
	if err != nil {
		return nil, nil, fmt.Errorf("run: %w", err)
	}
	if m, err = m.Divide(parts); err != nil {
		return nil, nil, fmt.Errorf("run: %w; plan without that, for the bapipe planner with --set fractions=features, or "+
			"off", err)
	}
	return p, m, nil
}

// divisible returns an error for layers that stages cannot divide, and for stages that would update their parts at
// different times.
func divisible(p *plan.Plan, m *model.Model) error {
	if _, _, err := pieces(p, m); err != nil {
		return err
	}
	for i := range p.Stages {
		a, b := len(p.Stages[max(0, i-1)].Devices), len(p.Stages[i].Devices)
		if p.Shares(i) && a != b && p.Replication == string(schedule.RoundRobin) &&
			!schedule.Policy(p.Weights).Flushes() {
			return fmt.Errorf("run: stages %d and %d divide layer %s, and have %d and %d replicas that take minibatches in "+
				"turn: without a flush they would step their parts after as many minibatches; give them as many replicas",
				i-1, i, m.Layers[p.Stages[i].FirstLayer].Name, a, b)
		}
	}
	return nil
}

// steppable refuses the optimizer LARS if stages hold only rows of a parameter, because LARS needs whole parameters.
func steppable(o optim.Settings, p *plan.Plan, m *model.Model) error {
	if o.Kind != optim.LARS {
		return nil
	}
	for i := range p.Stages {
		if p.Shares(i) {
			return fmt.Errorf("run: lars steps a weight by its norm, and stages %d and %d have rows of that of layer %s "+
				"each; take another optimizer, or plan without divided layers, for the bapipe planner with --set fractions=off",
				i-1, i, m.Layers[p.Stages[i].FirstLayer].Name)
		}
	}
	return nil
}
