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

// Gate decides which worker may start its next instruction. It is a machine.Process; tests replace it.
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

// Process is one process's part of a run. It reports events to the leader and carries out the leader's messages. mu
// guards all fields below it, except where the comment of a part says otherwise.
type Process struct {
	ctx     context.Context // ends with the first failure, or when all workers have ended
	cancel  context.CancelFunc
	job     *Job
	place   *place.Place
	leader  leader
	ends    ends
	summers summers        // of another library, if the job uses one
	beside  sync.WaitGroup // goroutines beside the workers, such as collectives in flight

	mu       sync.Mutex
	crew     crew
	now      underway
	ledger   ledger
	activity activity
	failure  failure
	saving   saving
	leaving  leaving
}

// leader is the process's end of the ordered exchange with the leader.
type leader struct {
	link     control.Link
	follower *control.Follower
}

// failure is the first error of the process.
type failure struct {
	err    error
	worker int          // the worker that it belongs to
	due    *control.Due // if a process is lost: what was awaited from it; nil if not known
	cut    bool         // it occurred before the first Program, or while a Program was running
}

// activity records when something last happened. If nothing happens any more, the process has stalled.
type activity struct {
	moved  time.Time // when something last happened
	bytes  int64     // bytes moved by then
	owes   bool      // the process is starting or carries out an order
	flying int       // messages and slots in flight between workers of this process
}

// sees compares the number of bytes moved until now with the last number. If the number has changed, something has
// happened.
func (a *activity) sees(now time.Time, bytes int64) {
	if bytes != a.bytes {
		a.bytes, a.moved = bytes, now
	}
}

// leaving is the state of a process's end, which begins when the leader says Leave or is lost.
type leaving struct {
	over    bool          // there is no further Program: workers leave
	leave   chan struct{} // closed when over becomes true
	gone    sync.Once     // for closing `leave` only once
	stopped bool          // the leader said that the run was stopped; set before leave is closed
	hurry   chan struct{} // closed when a process is lost, so that waits are cut short
	hurried sync.Once     // for closing `hurry` only once
}

// hurryUp makes the process wait only briefly at its end.
func (l *leaving) hurryUp() { l.hurried.Do(func() { close(l.hurry) }) }

// crew holds the workers of a process and the Gate, which decides which of them may start. A worker sleeps until an
// event concerns it. It counts as running from the moment it is woken.
type crew struct {
	gate    Gate      // nil until the first Program
	workers []*worker // by rank; nil for workers of other processes
	mine    []*worker
}

// load gives the Gate its first or next Program.
func (c *crew) load(j *Job, p *schedule.Program) (err error) {
	if c.gate != nil {
		return c.gate.Load(p)
	}
	o := machine.Options{Cores: machine.Share(j.Devices.Cores), Ahead: j.Devices.Ahead, Slots: j.Devices.Slots}
	c.gate, err = j.Decide(p, j.World.WorkersOf()[j.World.Rank], o)
	return err
}

// wake makes a worker look for work. The worker counts as running from now on, so that the time until it looks is not
// taken for a stall.
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

// look goes through the given workers, except those that are awake. It wakes a worker that may start its next
// instruction. Otherwise it records why the worker may not start. A worker that has got a core is bound to the core's
// processor before it wakes.
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

// moves reports whether a worker runs, has something in flight, or waits until the leader lets it continue.
func (c *crew) moves() bool {
	return slices.ContainsFunc(c.mine, func(w *worker) bool {
		return w.progress.running || c.gate.Local(w.rank).Open() > 0 || w.progress.lacks.Lack == machine.Held
	})
}

// some returns a worker of this process, for failures that belong to no worker; 0 if there is none.
func (c *crew) some() int {
	if len(c.mine) == 0 {
		return 0
	}
	return c.mine[0].rank
}

// dueOf returns the instruction of another process for which a worker has waited longest in the current Program.
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

// begin parses a Program, whose text is the same in every process, and starts every worker. Only the leader has checked
// the Program, because a check of all workers' lists takes time. base is the step of the Program's first minibatch.
// slots is how many messages may wait at the receiver of an edge; 0 means no bound. trains says whether its
// instructions belong to steps.
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

// fail records the first error, stops every worker and tells the leader.
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
	x.cancel() // herald then tells the wire
	x.crew.wakeAll()
	x.say(x.job.FailedOf(err))
}

// breakage is an error with which a worker's port has ended by itself.
type breakage struct {
	worker int
	err    error
}

// herald passes the process's first error to the wire, and an error of the wire to the process. It ends with ctx. It
// runs on its own goroutine, because the code that detects either error holds mu, and the wire calls functions that
// take mu.
func (x *Process) herald() {
	select {
	case b := <-x.ends.broken:
		x.mu.Lock()
		if !x.leaving.over { // otherwise the port is not needed any more
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

// isWhole reports whether the workers completed their last Program. If so, their weights are the weights after a step.
func (x *Process) isWhole() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return !x.failure.cut
}

// Failure returns the first error, or nil.
func (x *Process) Failure() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.failure.err
}

// Due returns what the process was awaiting from a lost process. It is nil if none was lost or nothing was awaited
// from it.
func (x *Process) Due() *control.Due {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.failure.due
}

// Began returns the time at which the process's clock was 0.
func (x *Process) Began() time.Time { return x.ledger.began }

// look wakes each of the given workers that may start now. When all workers have reached a drain or the end, it tells
// the leader. The caller holds mu.
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

// checkStall tells the leader if the only process of a run can never continue. In that case no worker runs, nothing is
// in flight, some workers are not done, and the leader owes no answer. In a run of several processes it does nothing.
// The caller holds mu.
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

// needs returns what the workers wait for. Bytes that move over the wire, or to and from disks, count as activity. The
// caller holds mu.
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
