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

// losses is those of a stage's forwards, in their order. They stay on the device until something is made of their
// minibatch's gradients, and are read once.
type losses struct {
	h      *holding
	unread []unread
}

// unread is the loss of a forward.
type unread struct {
	loss      engine.Tensor
	minibatch int // of the Program
	micro     int // of the step
	slice     int // of the step's losses
	share     float64
}

// add keeps the loss of a forward.
func (a *losses) add(in schedule.Instruction, m stage.Micro, loss engine.Tensor) {
	w := a.h.w
	slice := (int(in.Pipeline)*w.job.Plan.MicroBatches+m.Index)*w.job.LastReplicas() + int(in.Replica)
	a.unread = append(a.unread, unread{loss, w.x.now.program.MinibatchOf(in), m.Index, slice, w.x.now.share(m)})
}

// read reads the losses that an update, or a collective in front of it, depends on, and refuses those that are not
// finite. It does so before anything is made of their gradients here, and waits for the device.
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

// numbers is the losses' values.
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

// abandon throws away those that have not been read.
func (a *losses) abandon() {
	freeLosses(a.unread)
	a.unread = nil
}

func freeLosses(all []unread) {
	for _, u := range all {
		u.loss.Free()
	}
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

// issued says that the worker's own time on an instruction is over, and with done that it is complete. The caller holds
// mu.
func (w *worker) issued(done bool) {
	done = done || w.progress.complete
	w.progress.complete = false
	w.x.look(w.x.crew.gate.Issued(w.rank, done))
}

// did says that an instruction that the worker has issued, or is still at, is complete. The caller holds mu.
func (w *worker) did(in schedule.Instruction) {
	gate := w.x.crew.gate
	if at := gate.Poll(w.rank); at.Lack == machine.Running && at.At == in {
		w.progress.complete = true
		return
	}
	w.x.look(gate.Done(w.rank, in))
}

// complete files an execution whose end is set, and says so. The caller holds mu.
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

// later waits for an execution on a goroutine of its own, behind those that the worker issued before, and
// says that it is done.
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

// besides runs the work of a collective that the worker has issued, on a goroutine of its
// own, and says when it is done. start is when it began in fact.
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

// ledger records what has happened, on the process's clock. Of a step's part either all or nothing counts.
type ledger struct {
	began  time.Time // when the clock was 0
	now    *underway
	record *record.Recorder
	ranks  []int // of the process's workers
	parts  int   // updates of theirs in a step
}

// since is the time on the process's clock.
func (l *ledger) since(t time.Time) time.Duration { return t.Sub(l.began) }

// note files an event whose instruction still has the Program's ids.
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

// settled counts an instruction behind which its stage's part of minibatches stands, and gives the parts of steps
// that are whole with it.
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

// partsOf is how many of this process's instructions settle a minibatch.
func (l *ledger) partsOf(minibatch int) (n int) {
	if !l.now.program.Served() {
		return l.parts
	}
	for _, k := range l.ranks {
		n += l.now.program.Parts(k, minibatch)
	}
	return n
}

// timeline is the record so far.
func (l *ledger) timeline() *trace.Timeline {
	t := l.now.job.Timeline()
	l.record.Fill(&t)
	t.PeakBytes, t.PeakActivations = make([]int64, t.Workers), make([]int, t.Workers)
	return &t
}

// settle counts an instruction, and tells the leader of the steps whose part of this process stands with it. The caller
// holds mu.
func (x *Process) settle(in schedule.Instruction) {
	for _, part := range x.ledger.settled(in) {
		x.standing(part)
	}
}

// standing tells the leader that the process's part of a step stands. The caller holds mu.
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

// show tells the leader what there is of a step, on a goroutine of its own, so that no worker waits. The caller
// holds mu.
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

// timeline is the process's record so far.
func (x *Process) timeline() *trace.Timeline {
	x.mu.Lock()
	defer x.mu.Unlock()
	t := x.ledger.timeline()
	for _, w := range x.crew.mine {
		t.PeakActivations[w.rank] = w.peak
	}
	return t
}
