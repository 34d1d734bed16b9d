package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/cmd/internal/prepare"
	"github.com/millrace-ml/millrace/data"
	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/lab/curves"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/run"
	"github.com/millrace-ml/millrace/run/place"
	"github.com/millrace-ml/millrace/run/process"
	"github.com/millrace-ml/millrace/tune/avgpipe"
)

// learning is the part of bench curves that does not depend on time: how well each method learns from the same
// number of samples.
type learning struct {
	*curves.Setting
	engine engine.Engine
}

// stagesByOperations returns a model's stages for learning. The job fixes them, or the partitioner chooses them. The
// partitioner then assumes that a layer's time is proportional to its operations.
func stagesByOperations(ctx context.Context, j *job.Job, m *model.Model) (*plan.Plan, error) {
	fix, err := prepare.Overrides(j, prepare.NamesOf(m))
	if err != nil {
		return nil, err
	}
	p, err := profile.Analytic(m, map[string]cluster.DeviceType{"flat": curves.FlatDevice}, []int{j.Plan.Batch},
		j.Train.Optimizer.Kind, len(j.Train.Optimizer.States()))
	if err != nil {
		return nil, cli.BadInput(err)
	}
	flat := cluster.Local("flat", j.Machine.Workers, j.Machine.Workers, 0, 1e-9, 1e15, 1e15)
	base, err := avgpipe.Partition(ctx, &avgpipe.Workload{Profile: p, Cluster: flat, Batch: j.Plan.Batch}, fix)
	return base, cli.BadInput(err)
}

// train runs one training. A loss that is not a number ends the training early. Then the result has the evaluations up
// to there and the reason.
func (l *learning) train(ctx context.Context, t curves.Task) (curves.Training, error) {
	set, err := l.shuffled(t.Job.Data.Seed)
	if err != nil {
		return curves.Training{}, err
	}
	result, err := run.Train(ctx, run.Config{
		Model: l.Model, Plan: t.Plan, Engine: l.engine, Data: run.Data{Train: data.Prefetch(set.Train, 4), Test: set.Test},
		Train: run.Training{Optimizer: t.Job.Train.Optimizer, Rate: t.Job.Train.Rate, Clip: t.Job.Train.Clip,
			Seed: t.Job.Data.Seed, Steps: t.Steps, EvalEvery: t.EvalEvery, EvalRows: t.Job.Train.EvalRows},
		Machine: run.Machine{Place: &place.Policy{}, ThreadsPerWorker: t.Job.Machine.ThreadsPerWorker},
		Keep:    run.Keeping{Steps: 1},
	})
	switch {
	case errors.Is(err, process.ErrNotFinite):
		return t.Training(result.Timeline.Evaluations, err.Error()), nil
	case err != nil:
		return curves.Training{}, fmt.Errorf("%s, seed %d: %w", t.Method.Name, t.Job.Data.Seed, err)
	case result.Stopped:
		return curves.Training{}, context.Cause(ctx)
	}
	return t.Training(result.Timeline.Evaluations, ""), nil
}

// shuffled returns the data in the order that a seed determines.
func (l *learning) shuffled(seed uint64) (*data.Set, error) {
	own := *l.Job
	own.Data.Seed = seed
	set, err := prepare.OpenData(&own, l.Model)
	if err != nil {
		return nil, err
	}
	short := *set
	short.Train, err = data.Head(set.Train, l.Rows)
	return &short, cli.BadInput(err)
}
