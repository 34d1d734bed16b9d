package run

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/millrace-ml/millrace/internal/crash"
	"github.com/millrace-ml/millrace/run/place"
	"github.com/millrace-ml/millrace/run/record"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/stage"
	"github.com/millrace-ml/millrace/wire"
)

// executor drives one Gate for all workers of this process. Everything below mu is
// guarded by it; the Gate is pure and is only called under it.
type executor struct {
	ctx     context.Context // ends with the first failure
	cancel  context.CancelFunc
	mesh    wire.Mesh
	newGate func(*schedule.Program, int) (schedule.Gate, error)
	cores   int
	place   *place.Place
	began   time.Time
	onStep  func(record.Finished) // called under mu

	beside sync.WaitGroup // collectives under way

	mu          sync.Mutex
	gate        schedule.Gate
	program     *schedule.Program
	epoch       uint32                       // of program
	base        int                          // step that minibatch 0 of program is
	trains      bool                         // program is training, so its instructions belong to steps
	limit       int                          // minibatches of program that may be started
	steps       int                          // minibatches of program that are done
	minibatches int                          // of program
	joined      map[schedule.Instruction]int // members that have skipped a collective, by the first one
	workers     []*worker
	idle        int           // workers that have come to the end of their lists
	ended       chan struct{} // closed when all have
	flying      int           // transfers and collectives under way
	moved       time.Time     // when something last happened
	sent        map[delivery]sending
	record      *record.Recorder
	err         error
	over        bool  // no further Program: workers leave
	halting     bool  // no further step either, but for those begun
	again       bool  // the updates of the last minibatch below limit are taken back
	refused     error // why for good
}

// delivery is one message on its way; sending is what to note when it arrives.
type delivery struct {
	tag wire.Tag
	to  int
}

type sending struct {
	in      schedule.Instruction
	from    int
	at      time.Duration
	size    int64
	tensors stage.Tensors // the receiver's to hold from their arrival
}

// load makes p the Program and sets every worker going. base is the step of its first
// minibatch; trains says whether its instructions belong to steps. It returns what is
// closed when all lists have ended or somebody has failed.
func (x *executor) load(p *schedule.Program, base int, trains bool) (<-chan struct{}, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.err != nil {
		return nil, x.err
	}
	if p.Workers != len(x.workers) {
		return nil, fmt.Errorf("run: program %s is for %d workers; this run has %d", p.Name, p.Workers, len(x.workers))
	}
	var err error
	if x.gate == nil {
		x.gate, err = x.newGate(p, x.cores)
	} else {
		err = x.gate.Load(p)
	}
	if err != nil {
		return nil, err
	}
	x.program, x.base, x.trains, x.limit, x.steps, x.again, x.refused = p, base, trains, math.MaxInt, 0, false, nil
	x.minibatches, x.joined = p.Minibatches(), map[schedule.Instruction]int{}
	if trains && x.halting {
		x.limit = 0
	}
	x.epoch++
	x.idle, x.ended, x.moved = 0, make(chan struct{}), time.Now()
	for _, w := range x.workers {
		w.here, w.running, w.minibatch = false, true, -1
		w.prepare(p)
		x.wake(w)
	}
	return x.ended, nil
}

// finish lets the workers leave.
func (x *executor) finish() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.over = true
	for _, w := range x.workers {
		x.wake(w)
	}
}

// stopAfterStep has the Program end with the last step that any worker has begun.
func (x *executor) stopAfterStep() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.halting = true
	if x.program == nil || !x.trains {
		return
	}
	begun := -1
	for _, w := range x.workers {
		begun = max(begun, w.minibatch)
	}
	// Updates may cover several minibatches: all that one covers are done or none.
	if last := (begun + x.program.Period) / x.program.Period * x.program.Period; last < x.minibatches {
		x.limit = min(x.limit, last)
	}
	for _, w := range x.workers {
		if !w.running {
			x.set(w) // it may be waiting for a step that will not come
		}
	}
}

// fail notes the first error and stops everybody.
func (x *executor) fail(worker int, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.failLocked(worker, err)
}

func (x *executor) failLocked(worker int, err error) {
	if x.err != nil {
		return
	}
	x.err = err
	x.mesh.Endpoint(worker).Fail(err)
	x.cancel()
	for _, w := range x.workers {
		x.wake(w)
	}
	x.closeEnded()
}

func (x *executor) closeEnded() {
	if x.ended == nil {
		return
	}
	select {
	case <-x.ended:
	default:
		close(x.ended)
	}
}

// failure is the first error, or nil.
func (x *executor) failure() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.err
}

// wake sends a worker back to look.
func (x *executor) wake(w *worker) {
	w.bell.Ring()
}

