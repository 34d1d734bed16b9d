package process

import (
	"context"
	"slices"
	"time"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/internal/crash"
	"github.com/millrace-ml/millrace/run/control"
	"github.com/millrace-ml/millrace/run/record"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/machine"
	"github.com/millrace-ml/millrace/stage"
	"github.com/millrace-ml/millrace/trace"
)

// losses holds the losses of a stage's forwards, in order. They stay on the device until their minibatch's gradients
// are used, and are read once.
type losses struct {
	h      *holding
	unread []unread
}

// unread is the loss of a forward that was not yet read from the device.
type unread struct {
	loss      engine.Tensor
	minibatch int // index within the Program
	micro     int // index within the step
	slice     int // index among the step's losses
	share     float64
}

// add stores the loss of a forward.
func (a *losses) add(in schedule.Instruction, m stage.Micro, loss engine.Tensor) {
	w := a.h.w
	slice := (int(in.Pipeline)*w.job.Plan.MicroBatches+m.Index)*w.job.LastReplicas() + int(in.Replica)
	a.unread = append(a.unread, unread{loss, w.x.now.program.MinibatchOf(in), m.Index, slice, w.x.now.share(m)})
}

// read is called before the stage uses the gradients of minibatches. The instruction `in` is an update, a collective
// before an update, or a trainer's backward (asp). read waits for the device and reads the losses of these minibatches.
// A loss that is not finite is an error.
func (a *losses) read(in schedule.Instruction) error {
	w := a.h.w
	_, end := w.x.now.covers(in)
	var due []unread
	a.unread = slices.DeleteFunc(a.unread, func(u unread) bool {
		if u.minibatch < end {
			due = append(due, u)
		}
		return u.minibatch < end
	})
	if len(due) == 0 {
		return nil
	}
	defer freeLosses(due)
	values, err := a.numbers(due)
	if err != nil {
		return err
	}
	for i, u := range due {
		if !isFinite(values[i]) {
			return &LossError{Step: w.x.now.base + u.minibatch, Stage: int(in.Stage), Micro: u.micro, Value: values[i]}
		}
	}
	w.x.mu.Lock()
	defer w.x.mu.Unlock()
	for i, u := range due {
		w.x.ledger.record.Loss(w.x.now.base+u.minibatch, u.slice, values[i]*u.share)
	}
	return nil
}

// numbers returns the values of the losses.
func (a *losses) numbers(of []unread) ([]float64, error) {
	w := a.h.w
	m := w.dev.Begin()
	defer w.dev.End(m)
	all := make([]engine.Tensor, len(of))
	for i, u := range of {
		all[i] = u.loss
	}
	together, err := engine.Stack(w.dev, all)
	if err != nil {
		return nil, err
	}
	l, err := w.fetch(waitLosses, []stage.Vector{{Name: "losses", Tensor: together}})
	if err != nil {
		return nil, err
	}
	return l.numbers()
}

// abandon discards the losses that have not been read.
func (a *losses) abandon() {
	freeLosses(a.unread)
	a.unread = nil
}

func freeLosses(all []unread) {
	for _, u := range all {
		u.loss.Free()
	}
}

// execution is an instruction that a worker has issued, with what to record once its device has done it.
type execution struct {
	in         schedule.Instruction
	begin, end engine.Event
	ready      time.Time // when the worker had issued its previous instruction
	size       int64
	lacked     machine.Need
	took       *schedule.Instruction // whose work is a part of this one; or nil
	dropped    bool                  // the instruction is a receive that discarded its messages
	high, live int64                 // bytes held: the most within a computation (high), and after it (live)
}

// issued reports that the worker itself has finished with an instruction; `done` means that the instruction is complete
// too. The caller holds mu.
func (w *worker) issued(done bool) {
	done = done || w.progress.complete
	w.progress.complete = false
	w.x.look(w.x.crew.gate.Issued(w.rank, done))
}

// did reports that an instruction is complete. The worker has issued it or is still issuing it. The caller holds mu.
func (w *worker) did(in schedule.Instruction) {
	gate := w.x.crew.gate
	if at := gate.Poll(w.rank); at.Lack == machine.Running && at.At == in {
		w.progress.complete = true
		return
	}
	w.x.look(gate.Done(w.rank, in))
}

// complete records an execution whose end is known. If its instruction settles a step, complete counts it. The caller
// holds mu.
func (w *worker) complete(e execution) {
	x, end := w.x, e.end.At()
	x.activity.moved = time.Now()
	if !e.dropped {
		start := e.begin.At()
		ready := e.ready
		if ready.Before(w.progress.done) {
			ready = w.progress.done
		}
		if ready.After(start) {
			ready = start
		}
		if e.took != nil {
			at := x.ledger.since(start)
			x.ledger.note(record.Event{Worker: w.rank, In: *e.took, Ready: at, Start: at, End: at})
		}
		noted := x.ledger.note(record.Event{
			Worker: w.rank, In: e.in, Ready: x.ledger.since(ready), Start: x.ledger.since(start), End: x.ledger.since(end),
			Bytes: e.size, Blocker: e.lacked,
		})
		if e.in.Kind.IsCompute() {
			w.progress.done = end
			x.ledger.record.Sample(noted, e.high, e.live)
		}
	}
	x.settle(e.in)
}

// later starts a goroutine that waits until an execution is done, and then reports it. The worker's executions are
// reported in order.
func (w *worker) later(e execution) {
	x := w.x
	before, over := w.progress.late, make(chan struct{})
	w.progress.late = over
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
			if x.failure.err == nil {
				w.complete(e)
				w.did(e.in)
				x.checkStall()
			}
			return nil
		})
		if err != nil {
			x.fail(w.rank, w.failed(e.in, err))
		}
	}))
}

