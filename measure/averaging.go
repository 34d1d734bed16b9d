package measure

import (
	"context"

	"github.com/millrace-ml/millrace/internal/stats"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/stage"
	"github.com/millrace-ml/millrace/stage/optim"
)

// averagedPipelines is how many steps the reference takes at once where its update is timed.
const averagedPipelines = 2

// Averaging implements profile.Timer: a pipeline and a reference of the whole model, each
// update behind a forward and a backward, so that caches are as they will be.
func (t *Timer) Averaging(ctx context.Context, r profile.Request) (updateS, referenceS []float64, err error) {
	round := func(b *bench) error {
		var pushes []*stage.Push
		for range averagedPipelines {
			id, err := b.forward()
			if err == nil {
				_, err = b.stage.Backward(id, nil, 1)
			}
			if err != nil {
				return err
			}
			step := optim.Step{Rate: 1e-6, GradScale: 1}
			push, err := b.stage.UpdateElastic(t.optimizer, step, b.reference, plan.NewElastic(averagedPipelines))
			if err != nil {
				return err
			}
			pushes = append(pushes, push)
		}
		return b.reference.Apply(pushes)
	}
	references := make([]*clock, max(r.Concurrency, 1))
	crew, err := t.hire(r)
	if err != nil {
		return nil, nil, err
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
		return nil, nil, err
	}
	updateS, referenceS = make([]float64, len(r.Model.Layers)), make([]float64, len(r.Model.Layers))
	for l := range updateS {
		var update, reference []float64
		for k, b := range crew.benches {
			update = append(update, seconds(b.clock.phases[stage.Update][l])...)
			reference = append(reference, seconds(references[k].phases[stage.Update][l])...)
		}
		updateS[l], referenceS[l] = stats.Median(update), stats.Median(reference)/averagedPipelines
	}
	return updateS, referenceS, nil
}
