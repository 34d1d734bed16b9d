package measure

import (
	"context"
	"slices"

	"github.com/millrace-ml/millrace/internal/stats"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/profile/timing"
	"github.com/millrace-ml/millrace/stage"
	"github.com/millrace-ml/millrace/stage/update"
)

// averagedPipelines is the number of pipelines in the timing of elastic averaging. A timed update of the reference
// applies one step of each pipeline.
const averagedPipelines = 2

// averaging adds the update times of elastic averaging: those of a pipeline and of a reference, each with the whole
// model. Each update of a pipeline follows a forward and a backward, so that caches are as in training.
func (t *Timer) averaging(ctx context.Context, r timing.Request, times []profile.UpdateTimes) error {
	round := func(b *bench) error {
		for _, u := range b.averaged[:averagedPipelines] {
			id, err := b.forward()
			if err == nil {
				_, err = b.stage.Backward(id, nil, 1)
			}
			if err == nil {
				err = u.Update(aStep)
			}
			if err != nil {
				return err
			}
		}
		return b.averaged[averagedPipelines].Update(aStep)
	}
	references := make([]*clock, max(r.Concurrency, 1))
	crew, err := t.hire(r)
	if err != nil {
		return err
	}
	defer crew.Close()
	err = crew.work(ctx, func(b *bench) error {
		c := newClock(b.dev, len(r.Model.Layers))
		references[b.rank] = c
		config := b.stage.Config
		config.States, config.Watch = nil, c
		var err error
		if b.reference, err = stage.New(config); err != nil {
			return err
		}
		models := append(slices.Repeat([]*stage.Stage{b.stage}, averagedPipelines), b.reference)
		with := update.Config{Optimizer: t.optimizer, Averaging: plan.NewElastic(averagedPipelines)}
		if b.averaged, err = update.New(update.Elastic, with, models); err != nil {
			return err
		}
		for i := range r.Warmup + r.Passes {
			if err := ctx.Err(); err != nil {
				return err
			}
			b.clock.counts, c.counts = i >= r.Warmup, i >= r.Warmup
			if err := round(b); err != nil {
				return err
			}
		}
		c.counts = false
		return nil
	}, round)
	if err != nil {
		return err
	}
	for l := range times {
		var update, reference []float64
		for k, b := range crew.benches {
			update = append(update, seconds(b.clock.phases[stage.Update][l])...)
			reference = append(reference, seconds(references[k].phases[stage.Update][l])...)
		}
		times[l].PulledUpdateS, times[l].ReferenceUpdateS = stats.Median(update), stats.Median(reference)/averagedPipelines
	}
	return nil
}
