package process

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/millrace-ml/millrace/run/checkpoint"
	"github.com/millrace-ml/millrace/run/control"
	"github.com/millrace-ml/millrace/run/place"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/machine"
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

// Process is one process's part of a run. It says to the leader what has happened, and does what the leader says.
// Everything below mu is guarded by it, but for what the doc of a part says.
type Process struct {
	ctx     context.Context // ends with the first failure
	cancel  context.CancelFunc
	job     *Job
	place   *place.Place
	leader  leader
	ends    ends
	summers summers        // of a native library, where the job asks for it
	beside  sync.WaitGroup // collectives under way

	mu       sync.Mutex
	crew     crew
	now      underway
	ledger   ledger
	activity activity
	failure  failure
	saving   saving
	leaving  leaving
}

// leader is the process's end of its exchange with the leader, in order.
type leader struct {
	link     control.Link
	follower *control.Follower
}

// failure is the first error of the process.
type failure struct {
	err    error
	worker int          // that it is of
	due    *control.Due // where it is that a process is lost
	cut    bool         // it came before the end of a program
}

// activity is whether anything happens: what else makes a stall.
type activity struct {
	moved  time.Time // when something last happened
	bytes  int64     // that had moved by then
	owes   bool      // it is getting ready, or carries out an order
	flying int       // messages and slots under way between workers of this process
}

// sees notes how many bytes have moved by now.
func (a *activity) sees(now time.Time, bytes int64) {
	if bytes != a.bytes {
		a.bytes, a.moved = bytes, now
	}
}

// leaving is the end of a process: when the leader has said so, or is lost.
type leaving struct {
	over    bool          // no further Program: workers leave
	leave   chan struct{} // closed then
	gone    sync.Once     // closes leave
	stopped bool          // the run was, as the leader has said; set before leave is closed
	hurry   chan struct{} // closed when a process is lost, and nobody waits for the rest any more
	hurried sync.Once     // closes hurry
}

// hurryUp has nobody wait for the rest.
func (l *leaving) hurryUp() { l.hurried.Do(func() { close(l.hurry) }) }

// crew is the workers of a process, and the Gate, which alone says who may start. A worker sleeps until an event
// concerns it; from the moment when it is woken it counts as running.
type crew struct {
	gate    Gate      // nil until the first Program
	workers []*worker // by rank; nil for those of other processes
	mine    []*worker
}

// load gives the Gate a Program, the first or the next one.
func (c *crew) load(j *Job, p *schedule.Program) (err error) {
	if c.gate != nil {
		return c.gate.Load(p)
	}
	o := machine.Options{Cores: machine.Share(j.Devices.Cores), Ahead: j.Devices.Ahead, Slots: j.Devices.Slots}
	c.gate, err = j.Decide(p, j.World.WorkersOf()[j.World.Rank], o)
	return err
}

// wake sends a worker back to look for work. It counts as running from now on, so that the moment until it looks is
// not taken for a stall.
func (c *crew) wake(w *worker) {
	if !w.progress.running {
		w.progress.running = true
		w.bell.Ring()
	}
}

func (c *crew) wakeAll() {
	for _, w := range c.mine {
		c.wake(w)
	}
}

// look wakes those of the workers that may start now; the others know why not. A worker that was given a core is bound
// to its processor before it wakes there.
func (c *crew) look(workers []int) {
	for _, k := range workers {
		w := c.workers[k]
		if w.progress.running {
			continue
		}
		switch need := c.gate.Poll(k); {
		case need.Ready():
			w.sit()
			c.wake(w)
		case need.Lack != machine.Ended:
			w.progress.lacks = need
		}
	}
}

// moves says whether something of a worker's is under way, or the leader holds one back.
func (c *crew) moves() bool {
	return slices.ContainsFunc(c.mine, func(w *worker) bool {
		return w.progress.running || c.gate.Local(w.rank).Open() > 0 || w.progress.lacks.Lack == machine.Held
	})
}

// some is a worker of this process, to which a failure that belongs to no worker is put down; 0 where there is none.
func (c *crew) some() int {
	if len(c.mine) == 0 {
		return 0
	}
	return c.mine[0].rank
}

// dueOf is the instruction of another process that a worker has waited for longest, in the Program under way.
func (c *crew) dueOf(process int, now *underway) (longest *control.Due) {
	for _, need := range c.gate.Waits() {
		of, waits := now.job.World.waitedFor(process, now.program, need)
		if !waits {
			continue
		}
		waited := time.Since(c.workers[need.Worker].progress.free).Seconds()
		if longest != nil && longest.WaitedS >= waited {
			continue
		}
		in := now.absolute(need.For)
		longest = &control.Due{Worker: need.Worker, Of: of, Instruction: in.String(), Stage: int(in.Stage), WaitedS: waited}
	}
	return longest
}

