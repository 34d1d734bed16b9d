package run

import (
	"time"

	"github.com/millrace-ml/millrace/schedule"
)

// owed is a message that the Gate takes for taken, and that its worker has yet to take.
//
// A worker that takes turns on the processors has none while it waits. Woken for a message it would wait again, for
// milliseconds behind whoever computes where it is bound, and until it has taken the message nobody knows that what it
// would compute next could start: a processor goes to another worker, or stays idle. Taking needs no processor of the
// worker's own, though. Whoever delivers the last message of a receive tells the Gate that it is taken, and the worker,
// once it is woken to compute, unpacks it first.
type owed struct {
	in    schedule.Instruction
	lacks schedule.Need // what it waited for
}

// mayOwe says whether a worker that waits may owe an instruction of its list.
func (x *executor) mayOwe(in schedule.Instruction) bool {
	return x.seats.inTurn() && in.Kind.IsReceive() && x.minibatchOf(in) < x.limit
}

// owe passes the head of w's list, a receive that Poll calls ready, and returns the workers that are worth polling again.
func (x *executor) owe(w *worker, in schedule.Instruction) []int {
	x.gate.Start(w.rank)
	w.minibatch = max(w.minibatch, x.minibatchOf(in))
	w.owes = append(w.owes, owed{in, w.lacks})
	w.lacks = schedule.Need{}
	x.moved = time.Now()
	return x.gate.End(w.rank)
}

// settleOwed takes the messages that w owes. The caller holds mu, which is free meanwhile.
func (w *worker) settleOwed() {
	x := w.x
	for len(w.owes) > 0 && x.err == nil {
		o := w.owes[0]
		w.owes = w.owes[1:]
		x.mu.Unlock()
		start := time.Now()
		size, err := w.try(o.in)
		x.mu.Lock()
		if err != nil {
			x.failLocked(w.rank, w.failed(o.in, err))
			return
		}
		ready := w.free
		w.free = time.Now()
		x.note(event{
			worker: w.rank, in: o.in, ready: x.since(ready), start: x.since(start), end: x.since(w.free), bytes: size, blocker: o.lacks,
		})
	}
}
