package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/millrace-ml/millrace/bench"
	"github.com/millrace-ml/millrace/data"
	"github.com/millrace-ml/millrace/run"
	"github.com/millrace-ml/millrace/tune"
)

// trainingMachine runs settings on real tensors: a fresh training of some batches each. What
// it costs is everything from its start to its end. Next to each the loop is timed by which the
// profile tells its pace. The second result ends that.
func trainingMachine(p *planned) (tune.Machine, func(), error) {
	train, err := trainingData(p.job, p.model)
	if err != nil {
		return nil, nil, err
	}
	engine, err := openEngine()
	if err != nil {
		return nil, nil, fmt.Errorf("%w; or let the simulator stand for the machine with --simulate", err)
	}
	pace, err := bench.StartPace(engine, min(p.job.Workers, coresOf(p.job)), p.job.ThreadsPerWorker)
	if err != nil {
		return nil, nil, err
	}
	return func(ctx context.Context, s *tune.Pipelined, batches int, record bool) (*tune.Trial, error) {
		before, err := pace.Beats(beatsOfTrial)
		if err != nil {
			return nil, err
		}
		began := time.Now()
		steps := tune.Iterations(s.At, batches)
		kept := 1
		if record {
			kept = steps
		}
		result, err := run.Train(ctx, run.Config{
			Model: p.model, Plan: s.Plan, Engine: engine, Data: run.Data{Train: data.Prefetch(train, 4)},
			Optimizer: p.job.Optimizer, Rate: p.job.Rate, Clip: p.job.Clip, Seed: p.job.Seed, Steps: steps, KeepSteps: kept,
			ThreadsPerWorker: p.job.ThreadsPerWorker, Cores: tune.Cores(p.cluster, s.Plan),
		})
		if err != nil {
			return nil, err
		}
		if result.Stopped {
			return nil, context.Cause(ctx)
		}
		took := time.Since(began).Seconds()
		after, err := pace.Beats(beatsOfTrial)
		if err != nil {
			return nil, err
		}
		step := tune.StepTime(&result.Timeline, 1) / float64(s.At.Pipelines)
		beat := bench.Median(slices.Concat(before, after))
		return &tune.Trial{
			Scored: tune.Scored{At: s.At, StepS: step, MemoryBytes: result.Timeline.PeakBytes, AtPaceS: step * p.profile.ReferenceS / beat},
			TookS:  took, Timeline: &result.Timeline,
		}, nil
	}, pace.Close, nil
}

// beatsOfTrial is how often the fixed loop is timed before a trial, and after it.
const beatsOfTrial = 5
