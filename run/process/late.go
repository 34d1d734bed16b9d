package process

import (
	"time"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/internal/crash"
	"github.com/millrace-ml/millrace/run/record"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/machine"
)

// execution is an instruction that a worker has issued, and what is to be noted once its device has done it.
type execution struct {
	in         schedule.Instruction
	begin, end engine.Event
	ready      time.Time // when the worker had issued the instruction before
	size       int64
	lacked     machine.Need
	dropped    bool  // a receive that took nothing over
	live       int64 // bytes, behind a computation
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
			x.record.Sample(noted, e.live)
		}
	}
	if e.in.Kind == x.program.Settles() && (x.refused == nil || x.program.MinibatchOf(e.in) < x.limit-1) {
		first, end := x.program.Covers(e.in, x.minibatches)
		for n := first; n < end; n++ {
			if part, whole := x.record.Updated(x.base + n); whole {
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
