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

// updating makes a stage's updates. It keeps the clipping factor or the verdict that follows from the gradient norm.
type updating struct {
	h     *holding
	by    update.Updater
	scale float64 // clipping factor of the current step's gradients
	norm  verdict // of the update that is not validated yet
	norms bool    // the next update computes the norm itself, as there are no other stages
}

func (u *updating) goesBy(by update.Updater) {
	u.close()
	u.by = by
}

func (u *updating) close() {
	if u.by != nil {
		u.by.Close()
	}
}

// updateBy replaces the Updaters of the worker's stages. No update may be in progress.
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
			models = append(h.pipelines(), h)
		}
		stages := make([]*stage.Stage, len(models))
		for i, one := range models {
			stages[i] = one.stage
		}
		c := update.Config{Optimizer: w.job.Updates.Optimizer, Averaging: w.job.Plan.Elastic, Stage: int(at.stage)}
		all, err := update.New(string(by), c, stages)
		if err != nil {
			return err
		}
		for i, one := range models {
			one.updates.goesBy(all[i])
		}
	}
	return nil
}

// stepOf returns the settings for one update of a pipeline's stage. The gradients are sums over the minibatches that
// the update covers. The optimizer's step uses their mean, times scale. The learning rate is that of the last
// minibatch.
func (u *updating) stepOf(in schedule.Instruction, scale float64, how stage.Renewal) update.Step {
	w := u.h.w
	first, end := w.x.now.covers(in)
	return update.Step{
		Renewal: how,
		Step: optim.Step{Rate: w.job.Updates.Rate.At(w.x.now.base + end - 1),
			GradScale: scale / float64(end-first)},
	}
}

func (u *updating) update(in schedule.Instruction) error {
	h, w := u.h, u.h.w
	if err := h.lending.land(); err != nil {
		return err
	}
	if err := h.losses.read(in); err != nil {
		return err
	}
	if u.norms {
		u.norms = false
		if err := h.ownNorm(in); err != nil {
			return err
		}
	}
	if err := u.by.AverageStatistics(len(w.x.now.program.Placement[in.Pipeline][in.Stage])); err != nil {
		return err
	}
	version, frees := h.use(in)
	how := stage.Keep
	switch {
	case w.x.now.program.Weights.Mismatches():
		how = stage.Overwrite // the backwards of micro-batches in flight use the newest weights
	case w.agenda.uses == nil || frees == version-1:
		how = stage.Replace
	}
	scale := u.scale
	u.scale = 1
	if w.x.now.program.Served() {
		h.served.applies(in)
	}
	if err := w.aside.pulls(h, in); err != nil {
		return err
	}
	return u.by.Update(u.stepOf(in, scale, how))
}

// verdict is what a stage knows of an update's norm. Every stage has the same norm, and so the same verdict.
type verdict struct {
	scale   float64 // clipping factor; 1 means that the norm is within the limit
	forGood error   // the error if the norm is not finite; else nil
}

// judged stores a verdict. If updates wait for their norm, the next update uses the verdict. judged then returns an
// error for a norm that is not finite. If updates do not wait, validate uses the verdict.
func (u *updating) judged(v verdict) error {
	if !u.h.w.x.now.program.ValidatesLater() {
		u.scale = v.scale
		return v.forGood
	}
	if u.norm = v; v.forGood != nil {
		u.norm.forGood = fmt.Errorf("run: %w; the step was taken back", v.forGood)
	}
	return nil
}

// validate runs once the gradient norm of an update is known, if the update did not wait for its norm. If the norm is
// within the limit, validate confirms the update. If the norm exceeds the limit, validate takes the update back and
// repeats it with clipping. The Program then ends there, and the next Program begins with the next step. If the norm is
// not finite, validate takes the update back for good.
func (u *updating) validate(in schedule.Instruction) error {
	h, norm := u.h, u.norm
	if norm.scale == 1 && norm.forGood == nil {
		return u.by.Confirm()
	}
	h.w.rollback(int(in.Micro), norm.forGood)
	thrown, err := u.by.Undo()
	h.w.open -= thrown
	h.cuts.abandon()
	h.losses.abandon()
	if err != nil || norm.forGood != nil {
		return err
	}
	return u.by.Update(u.stepOf(in, norm.scale, stage.Replace))
}

// rollback makes the worker skip everything after a minibatch whose update is taken back. If forGood is set, the run
// ends too.
func (w *worker) rollback(minibatch int, forGood error) {
	x := w.x
	x.mu.Lock()
	defer x.mu.Unlock()
	x.crew.gate.Local(w.rank).Rollback(minibatch)
	x.now.stopsAt(minibatch+1, forGood)
}

// aside updates the references that are kept beside their pipelines, on a thread beside the worker with a device of its
// own. After each update the thread makes a copy of the reference. The pipelines' next update takes the newest copy and
// does not wait for a later one. The Gate counts the reference's updates up to that copy, and the record keeps the
// number.
type aside struct {
	w      *worker
	thread *beside.Thread // nil until a reference moves
	took   *update.Copy   // for the current update: the newest reference, or nil if it is unchanged
}

