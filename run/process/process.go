package process

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/millrace-ml/millrace/internal/crash"
	"github.com/millrace-ml/millrace/run/checkpoint"
	"github.com/millrace-ml/millrace/run/control"
	"github.com/millrace-ml/millrace/run/place"
	"github.com/millrace-ml/millrace/run/record"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/machine"
	"github.com/millrace-ml/millrace/wire"
)

// Gate decides which worker may start its next instruction: a machine.Process. Tests put others in its place.
type Gate interface {
	machine.Gate
	Load(*schedule.Program) error
	Local(worker int) *machine.Local
	Processor(worker int) (processor int, has bool)
	Begun() int
	Hold(n int) []int
	Limit(n int) []int
	AtDrain() (drain, workers int, all bool)
	Release() []int
	Ended() bool
}

// Process is one process's part of a run: what its workers share, who decides, what is recorded, and the
// first error. It says to the leader what has happened, and does what the leader says. Everything below mu is
// guarded by it; the gate is pure and is only called under it.
type Process struct {
	ctx     context.Context // ends with the first failure
	cancel  context.CancelFunc
	job     *Job
	ports   *wire.Ports
	table   wire.Table // of its workers' edges
	place   *place.Place
	began   time.Time
	link    control.Link
	leave   chan struct{} // closed when the leader has said so, or is lost
	stopped bool          // the run was, as the leader has said; set before leave is closed
	gone    sync.Once     // closes leave
	hurry   chan struct{} // closed when a process is lost, and nobody waits for the rest any more
	hurried sync.Once     // closes hurry

	beside  sync.WaitGroup // collectives under way
	summers summers        // of a native library, where the job asks for it
	broken  chan breakage  // the first of the wire's own

	mu          sync.Mutex
	gate        Gate
	program     *schedule.Program
	base        int       // step that minibatch 0 of program is
	slots       int       // messages that may lie with a receiver on an edge; 0: no bound
	trains      bool      // program is training, so its instructions belong to steps
	limit       int       // minibatches of program that are done at its end
	minibatches int       // of program
	ended       bool      // all lists have, and the leader has been told
	drains      int       // that it has been told of
	workers     []*worker // by rank; nil for those of other processes
	mine        []int     // ranks
	updates     int       // of the workers' in a step
	moved       time.Time // when something last happened
	bytes       int64     // that had moved by then
	owes        bool      // it is getting ready, or carries out an order
	flying      int       // messages and slots under way between workers of this process
	early       func()    // tells of messages that came before their program; without mu
	record      *record.Recorder
	follower    *control.Follower
	err         error
	failing     int          // the worker that it is of
	due         *control.Due // where it is that a process is lost
	cut         bool         // it came before the end of a program
	over        bool         // no further Program: workers leave
	refused     error        // why the last update was taken back for good
	dir         string       // of the files of a checkpoint
	saved       control.Saved
	keeps       bool     // this is the first of the processes that have its folder of checkpoints
	continued   bool     // it has made the checkpoints of the run before its own
	abandoned   []string // the drafts that are removed in the end
	run         uint64   // whose drafts stages write that save themselves as the program trains; 0: none does
	tested      control.Result
}

// begin makes p the Program and sets every worker going. base is the step of its first minibatch, slots is how many
// messages may lie with a receiver on an edge, 0 for no bound; trains says whether its instructions belong to steps.
func (x *Process) begin(p *schedule.Program, base, slots int, trains bool) error {
	if p.Workers != len(x.workers) {
		return fmt.Errorf("run: program %s is for %d workers; this run has %d", p.Name, p.Workers, len(x.workers))
	}
	here := func(worker int) bool { return x.workers[worker] != nil }
	if err := nameEdges(&x.table, p, here, slots); err != nil {
		return fmt.Errorf("run: program %s: %w", p.Name, err)
	}
	var err error
	if x.gate == nil {
		o := machine.Options{Cores: machine.Share(x.job.Cores), Ahead: x.job.Ahead, Slots: x.job.Slots}
		x.gate, err = x.job.Decide(p, x.mine, o)
	} else {
		err = x.gate.Load(p)
	}
	if err != nil {
		return err
	}
	x.program, x.base, x.slots, x.trains, x.limit, x.refused = p, base, slots, trains, math.MaxInt, nil
	x.minibatches = p.Minibatches()
	x.ended, x.drains, x.moved = false, 0, time.Now()
	x.saved, x.tested = control.Saved{}, control.Result{}
	for _, k := range x.mine {
		if err := x.workers[k].prepare(p); err != nil {
			return err
		}
	}
	x.early = x.ports.Begin(x.follower.Epoch(), x.table.Edges())
	x.look(nil)
	for _, k := range x.mine {
		x.wake(x.workers[k])
	}
	return nil
}

// fail notes the first error, stops every worker and tells the leader.
func (x *Process) fail(worker int, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.failLocked(worker, err)
}

func (x *Process) failLocked(worker int, err error) {
	if x.err != nil {
		return
	}
	if lost, is := x.lostBy(worker, err); is {
		x.due = x.dueOf(lost.Process)
		x.hurried.Do(func() { close(x.hurry) })
		if !errors.As(err, new(*control.LostError)) {
			err = fmt.Errorf("run: %w", lost)
		}
	}
	x.err, x.failing, x.cut = err, worker, x.program == nil || !x.ended
	x.cancel() // which has the herald tell the wire
	x.wakeAll()
	x.say(x.job.FailedOf(err))
}