// set wakes a worker and counts it as running from now on, so that nobody takes the
// moment until it looks for a stall.
func (x *executor) set(w *worker) {
	if !w.running && !w.here {
		w.running = true
		x.wake(w)
	}
}

// poll wakes those of the workers that may start now; the others know why not.
func (x *executor) poll(workers []int) {
	for _, k := range workers {
		w := x.workers[k]
		if w.running || w.here {
			continue
		}
		if _, more := x.gate.Head(w.rank); more {
			if need := x.gate.Poll(w.rank); !need.Ready() {
				w.lacks = need
				continue
			}
		}
		x.set(w)
	}
}

// skip passes an instruction of a minibatch behind the limit, which w has started, without
// doing it. Nobody has begun that minibatch, so nobody has anything of it; but for one that was
// begun with weights that have been taken back: what comes of it is thrown away.
func (x *executor) skip(w *worker, in schedule.Instruction) {
	if w.uses != nil && w.uses[0].Instruction == in {
		w.uses = w.uses[1:]
	}
	x.poll(x.gate.End(w.rank))
	switch {
	case in.Kind == schedule.RF:
		w.discard(in)
	case in.Kind.IsSend():
		for _, to := range x.program.Receivers(in) {
			x.poll(x.gate.Arrive(to, in, w.rank))
		}
	case in.Kind.IsCollective():
		members, workers := x.program.Group(in)
		if x.joined[members[0]]++; x.joined[members[0]] == len(members) {
			for i, m := range members {
				x.poll(x.gate.Arrive(workers[i], m, workers[i]))
			}
		}
	}
}

// minibatchOf is the minibatch of the Program that an instruction works for.
func (x *executor) minibatchOf(in schedule.Instruction) int {
	if in.Kind.OfMinibatch() {
		return int(in.Micro)
	}
	return int(in.Micro) * x.program.Period / x.program.MicroBatches
}

// absolute gives an instruction ids that count over the whole training.
func (x *executor) absolute(in schedule.Instruction) schedule.Instruction {
	if !x.trains {
		return in
	}
	if in.Kind.OfMinibatch() {
		in.Micro += int32(x.base)
	} else {
		in.Micro += int32(x.base * x.program.MicroBatches / x.program.Period)
	}
	return in
}

// since is the time on the Timeline's clock.
func (x *executor) since(t time.Time) time.Duration { return t.Sub(x.began) }

// arrived is what the mesh calls, on any goroutine, when a message is there for a worker.
func (x *executor) arrived(to, from int, tag wire.Tag) {
	in := instructionOf(tag)
	err := crash.Guard(func() error {
		x.arrive(to, from, tag, in)
		return nil
	})
	if err != nil {
		x.fail(to, x.workers[to].failed(in, err))
	}
}

func (x *executor) arrive(to, from int, tag wire.Tag, in schedule.Instruction) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.err != nil {
		return
	}
	x.moved = time.Now()
	x.flying--
	key := delivery{tag, to}
	if s, ok := x.sent[key]; ok {
		delete(x.sent, key)
		for _, t := range s.tensors {
			x.workers[to].dev.Charge(t)
		}
		x.note(record.Event{Worker: s.from, In: s.in, Ready: s.at, Start: s.at, End: x.since(x.moved), Bytes: s.size})
	}
	x.poll(x.gate.Arrive(to, in, from))
	x.checkStall()
}

// note files an event whose instruction still has the Program's ids.
func (x *executor) note(e record.Event) record.Event {
	e.Outside = !x.trains
	if e.Step = x.base + x.minibatchOf(e.In); e.Outside {
		e.Step = x.base - 1
	}
	e.In = x.absolute(e.In)
	e.Blocker.For = x.absolute(e.Blocker.For)
	x.record.Add(e)
	return e
}

// besides runs the work of a collective that worker w has issued, on a goroutine of its
// own, and tells the Gate when it is done. start is when it began in fact.
func (x *executor) besides(w *worker, in schedule.Instruction, start time.Time, size int64, work func(ctx context.Context) error) {
	x.mu.Lock()
	x.flying++
	x.mu.Unlock()
	x.beside.Go(crash.Caught(func() {
		err := crash.Guard(func() error {
			if err := work(x.ctx); err != nil {
				return err
			}
			x.mu.Lock()
			defer x.mu.Unlock()
			x.moved = time.Now()
			x.flying--
			at := x.since(start)
			x.note(record.Event{Worker: w.rank, In: in, Ready: at, Start: at, End: x.since(x.moved), Bytes: size})
			x.poll(x.gate.Arrive(w.rank, in, w.rank))
			x.checkStall()
			return nil
		})
		if err != nil {
			x.fail(w.rank, w.failed(in, err))
		}
	}))
}