// begin makes a Program of its text, which is the same in every process, and sets every worker going. The leader has
// checked it: a check takes as long as the Program of all workers is. base is the step of its first minibatch, slots is
// how many messages may lie with a receiver on an edge, 0 for no bound; trains says whether its instructions belong to
// steps.
func (x *Process) begin(text string, base, slots int, trains bool) error {
	p, err := schedule.ParseText(strings.NewReader(text))
	if err != nil {
		return fmt.Errorf("run: %w", err)
	}
	if p.Workers != len(x.crew.workers) {
		return fmt.Errorf("run: program %s is for %d workers; this run has %d", p.Name, p.Workers, len(x.crew.workers))
	}
	here := func(worker int) bool { return x.crew.workers[worker] != nil }
	if err := nameEdges(&x.ends.table, p, here, slots); err != nil {
		return fmt.Errorf("run: program %s: %w", p.Name, err)
	}
	if err := x.crew.load(x.job, p); err != nil {
		return err
	}
	x.now, x.activity.moved = begins(x.job, p, base, slots, trains), time.Now()
	for _, w := range x.crew.mine {
		if err := w.prepare(p); err != nil {
			return err
		}
	}
	x.ends.early = x.ends.ports.Begin(x.leader.follower.Epoch(), x.ends.table.Edges())
	x.look(nil)
	x.crew.wakeAll()
	return nil
}

// fail notes the first error, stops every worker and tells the leader.
func (x *Process) fail(worker int, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.failLocked(worker, err)
}

func (x *Process) failLocked(worker int, err error) {
	if x.failure.err != nil {
		return
	}
	if lost, is := x.job.World.lostBy(worker, err); is {
		if x.now.runs() {
			x.failure.due = x.crew.dueOf(lost.Process, &x.now)
		}
		x.leaving.hurryUp()
		if !errors.As(err, new(*control.LostError)) {
			err = fmt.Errorf("run: %w", lost)
		}
	}
	x.failure.err, x.failure.worker, x.failure.cut = err, worker, x.now.program == nil || !x.now.ended
	x.cancel() // which has the herald tell the wire
	x.crew.wakeAll()
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
	case b := <-x.ends.broken:
		x.mu.Lock()
		if !x.leaving.over { // and nobody needs the port any more
			x.failLocked(b.worker, fmt.Errorf("run: worker %d: %w", b.worker, b.err))
		}
		x.mu.Unlock()
	case <-x.ctx.Done():
	}
	<-x.ctx.Done()
	x.mu.Lock()
	worker, err := x.failure.worker, x.failure.err
	x.mu.Unlock()
	if err != nil {
		x.ends.ports.Fail(worker, err)
	}
}

// isWhole says whether the workers have done what they were told, so that their weights are those behind a
// step.
func (x *Process) isWhole() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return !x.failure.cut
}

// Failure is the first error, or nil.
func (x *Process) Failure() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.failure.err
}

// Due is what the process was waiting for from a process that was lost; nil where none was lost, or nothing was awaited
// from it.
func (x *Process) Due() *control.Due {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.failure.due
}

// Began is when the process's clock was 0.
func (x *Process) Began() time.Time { return x.ledger.began }

// look wakes those of the workers that may start now. It tells the leader when all have come to a drain or to the
// end. The caller holds mu.
func (x *Process) look(workers []int) {
	x.crew.look(workers)
	if drain, n, all := x.crew.gate.AtDrain(); all && drain == x.now.drains {
		x.now.drains++
		x.say(control.Reached{Drain: drain, Workers: n})
	}
	if !x.now.ended && x.crew.gate.Ended() {
		x.end()
	}
}

// checkStall tells the leader that this process, the only one, can never go on. That is so where no worker runs,
// nothing is in flight, not all are done and the leader owes no answer. The caller holds mu.
func (x *Process) checkStall() {
	if x.failure.err != nil || !x.now.runs() || x.activity.flying > 0 || x.job.World.processes() > 1 {
		return
	}
	if _, _, all := x.crew.gate.AtDrain(); all {
		return
	}
	if x.crew.moves() {
		return
	}
	n := x.needs()
	n.Stuck = true
	x.say(n)
}

// needs is what the workers wait for. Bytes that move, over the wire and to and from disks, are something that happens.
// The caller holds mu.
func (x *Process) needs() control.Needs {
	now := time.Now()
	x.activity.sees(now, x.ends.ports.Moved()+checkpoint.Moved())
	n := control.Needs{AtS: x.ledger.since(now).Seconds(), QuietS: now.Sub(x.activity.moved).Seconds(),
		Owes: x.activity.owes, Ended: !x.now.runs()}
	if n.Ended {
		return n
	}
	waits := x.crew.gate.Waits()
	for _, w := range x.crew.mine {
		if n.Running = n.Running || w.progress.running; w.progress.running {
			if need := x.crew.gate.Poll(w.rank); need.Lack == machine.Running {
				waits = append(waits, need)
			}
		}
	}
	for _, need := range waits {
		p := &x.crew.workers[need.Worker].progress
		free := p.free
		if need.Lack == machine.Running {
			free = p.started
		}
		w := control.Wait{Worker: need.Worker, At: need.At, Lack: need.Lack, Peer: need.Peer, Waited: now.Sub(free),
			Since: x.ledger.since(free)}
		if need.For != (schedule.Instruction{}) {
			w.For = need.For.String()
		}
		n.Waits = append(n.Waits, w)
	}
	return n
}
