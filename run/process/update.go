package process

import (
	"fmt"

	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/stage"
	"github.com/millrace-ml/millrace/stage/optim"
	"github.com/millrace-ml/millrace/stage/update"
)

// updateBy has the worker's stages updated by these Updaters. Nothing of an update is under way.
func (w *worker) updateBy(by schedule.Updater) error {
	if by == w.updater {
		return nil
	}
	w.updater = by
	for at, h := range w.held {
		if at.pipeline != w.job.shown() {
			continue
		}
		models := []*holding{h}
		if w.job.Together() > 1 {
			models = append(w.pipelinesOf(h), h)
		}
		stages := make([]*stage.Stage, len(models))
		for i, one := range models {
			stages[i] = one.Stage
		}
		c := update.Config{Optimizer: w.job.Optimizer, Averaging: w.job.Plan.Elastic, Stage: int(at.stage)}
		all, err := update.New(string(by), c, stages)
		if err != nil {
			return err
		}
		for i, one := range models {
			if one.updates != nil {
				one.updates.Close()
			}
			one.updates = all[i]
		}
	}
	return nil
}

// stepOf is the circumstances of an update of a pipeline. Its gradients are sums over the minibatches that
// it covers, and it steps by their mean, times scale. Its learning rate is that of the last of them.
func (w *worker) stepOf(in schedule.Instruction, scale float64, how stage.Renewal) update.Step {
	first, end := w.x.program.Covers(in, w.x.minibatches)
	return update.Step{
		Step: optim.Step{Rate: w.job.Rate.At(w.x.base + end - 1), GradScale: scale / float64(end-first)}, Renewal: how,
	}
}

func (w *worker) update(h *holding, in schedule.Instruction) error {
	if err := w.land(h); err != nil {
		return err
	}
	if err := w.readLosses(h, in); err != nil {
		return err
	}
	if err := h.updates.AverageStatistics(len(w.x.program.Placement[in.Pipeline][in.Stage])); err != nil {
		return err
	}
	version, frees := w.use(h, in)
	how := stage.Keep
	switch {
	case w.x.program.Weights.Mismatches():
		how = stage.Overwrite // micro-batches on their way read what is there when they come back
	case w.uses == nil || frees == version-1:
		how = stage.Replace
	}
	scale := h.scale
	h.scale = 1
	if w.x.program.Served() {
		w.applies(h, in)
	}
	return h.updates.Update(w.stepOf(in, scale, how))
}

// verdict is what a stage knows of the norm of an update. Every stage has the same norm, and so the same
// verdict.
type verdict struct {
	scale   float64 // what clipping multiplies gradients by; 1: the norm is within the limit
	forGood error   // it is no number
}

// judged has the update to come go by a verdict, or one that did not wait for it be validated.
func (w *worker) judged(h *holding, v verdict) error {
	if !w.x.program.ValidatesLater() {
		h.scale = v.scale
		return v.forGood
	}
	if h.norm = v; v.forGood != nil {
		h.norm.forGood = fmt.Errorf("run: %w; the step was taken back", v.forGood)
	}
	return nil
}

// validate comes behind the gradient norm of an update that did not wait for it. A norm within the
// limit confirms the update. One over it has the update taken back and made again, clipped; the
// Program ends there, and the next one begins with the step behind, from its first instruction.
// A norm that is no number takes the update back for good.
func (w *worker) validate(h *holding, in schedule.Instruction) error {
	norm := h.norm
	if norm.scale == 1 && norm.forGood == nil {
		return h.updates.Confirm()
	}
	w.x.rollback(w, int(in.Micro), norm.forGood)
	thrown, err := h.updates.Undo()
	w.open -= thrown
	h.inbox.free()
	h.forth.free()
	freeLosses(h.losses)
	h.losses = nil
	if err != nil || norm.forGood != nil {
		return err
	}
	return h.updates.Update(w.stepOf(in, norm.scale, stage.Replace))
}

// rollback has the worker pass what lies behind a minibatch whose update it takes back, for good with an
// error.
func (x *Process) rollback(w *worker, minibatch int, forGood error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.gate.Local(w.rank).Rollback(minibatch)
	x.limit = min(x.limit, minibatch+1)
	if x.refused == nil {
		x.refused = forGood
	}
}
