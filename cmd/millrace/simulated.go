package main

import (
	"github.com/millrace-ml/millrace/schedule/check"
	"github.com/millrace-ml/millrace/sim"
	"github.com/millrace-ml/millrace/trace"
	"github.com/millrace-ml/millrace/tune/predict"
)

// checkAndSimulate proves the plan's Program and writes down what the simulator says of it.
func checkAndSimulate(p *Prepared) (*trace.Timeline, error) {
	costs, err := sim.CostsOf(p.profile, p.cluster, p.plan)
	if err != nil {
		return nil, err
	}
	program, err := predict.Program(p.profile, p.plan, p.job.Clip > 0, predict.Steps(costs))
	if err != nil {
		return nil, badInput(err)
	}
	if _, err := check.Check(program); err != nil {
		return nil, err
	}
	t, _, err := sim.Run(program, costs, sim.Options{Cores: predict.Cores(p.cluster, p.plan), Record: true, Jitter: true})
	if err != nil {
		return nil, err
	}
	t.Model, t.ThreadsPerWorker = p.model.Name, p.job.ThreadsPerWorker
	return t, nil
}