// moving is the state of a reference beside its pipelines.
type moving struct {
	given *update.Copy  // the newest copy that the pipelines have not seen; may be nil; guarded by mu
	moves bool          // the thread beside the worker has the reference
	mover *update.Mover // used only on that thread
	seen  int           // how many of the reference's updates in the Program the pipelines have seen
}

// of returns the reference of a pipeline's stage if the run keeps it beside the pipelines, else nil.
func (a *aside) of(in schedule.Instruction) *holding {
	w := a.w
	at := w.x.now.positionOf(in)
	if !w.job.Plan.Elastic.Besides() || !w.x.now.trains || at.pipeline == w.job.shown() {
		return nil
	}
	at.pipeline = w.job.shown()
	return w.held[at]
}

// looks takes the newest reference for an update that starts. The caller holds mu.
func (a *aside) looks(in schedule.Instruction) {
	w := a.w
	if in.Kind != schedule.U || !w.x.now.program.Beside() {
		return
	}
	if z := a.of(in); z != nil {
		a.took, z.moving.given = z.moving.given, nil
		z.moving.seen = w.x.crew.gate.Sees(w.rank, in.Stage)
	}
}

// pulls gives a pipeline's update the reference that was taken for it, and records the version of that reference. In a
// replay, the worker's own list contains the reference's updates, and pulls counts them.
func (a *aside) pulls(h *holding, in schedule.Instruction) error {
	w, z := a.w, a.of(in)
	if z == nil {
		if h.at.pipeline == w.job.shown() {
			h.moving.seen++ // an update of the reference itself
		}
		return nil
	}
	if c := a.took; c != nil {
		a.took = nil
		if err := z.updates.by.(update.Beside).See(c); err != nil {
			return err
		}
	}
	w.x.mu.Lock()
	defer w.x.mu.Unlock()
	w.x.ledger.record.Saw(w.x.now.base+int(in.Micro), record.Seen{Stage: int(in.Stage), Pipeline: int(in.Pipeline),
		Version: w.x.now.base + z.moving.seen})
	return nil
}

// seeNewest sets references to their newest state. None of their updates may be in progress.
func (a *aside) seeNewest() error {
	for _, h := range a.w.held {
		a.w.x.mu.Lock()
		c := h.moving.given
		h.moving.given = nil
		a.w.x.mu.Unlock()
		if c == nil {
			continue
		}
		if err := h.updates.by.(update.Beside).See(c); err != nil {
			return err
		}
	}
	return nil
}

// move hands one optimizer step of each pipeline to the thread beside this worker. The thread updates the reference
// with these steps.
func (a *aside) move(h *holding, in schedule.Instruction) error {
	w := a.w
	z := h.updates.by.(update.Beside)
	steps, err := z.Take()
	if err != nil {
		return err
	}
	var first *update.Copy
	if !h.moving.moves {
		if first, err = z.Give(); err != nil {
			steps.Free()
			return err
		}
		h.moving.moves = true
	}
	if a.thread == nil {
		a.thread = beside.New(func() (engine.Device, error) { return w.dev.Beside(w.job.Devices.Threads) }, a.free)
	}
	given := time.Now()
	drop := func() {
		steps.Free()
		if first != nil {
			first.Free()
		}
	}
	a.thread.Give(beside.Work{Drop: drop, Do: func(dev engine.Device, err error) {
		if err == nil {
			err = crash.Guard(func() error { return a.moved(dev, h, in, given, first, steps) })
		}
		if err != nil {
			drop() // frees only what was not used up
			w.x.fail(w.rank, w.failed(in, err))
		}
	}})
	return nil
}

// moved updates a reference and reports the update. It runs on the thread beside the reference's worker.
func (a *aside) moved(dev engine.Device, h *holding, in schedule.Instruction, given time.Time, first *update.Copy,
	steps *update.Steps) (err error) {
	w, z := a.w, &h.moving
	if z.mover == nil {
		if z.mover, err = update.NewMover(dev, first); err != nil {
			return err
		}
	}
	begin := dev.Record()
	if err := z.mover.Move(steps, w.job.waits(WaitSteps)); err != nil {
		return err
	}
	c, err := z.mover.Give()
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
	if x.failure.err != nil {
		c.Free()
		return nil
	}
	if z.given != nil {
		z.given.Free()
	}
	z.given, x.activity.moved = c, time.Now()
	x.ledger.note(record.Event{Worker: w.rank, In: in, Ready: x.ledger.since(given), Start: x.ledger.since(begin.At()),
		End: x.ledger.since(c.Ready.At())})
	x.settle(in)
	w.did(in)
	x.checkStall()
	return nil
}

// free frees the references on the thread beside a worker, and the copies that no update has used. It is called when
// the worker leaves.
func (a *aside) free() {
	for _, h := range a.w.held {
		if h.moving.mover != nil {
			h.moving.mover.Close()
		}
		if h.moving.given != nil {
			h.moving.given.Free()
		}
	}
	if a.took != nil {
		a.took.Free()
	}
}

// close ends the thread, and returns how many handles it leaked.
func (a *aside) close() (leaked int) {
	if a.thread == nil {
		return 0
	}
	return a.thread.Close()
}
