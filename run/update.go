package run

import (
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/stage"
	"github.com/millrace-ml/millrace/stage/optim"
)

// stepOf is the circumstances of an update of a pipeline. Its gradients are sums over the minibatches that
// it covers, and it steps by their mean, times scale. Its learning rate is that of the last of them.
func (w *worker) stepOf(in schedule.Instruction, scale float64) optim.Step {
	first, end := w.x.program.Covers(in, w.x.minibatches)
	return optim.Step{Rate: w.job.rate.At(w.x.base + end - 1), GradScale: scale / float64(end-first)}
}

func (w *worker) update(h *holding, in schedule.Instruction) error {
	if w.x.program.IsReference(int(in.Pipeline)) {
		return w.updateReference(h)
	}
	if err := w.land(h); err != nil {
		return err
	}
	if err := w.readLosses(h, in); err != nil {
		return err
	}
	if err := w.averageStatistics(h, in); err != nil {
		return err
	}
	if w.x.program.PostValidate {
		return h.UpdateTentatively(w.job.optimizer, w.stepOf(in, 1))
	}
	at := w.stepOf(in, h.scale)
	h.scale = 1
	if w.job.together() > 1 {
		return w.updateElastic(h, at)
	}
	version, frees := w.use(h, in)
	how := stage.Keep
	switch {
	case w.x.program.Weights == schedule.Latest:
		how = stage.Overwrite // micro-batches on their way read what is there when they come back
	case w.uses == nil || frees == version-1:
		how = stage.Replace
	}
	return h.Update(w.job.optimizer, at, how)
}

// verdict is what a stage knows of the norm of an update that did not wait for it. Every stage has the same norm,
// and so the same verdict.
type verdict struct {
	refused bool  // it is over the limit
	forGood error // it is no number
}

// validate comes behind the gradient norm of an update that did not wait for it. A norm within the
// limit confirms the update. One over it has the update taken back and made again, clipped; the
// Program ends there, and the next one begins with the step behind, from its first instruction.
// A norm that is no number takes the update back for good.
func (w *worker) validate(h *holding, in schedule.Instruction) error {
	norm := h.norm
	h.norm = verdict{}
	if !norm.refused {
		return h.Confirm()
	}
	w.x.rollback(w, int(in.Micro), norm.forGood)
	thrown, err := h.TakeBack()
	w.open -= thrown
	h.inbox.free()
	h.forth.free()
	freeLosses(h.losses)
	h.losses = nil
	if err != nil || norm.forGood != nil {
		return err
	}
	at := w.stepOf(in, h.scale)
	h.scale = 1
	return h.Update(w.job.optimizer, at, stage.Replace)
}

// rollback has the worker pass what lies behind a minibatch whose update it takes back, for good with an error.
func (x *process) rollback(w *worker, minibatch int, forGood error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.gate.Local(w.rank).Rollback(minibatch)
	x.limit = min(x.limit, minibatch+1)
	if x.refused == nil {
		x.refused = forGood
	}
}
