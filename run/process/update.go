package process

import (
	"fmt"
	"time"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/internal/crash"
	"github.com/millrace-ml/millrace/run/beside"
	"github.com/millrace-ml/millrace/run/record"
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
	if err := w.pulls(h, in); err != nil {
		return err
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

// A reference beside its pipelines. Its worker has it as pipelines last saw it; it moves on a thread beside the worker,
// with a device of its own, and each time a copy of it lies there for the pipelines' next update, which takes it
// without waiting for another. Which one that is the Gate counts, and the record keeps.

// referenceOf is the reference of a pipeline's stage, if the run's is beside the pipelines; nil otherwise.
func (w *worker) referenceOf(in schedule.Instruction) *holding {
	at := w.positionOf(in)
	if !w.job.Plan.Elastic.Besides() || !w.x.trains || at.pipeline == w.job.shown() {
		return nil
	}
	at.pipeline = w.job.shown()
	return w.held[at]
}

// looks has an update that starts take the newest reference. The caller holds mu.
func (w *worker) looks(in schedule.Instruction) {
	if in.Kind != schedule.U || !w.x.program.Beside() {
		return
	}
	if z := w.referenceOf(in); z != nil {
		w.took, z.given = z.given, nil
		z.seen = w.x.gate.Sees(w.rank, in.Stage)
	}
}

// pulls has an update of a pipeline see the reference that it has taken, and notes which one it sees. In a replay the
// list says when the reference moves.
func (w *worker) pulls(h *holding, in schedule.Instruction) error {
	z := w.referenceOf(in)
	if z == nil {
		if h.pipeline == w.job.shown() {
			h.seen++ // this is the reference's own
		}
		return nil
	}
	if c := w.took; c != nil {
		w.took = nil
		if err := z.updates.(update.Beside).See(c); err != nil {
			return err
		}
	}
	w.x.mu.Lock()
	defer w.x.mu.Unlock()
	w.x.record.Saw(w.x.base+int(in.Micro), record.Seen{Stage: int(in.Stage), Pipeline: int(in.Pipeline),
		Version: w.x.base + z.seen})
	return nil
}

// seeNewest has references be the newest there are, with nothing of them under way.
func (w *worker) seeNewest() error {
	for _, h := range w.held {
		w.x.mu.Lock()
		c := h.given
		h.given = nil
		w.x.mu.Unlock()
		if c == nil {
			continue
		}
		if err := h.updates.(update.Beside).See(c); err != nil {
			return err
		}
	}
	return nil
}

// moveReference gives the thread beside this worker a step of each pipeline, to move the reference by.
func (w *worker) moveReference(h *holding, in schedule.Instruction) error {
	z := h.updates.(update.Beside)
	steps, err := z.Take()
	if err != nil {
		return err
	}
	var first *update.Copy
	if !h.moves {
		if first, err = z.Give(); err != nil {
			steps.Free()
			return err
		}
		h.moves = true
	}
	if w.aside == nil {
		w.aside = beside.New(func() (engine.Device, error) { return w.dev.Beside(w.job.Threads) }, w.leaveAside)
	}
	given := time.Now()
	drop := func() {
		steps.Free()
		if first != nil {
			first.Free()
		}
	}
	w.aside.Give(beside.Work{Drop: drop, Do: func(dev engine.Device, err error) {
		if err == nil {
			err = crash.Guard(func() error { return w.moves(dev, h, in, given, first, steps) })
		}
		if err != nil {
			drop() // what is used up is gone already
			w.x.fail(w.rank, w.failed(in, err))
		}
	}})
	return nil
}

// moves moves a reference on the thread beside its worker, and says so.
func (w *worker) moves(dev engine.Device, h *holding, in schedule.Instruction, given time.Time, first *update.Copy,
	steps *update.Steps) (err error) {
	if h.mover == nil {
		if h.mover, err = update.NewMover(dev, first); err != nil {
			return err
		}
	}
	begin := dev.Record()
	if err := h.mover.Move(steps, w.job.waits(WaitSteps)); err != nil {
		return err
	}
	c, err := h.mover.Give()
	if err != nil {
		return err
	}
	x := w.x
	if err := c.Ready.Wait(); err != nil {
		c.Free()
		return err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.err != nil {
		c.Free()
		return nil
	}
	if h.given != nil {
		h.given.Free()
	}
	h.given, x.moved = c, time.Now()
	x.note(record.Event{Worker: w.rank, In: in, Ready: x.since(given), Start: x.since(begin.At()),
		End: x.since(c.Ready.At())})
	x.settled(in)
	x.done(w, in)
	x.checkStall()
	return nil
}

// leaveAside frees what the thread beside a worker has made that nobody has taken, as the worker leaves.
func (w *worker) leaveAside() {
	for _, h := range w.held {
		if h.mover != nil {
			h.mover.Close()
		}
		if h.given != nil {
			h.given.Free()
		}
	}
	if w.took != nil {
		w.took.Free()
	}
}
