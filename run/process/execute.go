package process

import (
	"fmt"
	"time"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/internal/crash"
	"github.com/millrace-ml/millrace/run/control"
	"github.com/millrace-ml/millrace/run/record"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/machine"
	"github.com/millrace-ml/millrace/stage"
)

// execute does what an instruction says, or begins what goes on beside the worker, and
// returns the bytes it moved. The worker does not hold mu.
func (w *worker) execute(in schedule.Instruction) (int64, error) {
	if in.Kind == schedule.DR {
		return 0, nil
	}
	h := w.held[w.positionOf(in)]
	if h == nil {
		return 0, fmt.Errorf("this worker does not hold the stage")
	}
	switch in.Kind {
	case schedule.F:
		return 0, w.forward(h, in)
	case schedule.B, schedule.I:
		return 0, w.backward(h, in)
	case schedule.W:
		return 0, w.backwardWeight(h, in)
	case schedule.EV:
		return 0, w.evaluate(h, in)
	case schedule.SF, schedule.SB:
		return w.send(h, in)
	case schedule.RF, schedule.RB:
		if w.dropping {
			return 0, w.drop()
		}
		return w.receive(h, in)
	case schedule.SG, schedule.SW:
		return w.give(h, in)
	case schedule.RG, schedule.RW:
		return w.fetchServed(h, in)
	case schedule.AR:
		return 0, w.allReduce(h, in)
	case schedule.TG:
		return 0, w.sumTied(h, in)
	case schedule.GN:
		return 0, w.norm(h, in)
	case schedule.U:
		return 0, w.update(h, in)
	case schedule.UR:
		return 0, w.moveReference(h, in)
	case schedule.PV:
		if err := w.validate(h, in); err != nil {
			return 0, err
		}
		return 0, w.caughtUp() // the step's mark, which is set here, is behind its update
	case schedule.CK:
		return 0, w.save(h, in)
	}
	return 0, fmt.Errorf("this runtime does not execute %v", in.Kind)
}

func (w *worker) forward(h *holding, in schedule.Instruction) error {
	m := w.micro(in)
	var frees int
	m.Version, frees = w.use(h, in)
	given, err := w.take(h.inbox, in.Micro)
	if err == nil {
		err = w.feed(h, given, w.job.Train, m.Step, w.job.Plan.Batch(), m.Index*w.job.Plan.MicroBatch+m.FirstRow, m.Rows)
	}
	if err != nil {
		given.Free()
		return err
	}
	out, loss, err := h.Forward(m, given)
	if err != nil {
		return err
	}
	w.open++
	w.peak = max(w.peak, w.open)
	if loss != nil {
		w.forwarded(h, in, m, loss)
	}
	if err := w.pass(h, asKind(in, schedule.SF), out); err != nil {
		return err
	}
	return h.dropped(frees)
}

// backward is a whole backward, or with I its input's half.
func (w *worker) backward(h *holding, in schedule.Instruction) error {
	given, err := w.take(h.grads, in.Micro)
	if err != nil {
		return err
	}
	_, frees := w.use(h, in)
	half := h.Backward
	if in.Kind == schedule.I {
		half = h.BackwardInput
	}
	after := w.reduceDuring(h, in)
	defer after()
	back, err := half(int(in.Micro), given, w.weight(w.micro(in)))
	if err != nil {
		return err
	}
	if in.Kind == schedule.B {
		w.open--
	}
	if w.x.program.Settled(in) { // its loss is part of what stands
		if err := w.readLosses(h, in); err != nil {
			return err
		}
	}
	if err := w.pass(h, asKind(in, schedule.SB), back); err != nil {
		return err
	}
	return h.dropped(frees)
}

// backwardWeight is the weights' half of a backward.
func (w *worker) backwardWeight(h *holding, in schedule.Instruction) error {
	_, frees := w.use(h, in)
	after := w.reduceDuring(h, in)
	defer after()
	if err := h.BackwardWeight(int(in.Micro)); err != nil {
		return err
	}
	w.open--
	return h.dropped(frees)
}

// dropped drops a version of the weights; -1 is none.
func (h *holding) dropped(version int) error {
	if version < 0 {
		return nil
	}
	return h.Drop(version)
}

func asKind(in schedule.Instruction, k schedule.Kind) schedule.Instruction {
	in.Kind = k
	return in
}

