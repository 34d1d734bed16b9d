package run

import (
	"fmt"
	"slices"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/run/checkpoint"
	"github.com/millrace-ml/millrace/run/control"
	"github.com/millrace-ml/millrace/run/process"
	"github.com/millrace-ml/millrace/schedule/programs"
)

// tidy finds out which processes share a folder of checkpoints. Then one process for each folder removes half-written
// checkpoints. In folders other than the leader's it first sets aside the checkpoints of earlier runs.
func (l *leader) tidy() error {
	if l.config.Checkpoint.Dir == "" {
		return nil
	}
	if len(l.peers.links) > 1 {
		l.saves.draft = checkpoint.DraftName(l.done, l.saves.run)
		if err := l.order(control.Mark{Draft: l.saves.draft}); err != nil {
			return err
		}
		if err := l.order(control.Look{Draft: l.saves.draft}); err != nil {
			return err
		}
		l.saves.others = slices.Max(l.state.Keepers()) > 0
	}
	if err := l.order(control.Prune{}); err != nil {
		return err
	}
	l.saves.draft = "" // this draft held only the marks and was removed
	return nil
}

// save makes every stage save itself. The checkpoint is complete once all have saved and the manifest is written.
func (l *leader) save() error {
	l.saves.saved, l.saves.draft = control.Saved{}, checkpoint.DraftName(l.done, l.saves.run)
	p, err := programs.Checkpoint(l.job.Shown())
	if err != nil {
		return fmt.Errorf("run: %w", err)
	}
	if _, err := l.execute(p, func(text string, slots int) control.Body {
		return control.Save{Program: text, Base: l.done, Slots: slots, Draft: l.saves.draft}
	}); err != nil {
		return err
	}
	manifest, err := l.manifest(l.done, l.loss, l.saves.saved)
	if err != nil {
		return err
	}
	commit := control.Commit{Draft: l.saves.draft, Manifest: string(manifest)}
	l.saves.draft = "" // from here on the draft may be a complete checkpoint, so it must not be removed
	if err := l.order(commit); err != nil {
		return err
	}
	if refused := l.state.Refused(); refused != nil {
		l.saves.draft = commit.Draft
		return process.ErrorOf(l.job.World, refused)
	}
	if commit.Others = true; l.saves.others {
		if err := l.order(commit); err != nil {
			return err
		}
	}
	if err := l.order(control.Prune{}); err != nil {
		return err
	}
	l.sealed(l.done)
	return nil
}

// manifest returns the text of a checkpoint's manifest after the given steps. `loss` is the loss of the last step.
func (l *leader) manifest(steps int, loss float64, saved control.Saved) ([]byte, error) {
	c := l.config
	var files []checkpoint.File
	for _, f := range saved.Files {
		files = append(files, checkpoint.File(f))
	}
	text, err := checkpoint.Seal(checkpoint.Manifest{
		Model: c.Model.Name, ModelID: c.Model.ID(), Training: l.training(), Engine: c.Engine.Name(),
		Float: c.Engine.Float().String(),
		Steps: steps, Seed: c.Train.Seed, Batch: c.Plan.Batch(), MicroBatch: c.Plan.MicroBatch,
		Samples:   int64(l.job.BatchOf(steps, 0)) * int64(c.Plan.Batch()),
		Optimizer: c.Train.Optimizer, Rate: c.Train.Rate, Clip: c.Train.Clip, Loss: loss, Plan: c.Plan,
		Updates: saved.Updates, Data: c.Data.Mark,
		Parameters: parametersOf(c.Model),
		Asked: &checkpoint.Asked{
			Steps: c.Train.Steps, EvalEvery: c.Train.EvalEvery, EvalRows: new(c.Train.EvalRows),
			SaveEvery: c.Checkpoint.Every, Keep: c.Checkpoint.Keep,
			RateScale: c.Train.RateScale, RateFactor: c.Train.RateFactor, Since: l.since(),
		},
	}, files)
	if err != nil {
		return nil, fmt.Errorf("run: %w", err)
	}
	return text, nil
}

// parametersOf returns the parameters that a checkpoint of the model has.
func parametersOf(m *model.Model) []checkpoint.Parameter {
	var all []checkpoint.Parameter
	for _, l := range m.Layers {
		for i, p := range l.Params {
			if p.Tied != "" {
				continue
			}
			shape := make([]int64, len(p.Shape))
			for i, n := range p.Shape {
				shape[i] = int64(n)
			}
			all = append(all, checkpoint.Parameter{Name: l.ParamName(i), Shape: shape, Buffer: !p.Learned(),
				DType: elementsOf[p.DType], Inner: p.Inner, Also: p.Also})
		}
	}
	return all
}

// elementsOf names the element types of tensors that are not of the engine's float type.
var elementsOf = map[model.DType]string{model.Int: engine.Int64.String(), model.Bool: engine.Bool.String()}

// training returns the name that all checkpoints of this training share.
func (l *leader) training() string {
	if l.job.From == nil {
		return fmt.Sprintf("%016x", l.saves.run)
	}
	return l.job.From.Manifest.Training
}

// since returns the position at which the number of parallel pipelines last changed. If this run has another number of
// pipelines than the resumed checkpoint, the result is the checkpoint's own position. Otherwise it is the position
// recorded in the checkpoint. If the samples that the checkpoint has consumed since that recorded position do not fit
// it, the result is the checkpoint's own position too.
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
