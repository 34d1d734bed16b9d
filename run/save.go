package run

import (
	"errors"
	"fmt"

	"github.com/millrace-ml/millrace/run/checkpoint"
	"github.com/millrace-ml/millrace/run/control"
	"github.com/millrace-ml/millrace/schedule/programs"
)

// save has every stage write itself and commits the checkpoint once all have.
func (l *leader) save() error {
	c := &l.job.config
	draft, err := l.store.Begin(l.done)
	if err != nil {
		return fmt.Errorf("run: %w", err)
	}
	l.saved = control.Saved{}
	p, err := programs.Checkpoint(l.job.placement)
	if err == nil {
		_, err = l.execute(p, control.Save{Program: p.Text(), Base: l.done, Dir: draft.Dir()})
	}
	if err != nil {
		return errors.Join(err, draft.Abort())
	}
	for _, f := range l.saved.Files {
		draft.Add(checkpoint.File(f))
	}
	path, err := draft.Commit(checkpoint.Manifest{
		Model: c.Model.Name, ModelID: c.Model.ID(), Engine: c.Engine.Name(), Float: c.Engine.Float().String(),
		Steps: l.done, Seed: c.Seed, Batch: c.Plan.Batch(), MicroBatch: c.Plan.MicroBatch,
		Samples:   int64(l.job.batchOf(l.done, 0)) * int64(c.Plan.Batch()),
		Optimizer: c.Optimizer, Rate: c.Rate, Clip: c.Clip, Loss: l.loss, Plan: c.Plan, Updates: l.saved.Updates,
		Asked: &checkpoint.Asked{
			Steps: c.Steps, EvalEvery: c.EvalEvery, SaveEvery: c.Checkpoint.Every, Keep: c.Checkpoint.Keep,
			RateScale: c.RateScale, RateFactor: c.RateFactor, Since: l.job.since(),
		},
	})
	if err != nil {
		return fmt.Errorf("run: %w", err)
	}
	l.checkpoint = path
	if f := c.Hooks.OnCheckpoint; f != nil {
		steps := l.done
		l.hooks.add(func() { f(path, steps) })
	}
	return nil
}

// save writes a stage's file, and of elastic averaging those of its pipelines; the CK of that stage.
func (w *worker) save(h *holding) error {
	if err := w.saveOne(h); err != nil || w.job.together() == 1 {
		return err
	}
	for _, one := range w.pipelinesOf(h) {
		if err := w.saveOne(one); err != nil {
			return err
		}
	}
	return nil
}

// saveOne writes one file of a checkpoint. It waits for the device.
func (w *worker) saveOne(h *holding) error {
	j, steps := w.job, w.x.base
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
	file, err := checkpoint.WriteFile(w.x.dir, j.stageFile(h.position), tensors)
	if err != nil {
		return err
	}
	w.x.mu.Lock()
	defer w.x.mu.Unlock()
	saved := &w.x.saved
	saved.Files = append(saved.Files, control.File(file))
	for _, p := range h.Params() {
		if n := h.Updates(p); h.Owns(p) && n != steps {
			if saved.Updates == nil {
				saved.Updates = map[string]int{}
			}
			saved.Updates[j.model.Layers[p.Layer].Name] = n
		}
	}
	return nil
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