func (w *worker) evaluate(h *holding, in schedule.Instruction) error {
	rows := w.job.TestRows(int(in.Micro))
	if in.Micro == int32(in.Replica) { // the first of this replica's
		if err := w.measureApart(h); err != nil {
			return err
		}
	}
	m := stage.Micro{ID: int(in.Micro), Step: w.x.base, Index: int(in.Micro), Rows: rows}
	given, err := w.take(h.inbox, in.Micro)
	if err == nil {
		err = w.feed(h, given, w.job.Test, 0, w.job.EvalRows, m.Index*w.job.Plan.MicroBatch, rows)
	}
	if err != nil {
		given.Free()
		return err
	}
	out, scores, err := h.Evaluate(m, given)
	if err != nil {
		return err
	}
	if h.HoldsLoss() {
		tested, err := w.tested(scores)
		scores.Free()
		if err != nil {
			return err
		}
		if !isFinite(tested.Loss) {
			return &LossError{Step: w.x.base - 1, Stage: int(in.Stage), Micro: m.Index, Value: tested.Loss, Evaluation: true}
		}
		tested.Index, tested.Rows = m.Index, rows
		w.x.mu.Lock()
		w.x.tested.Parts = append(w.x.tested.Parts, tested)
		w.x.mu.Unlock()
	}
	return w.pass(h, asKind(in, schedule.SF), out)
}

// tested reads the numbers of a micro-batch.
func (w *worker) tested(s stage.Scores) (t control.Tested, err error) {
	if t.Loss, err = w.dev.Item(s.Loss); err != nil {
		return t, err
	}
	if s.Correct != nil {
		right, err := w.dev.Item(s.Correct)
		if err != nil {
			return t, err
		}
		t.Correct = &right
	}
	for _, n := range s.Reported {
		value, err := w.dev.Item(n)
		if err != nil {
			return t, err
		}
		if t.Reported = append(t.Reported, nil); isFinite(value) {
			t.Reported[len(t.Reported)-1] = &value
		}
	}
	return t, nil
}

// execution is an instruction that a worker has issued, and what is to be noted once its device has done it.
type execution struct {
	in         schedule.Instruction
	begin, end engine.Event
	ready      time.Time // when the worker had issued the instruction before
	size       int64
	lacked     machine.Need
	dropped    bool  // a receive that took nothing over
	high, live int64 // bytes, at most within a computation and behind it
}

// complete files an execution whose end is set, and says so. The caller holds mu.
func (x *Process) complete(w *worker, e execution) {
	end := e.end.At()
	x.moved = time.Now()
	if !e.dropped {
		start := e.begin.At()
		ready := e.ready
		if ready.Before(w.done) {
			ready = w.done
		}
		if ready.After(start) {
			ready = start
		}
		noted := x.note(record.Event{
			Worker: w.rank, In: e.in, Ready: x.since(ready), Start: x.since(start), End: x.since(end), Bytes: e.size,
			Blocker: e.lacked,
		})
		if e.in.Kind.IsCompute() {
			w.done = end
			x.record.Sample(noted, e.high, e.live)
		}
	}
	x.settled(e.in)
}

// settled counts an instruction behind which its stage's part of minibatches stands. The caller holds mu.
func (x *Process) settled(in schedule.Instruction) {
	if x.program.Settled(in) && (x.refused == nil || x.program.MinibatchOf(in) < x.limit-1) {
		first, end := x.program.Covers(in, x.minibatches)
		for n := first; n < end; n++ {
			if part, whole := x.record.Updated(x.base+n, x.parts(n)); whole {
				x.standing(part)
			}
		}
	}
}

// later waits for an execution on a goroutine of its own, behind those that the worker issued before, and
// says that it is done.
func (x *Process) later(w *worker, e execution) {
	before, over := w.late, make(chan struct{})
	w.late = over
	x.beside.Go(crash.Caught(func() {
		defer close(over)
		err := crash.Guard(func() error {
			if before != nil {
				<-before
			}
			if x.job.waits(waitDone) {
				if err := e.end.Wait(); err != nil {
					return err
				}
			} else {
				e.begin, e.end = engine.Past(time.Now()), engine.Past(time.Now())
			}
			x.mu.Lock()
			defer x.mu.Unlock()
			if x.err == nil {
				x.complete(w, e)
				x.done(w, e.in)
				x.checkStall()
			}
			return nil
		})
		if err != nil {
			x.fail(w.rank, w.failed(e.in, err))
		}
	}))
}

// caughtUp blocks until the device has done all that it was told, and all of it is noted.
func (w *worker) caughtUp() error {
	if !w.job.waits(WaitValidated) {
		return nil
	}
	if err := w.dev.Record().Wait(); err != nil {
		return err
	}
	w.x.mu.Lock()
	late := w.late
	w.x.mu.Unlock()
	if late != nil {
		<-late
	}
	return nil
}
