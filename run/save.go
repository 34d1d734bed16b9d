package run

import (
	"fmt"

	"github.com/millrace-ml/millrace/run/checkpoint"
	"github.com/millrace-ml/millrace/run/control"
	"github.com/millrace-ml/millrace/schedule/programs"
)

// save has every stage write itself and commits the checkpoint once all have.
func (l *leader) save() error {
	c := l.config
	draft, err := l.store.Begin(l.done)
	if err != nil {
		return fmt.Errorf("run: %w", err)
	}
	l.saved, l.draft = control.Saved{}, draft
	p, err := programs.Checkpoint(l.job.Placement)
	if err != nil {
		return fmt.Errorf("run: %w", err)
	}
	if _, err := l.execute(p, control.Save{Program: p.Text(), Base: l.done, Dir: draft.Dir()}); err != nil {
		return err
	}
	for _, f := range l.saved.Files {
		draft.Add(checkpoint.File(f))
	}
	path, err := draft.Commit(checkpoint.Manifest{
		Model: c.Model.Name, ModelID: c.Model.ID(), Engine: c.Engine.Name(), Float: c.Engine.Float().String(),
		Steps: l.done, Seed: c.Seed, Batch: c.Plan.Batch(), MicroBatch: c.Plan.MicroBatch,
		Samples:   int64(l.job.BatchOf(l.done, 0)) * int64(c.Plan.Batch()),
		Optimizer: c.Optimizer, Rate: c.Rate, Clip: c.Clip, Loss: l.loss, Plan: c.Plan, Updates: l.saved.Updates,
		Asked: &checkpoint.Asked{
			Steps: c.Steps, EvalEvery: c.EvalEvery, SaveEvery: c.Checkpoint.Every, Keep: c.Checkpoint.Keep,
			RateScale: c.RateScale, RateFactor: c.RateFactor, Since: l.since(),
		},
	})
	l.draft = nil
	if err != nil {
		return fmt.Errorf("run: %w", err)
	}
	l.checkpoint, l.savedAt = path, l.done
	if f := c.Hooks.OnCheckpoint; f != nil {
		steps := l.done
		l.hooks.add(func() { f(path, steps) })
	}
	return nil
}

// since is where the number of pipelines side by side changed last: at the checkpoint that the run goes on
// from, or where that says.
func (l *leader) since() checkpoint.Position {
	if l.job.From == nil {
		return checkpoint.Position{}
	}
	m := l.job.From.Manifest
	each, seen := int64(m.Pipelines()), m.Since()
	if m.Pipelines() != l.job.Together() || m.Samples-seen.Samples != int64(m.Steps-seen.Steps)*each*int64(m.Batch) {
		return checkpoint.Position{Steps: m.Steps, Samples: m.Samples}
	}
	return seen
}