// besides runs the work of an issued collective on its own goroutine, and reports when it is done. `start` is when the
// collective really began.
func (w *worker) besides(in schedule.Instruction, start time.Time, size int64, work func(ctx context.Context) error) {
	x := w.x
	x.beside.Go(crash.Caught(func() {
		err := crash.Guard(func() error {
			if err := work(x.ctx); err != nil {
				return err
			}
			x.mu.Lock()
			defer x.mu.Unlock()
			if x.failure.err != nil {
				return nil
			}
			x.activity.moved = time.Now()
			at := x.ledger.since(start)
			x.ledger.note(record.Event{Worker: w.rank, In: in, Ready: at, Start: at,
				End: x.ledger.since(x.activity.moved), Bytes: size})
			w.did(in)
			x.checkStall()
			return nil
		})
		if err != nil {
			x.fail(w.rank, w.failed(in, err))
		}
	}))
}

// leaves completes a collective that has no other members. The worker's next instruction does its work, and records it.
func (h *holding) leaves(in schedule.Instruction) {
	w, x := h.w, h.w.x
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.failure.err != nil {
		return
	}
	w.did(in)
	w.progress.passed = &in
}

// ledger records what has happened, on the process's clock. The process's part of a step counts only once it is
// complete.
type ledger struct {
	began  time.Time // time 0 of the clock
	now    *underway
	record *record.Recorder
	ranks  []int // ranks of the process's workers
	parts  int   // how many updates these workers make in a step
}

// since converts a time to the process's clock.
func (l *ledger) since(t time.Time) time.Duration { return t.Sub(l.began) }

// note records an event whose instruction still has the Program's ids.
func (l *ledger) note(e record.Event) record.Event {
	e.Outside = !l.now.trains
	if e.Step = l.now.stepOf(e.In); e.Outside {
		e.Step = l.now.base - 1
	}
	e.In = l.now.absolute(e.In)
	e.Blocker.For = l.now.absolute(e.Blocker.For)
	l.record.Add(e)
	return e
}

// settled counts an instruction that makes its stage's part of minibatches final. It returns those parts of steps that
// are now complete.
func (l *ledger) settled(in schedule.Instruction) (whole []record.Part) {
	if !l.now.stands(in) {
		return nil
	}
	first, end := l.now.covers(in)
	for n := first; n < end; n++ {
		if part, all := l.record.Updated(l.now.base+n, l.partsOf(n)); all {
			whole = append(whole, part)
		}
	}
	return whole
}

// partsOf returns how many of this process's instructions settle a minibatch.
func (l *ledger) partsOf(minibatch int) (n int) {
	if !l.now.program.Served() {
		return l.parts
	}
	for _, k := range l.ranks {
		n += l.now.program.Parts(k, minibatch)
	}
	return n
}

// timeline returns the record until now.
func (l *ledger) timeline() *trace.Timeline {
	t := l.now.job.Timeline()
	l.record.Fill(&t)
	t.PeakBytes, t.PeakActivations = make([]int64, t.Workers), make([]int, t.Workers)
	return &t
}

// settle counts an instruction, and reports each step of which this process's part is now complete. The caller holds
// mu.
func (x *Process) settle(in schedule.Instruction) {
	for _, part := range x.ledger.settled(in) {
		x.standing(part)
	}
}

// standing reports to the leader that the process's part of a step is complete. The caller holds mu.
func (x *Process) standing(p record.Part) {
	s := control.Step{Step: p.Step, StartS: p.Start.Seconds(), EndS: p.End.Seconds(), Norm: p.Norm}
	for _, w := range x.crew.mine {
		sent, received := w.mail.port.Traffic()
		s.Workers = append(s.Workers, control.Did{BusyS: p.Busy[w.rank].Seconds(), PeakBytes: w.progress.memory.PeakBytes,
			LiveBytes: w.progress.memory.LiveBytes, SentBytes: sent, ReceivedBytes: received})
	}
	if a := p.Applied; a != nil {
		s.Applied = &control.Applied{At: a.At, Version: a.Version}
	}
	for _, seen := range p.Seen {
		s.Seen = append(s.Seen, control.Seen(seen))
	}
	if x.job.Keep.OnPart != nil {
		x.job.Keep.OnPart(p.Step)
	}
	for i, l := range p.Losses {
		s.Losses = append(s.Losses, control.Loss{Index: i, Value: l})
	}
	x.say(s)
}

// show sends the leader the record of a step. If the record is not kept or is too large, show sends an answer without
// it. It sends on its own goroutine so that no worker waits. The caller holds mu.
func (x *Process) show(what control.Show) {
	t := x.job.Timeline()
	t.Events = []trace.Event{}
	excerpt, kept := x.ledger.record.Excerpt(what.Step, what.Around)
	events, samples := excerpt.Rows()
	x.beside.Go(crash.Caught(func() {
		answer := control.Shown{Step: what.Step}
		if kept && max(events, samples) <= control.MostShown {
			excerpt.Fill(&t)
			answer.Timeline = &t
		}
		x.mu.Lock()
		defer x.mu.Unlock()
		x.say(answer)
	}))
}

// timeline returns the process's record until now.
func (x *Process) timeline() *trace.Timeline {
	x.mu.Lock()
	defer x.mu.Unlock()
	t := x.ledger.timeline()
	for _, w := range x.crew.mine {
		t.PeakActivations[w.rank] = w.peak
	}
	return t
}
