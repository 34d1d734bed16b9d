package prepare

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

// TrainingMachine returns a Machine that tries each setting by training some batches from scratch. The time of a trial
// is that from the training's start to its end.
func TrainingMachine(p *Prepared) (avgpipe.Machine, error) {
	train, err := TrainingData(p.Job, p.Model)
	if err != nil {
		return nil, err
	}
	engine, err := OpenEngine()
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
			Model: p.Model, Plan: s.Plan, Engine: engine, Data: run.Data{Train: data.Prefetch(train, 4)},
			Train: run.Training{Optimizer: p.Job.Train.Optimizer, Rate: p.Job.Train.Rate, Clip: p.Job.Train.Clip,
				Seed: p.Job.Data.Seed, Steps: steps},
			Keep: run.Keeping{Steps: kept},
			Machine: run.Machine{Place: &place.Policy{}, ThreadsPerWorker: p.Job.Machine.ThreadsPerWorker,
				Cores: predict.Cores(p.Cluster, s.Plan, 0)},
			Wire: run.Wire{Carriers: CarriersOf(p.Job, p.Cluster)},
		})
		if err != nil {
			return nil, err
		}
		if result.Stopped {
			return nil, context.Cause(ctx)
		}
		return &avgpipe.Trial{
			Scored: avgpipe.Scored{At: s.At, StepS: result.Timeline.Period(0) / float64(s.At.Pipelines),
				MemoryBytes: result.Timeline.PeakBytes},
			TookS: time.Since(began).Seconds(), Timeline: &result.Timeline,
		}, nil
	}, nil
}
