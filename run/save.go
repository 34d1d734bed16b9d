package run

import (
	"errors"
	"fmt"

	"github.com/millrace-ml/millrace/run/checkpoint"
	"github.com/millrace-ml/millrace/schedule/programs"
)

// save has every stage write itself and commits the checkpoint once all have.
func (r *runner) save() error {
	c := &r.job.config
	draft, err := r.job.store.Begin(r.done)
	if err != nil {
		return fmt.Errorf("run: %w", err)
	}
	r.job.draft, r.job.updates = draft, nil
	p, err := programs.Checkpoint(r.job.placement)
	if err == nil {
		_, err = r.run(p, r.done, false)
	}
	if err != nil {
		return errors.Join(err, draft.Abort())
	}
	path, err := draft.Commit(checkpoint.Manifest{
		Model: c.Model.Name, ModelID: c.Model.ID(), Engine: c.Engine.Name(), Float: c.Engine.Float().String(),
		Steps: r.done, Seed: c.Seed, Batch: c.Plan.Batch(), MicroBatch: c.Plan.MicroBatch,
		Samples:   int64(r.job.batchOf(r.done, 0)) * int64(c.Plan.Batch()),
		Optimizer: c.Optimizer, Rate: c.Rate, Clip: c.Clip, Loss: r.loss, Plan: c.Plan, Updates: r.job.updates,
		Asked: &checkpoint.Asked{
			Steps: c.Steps, EvalEvery: c.EvalEvery, SaveEvery: c.Checkpoint.Every, Keep: c.Checkpoint.Keep,
			RateScale: c.RateScale, RateFactor: c.RateFactor, Since: r.job.since(),
		},
	})
	if err != nil {
		return fmt.Errorf("run: %w", err)
	}
	r.checkpoint = path
	if f := c.Hooks.OnCheckpoint; f != nil {
		steps := r.done
		r.hooks.add(func() { f(path, steps) })
	}
	return nil
}

// save writes a stage's file, and of elastic averaging those of its pipelines; the CK of that stage.
func (w *worker) save(h *holding) error {
	if err := w.saveOne(h, w.x.base); err != nil || w.job.together() == 1 {
		return err
	}
	for _, one := range w.pipelinesOf(h) {
		if err := w.saveOne(one, w.x.base); err != nil {
			return err
		}
	}
	return nil
}

// saveOne writes one file of a checkpoint after so many steps. It waits for the device.
func (w *worker) saveOne(h *holding, steps int) error {
	j := w.job
	l, err := w.fetch(h.Snapshot())
	if err != nil {
		return err
	}
	defer l.free()
	if err := l.wait(); err != nil {
		return err
	}
	tensors := make([]checkpoint.Tensor, len(l.hosts))
	for i, v := range l.vectors {
		tensors[i] = checkpoint.Tensor{
			Name: j.tensorName(h.pipeline, v.Name), DType: v.Tensor.DType(), Shape: v.Tensor.Shape(), Data: l.hosts[i].Bytes(),
		}
		if !finite(tensors[i].DType, tensors[i].Data) {
			return &notFiniteError{fmt.Sprintf("after %d steps %s, on stage %d, has values that are not finite; nothing is saved, the checkpoint before stays: lower the learning rate or clip gradients",
				steps, v.Name, h.position.stage)}
		}
	}
	j.mu.Lock()
	for _, p := range h.Params() {
		if n := h.Updates(p); h.Owns(p) && n != steps {
			if j.updates == nil {
				j.updates = map[string]int{}
			}
			j.updates[j.model.Layers[p.Layer].Name] = n
		}
	}
	j.mu.Unlock()
	return j.draft.WriteFile(j.stageFile(h.position), tensors, nil)
}

// openCheckpoint opens what a run goes on from and refuses what is not this run's.
func openCheckpoint(c Config) (*checkpoint.Checkpoint, error) {
	from, err := checkpoint.Open(c.Resume)
	if err != nil {
		return nil, fmt.Errorf("run: %w", err)
	}
	m := from.Manifest
	refuse := func(field string, has, want any) error {
		return errors.Join(fmt.Errorf("run: checkpoint %s: %s is %v; this run has %v", from.Path, field, has, want), from.Close())
	}
	switch {
	case m.ModelID != c.Model.ID():
		return nil, refuse("model", m.Model+" ("+m.ModelID+")", c.Model.Name+" ("+c.Model.ID()+")")
	case m.Float != c.Engine.Float().String():
		return nil, refuse("float", m.Float, c.Engine.Float())
	case m.Batch != c.Plan.Batch():
		return nil, refuse("batch", m.Batch, c.Plan.Batch())
	case m.Pipelines() != c.Plan.Together() && !c.AverageResumed:
		return nil, refuse("pipelines side by side", m.Pipelines(),
			fmt.Sprintf("%d; --resume-averaged begins all of them at the average", c.Plan.Together()))
	case m.Seed != c.Seed:
		return nil, refuse("seed", m.Seed, c.Seed)
	case m.Optimizer.Kind != c.Optimizer.Kind:
		return nil, refuse("optimizer", m.Optimizer.Kind, c.Optimizer.Kind)
	case len(m.Optimizer.States()) != len(c.Optimizer.States()): // with momentum or without
		return nil, refuse("the optimizer's state", m.Optimizer.States(), c.Optimizer.States())
	case m.Steps > c.Steps:
		return nil, refuse("steps", m.Steps, fmt.Sprintf("%d in all; ask for more", c.Steps))
	}
	return from, nil
}
