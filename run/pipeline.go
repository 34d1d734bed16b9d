package run

import (
	"context"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/measure"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/run/place"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/stage/optim"
	"github.com/millrace-ml/millrace/trace"
)

// TrainPipeline returns a function with which a measure.Timer trains its Pipelines.
func TrainPipeline(e engine.Engine, on *place.Policy) func(context.Context, measure.Pipeline) (*trace.Timeline, error) {
	return func(ctx context.Context, of measure.Pipeline) (*trace.Timeline, error) {
		m := of.Model
		res, err := Train(ctx, Config{
			Model: m, Engine: e, Machine: Machine{Place: on}, Data: Data{Train: of.Samples},
			Plan: &plan.Plan{
				Version: plan.Version, Model: m.Name, ModelID: m.ID(), Replication: string(schedule.RoundRobin),
				MicroBatch: 1, MicroBatches: of.MicroBatches, Schedule: "1f1b", Weights: string(schedule.Sync),
				Stages: []plan.Stage{
					{FirstLayer: 0, LastLayer: of.Cut - 1, Devices: []int{0}, Warmup: of.InAdvance},
					{FirstLayer: of.Cut, LastLayer: len(m.Layers) - 1, Devices: []int{1}, Warmup: 1},
				},
			},
			Train: Training{Optimizer: optim.Settings{Kind: optim.SGD},
				Rate: optim.Rate{Kind: optim.Constant, Base: 1e-6}, Steps: of.Steps},
			Keep: Keeping{Steps: of.Steps},
		})
		if err != nil {
			return nil, err
		}
		return &res.Timeline, nil
	}
}
