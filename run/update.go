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
	if err := w.averageStatistics(h, in); err != nil {
		return err
	}
	if w.x.program.PostValidate {
		h.doubtful = true
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

// validate comes behind the gradient norm of an update that did not wait for it. A norm within the
// limit confirms the update. One over it has the update taken back and made again, clipped; the
// Program ends there, and the next one begins with the step behind, from its first instruction.
// A norm that is no number takes the update back for good.
func (w *worker) validate(h *holding, in schedule.Instruction) error {
	refused, failed := w.x.verdict(int(in.Micro))
	doubts := h.doubts
	h.doubtful, h.doubts = false, nil
	if !refused {
		if doubts != nil {
			return doubts
		}
		return h.Confirm()
	}
	thrown, err := h.TakeBack()
	w.open -= thrown
	h.inbox.free()
	h.forth.free()
	if err != nil || failed {
		return err
	}
	at := w.stepOf(in, h.scale)
	h.scale = 1
	return h.Update(w.job.optimizer, at, stage.Replace)
}

// refuse has the Program end behind a minibatch whose norm is not what its updates went by: they are
// taken back. Without an error they are made again. Every stage comes to the same verdict.
func (x *executor) refuse(minibatch int, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.limit = min(x.limit, minibatch+1)
	x.again = true
	if x.refused == nil {
		x.refused = err
	}
}

// verdict is whether the updates of a minibatch are taken back, and whether for good.
func (x *executor) verdict(minibatch int) (refused, failed bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	refused = x.again && minibatch == x.limit-1
	return refused, refused && x.refused != nil
}

// discard throws away what came for a forward of a step that is begun anew.
func (w *worker) discard(in schedule.Instruction) {
	w.x.program.Expected(in, func(sent schedule.Instruction, from int) bool {
		m, here := w.ep.Take(from, tagOf(sent, w.x.epoch))
		if !here {
			return true // its sender has not made it
		}
		for i := range m {
			o, local := m[i].Owner.(*handover)
			if !local {
				continue
			}
			m[i].Owner = nil
			if t, err := w.dev.Adopt(o.tensor); err == nil {
				t.Free()
			}
		}
		m.Release()
		return true
	})
}
