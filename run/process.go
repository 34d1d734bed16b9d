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
	"github.com/millrace-ml/millrace/schedule/machine"
	"github.com/millrace-ml/millrace/stage"
	"github.com/millrace-ml/millrace/wire"
)

// gate decides which worker may start its next instruction: a machine.Machine. Tests put others in its place.
type gate interface {
	machine.Gate
	Load(*schedule.Program) error
	Local(worker int) *machine.Local
	Processor(worker int) (processor int, has bool)
	Begun() int
	Limit(n int) []int
	Ended() bool
}

// process is what the workers of this process share: who decides, what is recorded, and the first error.
// Everything below mu is guarded by it; the gate is pure and is only called under it.
type process struct {
	ctx    context.Context // ends with the first failure
	cancel context.CancelFunc
	mesh   wire.Mesh
	decide func(*schedule.Program, machine.Options) (gate, error)
	cores  int
	place  *place.Place
	began  time.Time
	onStep func(record.Finished) // called under mu

	beside sync.WaitGroup // collectives under way

	mu          sync.Mutex
	gate        gate
	program     *schedule.Program
	epoch       uint32 // of program
	base        int    // step that minibatch 0 of program is
	trains      bool   // program is training, so its instructions belong to steps
	limit       int    // minibatches of program that are done at its end
	steps       int    // of those done so far
	minibatches int    // of program
	workers     []*worker
	ended       chan struct{} // closed when all lists have ended
	moved       time.Time     // when something last happened
	sent        map[delivery]*sending
	record      *record.Recorder
	err         error
	over        bool  // no further Program: workers leave
	halting     bool  // no further step either, but for those begun
	refused     error // why the last update was taken back for good
}

// delivery is one message on its way.
type delivery struct {
	tag wire.Tag
	to  int
}

// sending is what to note when a message arrives.
type sending struct {
	in      schedule.Instruction
	from    *worker
	at      time.Duration
	size    int64
	tensors stage.Tensors // the receiver's to hold from their arrival
	left    *int          // messages of the instruction that have not arrived
}

// load makes p the Program and sets every worker going. base is the step of its first
// minibatch; trains says whether its instructions belong to steps. It returns what is
// closed when all lists have ended or somebody has failed.
func (x *process) load(p *schedule.Program, base int, trains bool) (<-chan struct{}, error) {
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
		x.gate, err = x.decide(p, machine.Options{Cores: x.cores})
	} else {
		err = x.gate.Load(p)
	}
	if err != nil {
		return nil, err
	}
	x.program, x.base, x.trains, x.limit, x.steps, x.refused = p, base, trains, math.MaxInt, 0, nil
	x.minibatches = p.Minibatches()
	x.epoch++
	x.ended, x.moved = make(chan struct{}), time.Now()
	for _, w := range x.workers {
		w.prepare(p)
	}
	if trains && x.halting {
		x.limit = 0
		x.gate.Limit(0)
	}
	x.look(nil)
	for _, w := range x.workers {
		x.wake(w)
	}
	return x.ended, nil
}

// finish lets the workers leave.
func (x *process) finish() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.over = true
	for _, w := range x.workers {
		x.wake(w)
	}
}

// stopAfterStep has the Program end with the last step that any worker has begun.
func (x *process) stopAfterStep() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.halting = true
	if x.program == nil || !x.trains || x.err != nil {
		return
	}
	// Updates may cover several minibatches: all that one covers are done or none.
	last := (x.gate.Begun() + x.program.Period) / x.program.Period * x.program.Period
	x.limit = min(x.limit, last)
	x.look(x.gate.Limit(last))
}

// fail notes the first error and stops everybody.
func (x *process) fail(worker int, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.failLocked(worker, err)
}