// breakage is what a worker's port has ended with by itself.
type breakage struct {
	worker int
	err    error
}

// herald tells the wire of the process's first error, and the process of the wire's; it ends with ctx. It is a
// goroutine, since whoever notes either has mu, and the wire takes that as it tells senders.
func (x *Process) herald() {
	select {
	case b := <-x.broken:
		x.mu.Lock()
		if !x.over { // and nobody needs the port any more
			x.failLocked(b.worker, fmt.Errorf("run: worker %d: %w", b.worker, b.err))
		}
		x.mu.Unlock()
	case <-x.ctx.Done():
	}
	<-x.ctx.Done()
	x.mu.Lock()
	worker, err := x.failing, x.err
	x.mu.Unlock()
	if err != nil {
		x.ports.Fail(worker, err)
	}
}

// isWhole says whether the workers have done what they were told, so that their weights are those behind a
// step.
func (x *Process) isWhole() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return !x.cut
}

// Failure is the first error, or nil.
func (x *Process) Failure() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.err
}

// wake sends a worker back to look, which counts as running from now on, so that nobody takes the moment
// until it looks for a stall.
func (x *Process) wake(w *worker) {
	if !w.running {
		w.running = true
		w.bell.Ring()
	}
}

func (x *Process) wakeAll() {
	for _, k := range x.mine {
		x.wake(x.workers[k])
	}
}

// look wakes those of the workers that may start now, the others know why not, and tells the leader where all
// have come to a drain or to the end. A worker that was given a core is bound to its processor before it
// wakes there.
func (x *Process) look(workers []int) {
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
	if drain, n, all := x.gate.AtDrain(); all && drain == x.drains {
		x.drains++
		x.say(control.Reached{Drain: drain, Workers: n})
	}
	if !x.ended && x.gate.Ended() {
		x.end()
	}
}

// issued says that a worker's own time on an instruction is over, and with done that it is complete.
func (x *Process) issued(w *worker, done bool) {
	done = done || w.complete
	w.complete = false
	x.look(x.gate.Issued(w.rank, done))
}

// done says that an instruction that a worker has issued, or is still at, is complete.
func (x *Process) done(w *worker, in schedule.Instruction) {
	if at := x.gate.Poll(w.rank); at.Lack == machine.Running && at.At == in {
		w.complete = true
		return
	}
	x.look(x.gate.Done(w.rank, in))
}

// absolute gives an instruction ids that count over the whole training.
func (x *Process) absolute(in schedule.Instruction) schedule.Instruction {
	if !x.trains {
		return in
	}
	return Absolute(x.program, x.base, in)
}

// Absolute gives an instruction of a Program that trains, whose minibatch 0 is step base, such ids.
func Absolute(p *schedule.Program, base int, in schedule.Instruction) schedule.Instruction {
	if in.Kind.OfMinibatch() {
		in.Micro += int32(base)
	} else {
		in.Micro += int32(base * p.PerMinibatch())
	}
	return in
}

// Began is when the process's clock was 0.
func (x *Process) Began() time.Time { return x.began }

// since is the time on the process's clock.
func (x *Process) since(t time.Time) time.Duration { return t.Sub(x.began) }

// note files an event whose instruction still has the Program's ids.
func (x *Process) note(e record.Event) record.Event {
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
func (x *Process) besides(w *worker, in schedule.Instruction, start time.Time, size int64,
	work func(ctx context.Context) error) {
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

// checkStall tells the leader where this is the only process, nobody runs, nothing is on its way, not
// everybody is done and the leader owes no answer: nobody can ever move. The caller holds mu.
func (x *Process) checkStall() {
	if x.err != nil || x.program == nil || x.ended || x.flying > 0 || x.job.World.processes() > 1 {
		return
	}
	if _, _, all := x.gate.AtDrain(); all {
		return
	}
	for _, k := range x.mine {
		if x.workers[k].running || x.gate.Local(k).Open() > 0 || x.workers[k].lacks.Lack == machine.Held {
			return
		}
	}
	n := x.needs()
	n.Stuck = true
	x.say(n)
}

// hasMoved notes that something has happened.
func (x *Process) hasMoved() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.moved = time.Now()
}

// needs is what the workers wait for. Bytes that move, over the wire and to and from disks, are something that happens.
// The caller holds mu.
func (x *Process) needs() control.Needs {
	now := time.Now()
	if bytes := x.ports.Moved() + checkpoint.Moved(); bytes != x.bytes {
		x.bytes, x.moved = bytes, now
	}
	n := control.Needs{AtS: x.since(now).Seconds(), QuietS: now.Sub(x.moved).Seconds(), Owes: x.owes,
		Ended: x.program == nil || x.ended}
	if n.Ended {
		return n
	}
	waits := x.gate.Waits()
	for _, k := range x.mine {
		if n.Running = n.Running || x.workers[k].running; x.workers[k].running {
			if need := x.gate.Poll(k); need.Lack == machine.Running {
				waits = append(waits, need)
			}
		}
	}
	for _, need := range waits {
		free := x.workers[need.Worker].free
		if need.Lack == machine.Running {
			free = x.workers[need.Worker].started
		}
		w := control.Wait{
			Worker: need.Worker, At: need.At, Lack: need.Lack, Peer: need.Peer, Waited: now.Sub(free), Since: x.since(free),
		}
		if need.For != (schedule.Instruction{}) {
			w.For = need.For.String()
		}
		n.Waits = append(n.Waits, w)
	}
	return n
}
