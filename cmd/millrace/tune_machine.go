package main

import (
	"context"
	"fmt"
	"time"

	"github.com/millrace-ml/millrace/data"
	"github.com/millrace-ml/millrace/run"
	"github.com/millrace-ml/millrace/run/place"
	"github.com/millrace-ml/millrace/tune/avgpipe"
	"github.com/millrace-ml/millrace/tune/predict"
)

// trainingMachine runs settings on real tensors: a fresh training of some batches each. What
// it costs is everything from its start to its end.
func trainingMachine(p *Prepared) (avgpipe.Machine, error) {
	train, err := trainingData(p.job, p.model)
	if err != nil {
		return nil, err
	}
	engine, err := openEngine()
	if err != nil {
		return nil, fmt.Errorf("%w; or let the simulator stand for the machine with --simulate", err)
	}
	return func(ctx context.Context, s *avgpipe.Pipelined, steps int, record bool) (*avgpipe.Trial, error) {
		began := time.Now()
		kept := 1
		if record {
			kept = steps
		}
		result, err := run.Train(ctx, run.Config{
			Model: p.model, Plan: s.Plan, Engine: engine, Data: run.Data{Train: data.Prefetch(train, 4)},
			Optimizer: p.job.Optimizer, Rate: p.job.Rate, Clip: p.job.Clip, Seed: p.job.Seed, Steps: steps, KeepSteps: kept,
			Place: &place.Policy{}, ThreadsPerWorker: p.job.ThreadsPerWorker, Cores: predict.Cores(p.cluster, s.Plan), Mesh: meshOf(p.job, p.cluster),
		})
		if err != nil {
			return nil, err
		}
		if result.Stopped {
			return nil, context.Cause(ctx)
		}
		return &avgpipe.Trial{
			Scored: avgpipe.Scored{At: s.At, StepS: result.Timeline.Period(0) / float64(s.At.Pipelines), MemoryBytes: result.Timeline.PeakBytes},
			TookS:  time.Since(began).Seconds(), Timeline: &result.Timeline,
		}, nil
	}, nil
}