func (x *process) failLocked(worker int, err error) {
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

func (x *process) closeEnded() {
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
func (x *process) failure() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.err
}

// wake sends a worker back to look, which counts as running from now on, so that nobody takes the moment until it
// looks for a stall.
func (x *process) wake(w *worker) {
	if !w.running {
		w.running = true
		w.bell.Ring()
	}
}

// look wakes those of the workers that may start now, the others know why not, and sees whether this was the end.
// A worker that was given a core is bound to its processor before it wakes there.
func (x *process) look(workers []int) {
	for _, k := range workers {
		w := x.workers[k]
		if w.running {
			continue
		}
		switch need := x.gate.Poll(k); {
		case need.Ready():
			w.sit()
			x.wake(w)
		case need.Lack != machine.Ended:
			w.lacks = need
		}
	}
	if x.gate.Ended() {
		x.closeEnded()
	}
}

// issued says that a worker's own time on an instruction is over, and with done that it is complete.
func (x *process) issued(w *worker, done bool) {
	done = done || w.complete
	w.complete = false
	x.look(x.gate.Issued(w.rank, done))
}

// done says that an instruction that a worker has issued, or is still at, is complete.
func (x *process) done(w *worker, in schedule.Instruction) {
	if at := x.gate.Poll(w.rank); at.Lack == machine.Running && at.At == in {
		w.complete = true
		return
	}
	x.look(x.gate.Done(w.rank, in))
}

// absolute gives an instruction ids that count over the whole training.
func (x *process) absolute(in schedule.Instruction) schedule.Instruction {
	if !x.trains {
		return in
	}
	if in.Kind.OfMinibatch() {
		in.Micro += int32(x.base)
	} else {
		in.Micro += int32(x.base * x.program.PerMinibatch())
	}
	return in
}

// since is the time on the Timeline's clock.
func (x *process) since(t time.Time) time.Duration { return t.Sub(x.began) }

// arrived is what the mesh calls, on any goroutine, when a message is there for a worker.
func (x *process) arrived(to, from int, tag wire.Tag) {
	in := instructionOf(tag)
	err := crash.Guard(func() error {
		x.arrive(to, tag, in)
		return nil
	})
	if err != nil {
		x.fail(to, x.workers[to].failed(in, err))
	}
}

func (x *process) arrive(to int, tag wire.Tag, in schedule.Instruction) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.err != nil {
		return
	}
	x.moved = time.Now()
	key := delivery{tag, to}
	if s, ok := x.sent[key]; ok {
		delete(x.sent, key)
		for _, t := range s.tensors {
			x.workers[to].dev.Charge(t)
		}
		x.note(record.Event{Worker: s.from.rank, In: s.in, Ready: s.at, Start: s.at, End: x.since(x.moved), Bytes: s.size})
		if *s.left--; *s.left == 0 {
			x.done(s.from, s.in)
		}
	}
	x.look(x.gate.Arrive(to, in))
	x.checkStall()
}

// note files an event whose instruction still has the Program's ids.
func (x *process) note(e record.Event) record.Event {
	e.Outside = !x.trains
	if e.Step = x.base + x.program.MinibatchOf(e.In); e.Outside {
		e.Step = x.base - 1
	}
	e.In = x.absolute(e.In)
	e.Blocker.For = x.absolute(e.Blocker.For)
	x.record.Add(e)
	return e
}

// besides runs the work of a collective that worker w has issued, on a goroutine of its
// own, and says when it is done. start is when it began in fact.
func (x *process) besides(w *worker, in schedule.Instruction, start time.Time, size int64, work func(ctx context.Context) error) {
	x.beside.Go(crash.Caught(func() {
		err := crash.Guard(func() error {
			if err := work(x.ctx); err != nil {
				return err
			}
			x.mu.Lock()
			defer x.mu.Unlock()
			if x.err != nil {
				return nil
			}
			x.moved = time.Now()
			at := x.since(start)
			x.note(record.Event{Worker: w.rank, In: in, Ready: at, Start: at, End: x.since(x.moved), Bytes: size})
			x.done(w, in)
			x.checkStall()
			return nil
		})
		if err != nil {
			x.fail(w.rank, w.failed(in, err))
		}
	}))
}
