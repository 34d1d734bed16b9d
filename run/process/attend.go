package process

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/internal/crash"
	"github.com/millrace-ml/millrace/run/control"
	"github.com/millrace-ml/millrace/run/place"
	"github.com/millrace-ml/millrace/run/record"
	"github.com/millrace-ml/millrace/trace"
	"github.com/millrace-ml/millrace/wire"
)

// New returns this process's part of a run. The link connects it to the leader.
func New(j *Job, on *place.Place, link control.Link) (*Process, error) {
	workers, mine := len(j.World.Workers), j.World.WorkersOf()[j.World.Rank]
	ctx, cancel := context.WithCancel(context.Background())
	x := &Process{
		ctx: ctx, cancel: cancel, job: j, place: on,
		leader:   leader{link, control.NewFollower(j.World.Rank, len(mine))},
		crew:     crew{workers: make([]*worker, workers)},
		activity: activity{moved: time.Now(), owes: true},
		saving:   saving{job: j, keeps: true},
		leaving:  leaving{leave: make(chan struct{}), hurry: make(chan struct{})},
	}
	x.now.job = j
	moments := j.Keep.Moments
	if j.overlaps() { // the work of one step then overlaps the work of many other steps
		moments = 0
	}
	x.ledger = ledger{began: time.Now(), now: &x.now, record: record.New(j.Keep.Steps, j.Keep.WantStep, moments),
		ranks: mine}
	x.summers.ctx, x.summers.meet = ctx, j.Sums.Meet
	x.summers.moved = func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.activity.moved = time.Now()
	}
	x.ends = ends{x: x, broken: make(chan breakage, 1)}
	carriers, err := j.Carriers(workers)
	if err == nil {
		x.ends.ports, err = wire.NewPorts(carriers, mine, x.ends.config)
	}
	if err != nil {
		cancel()
		return nil, fmt.Errorf("run: %w", err)
	}
	if len(carriers) != workers {
		cancel()
		return nil, errors.Join(fmt.Errorf("run: carriers of %d workers for %d workers", len(carriers), workers),
			x.ends.ports.Close())
	}
	for seat, k := range mine {
		x.ledger.parts += len(j.places(k))
		x.crew.workers[k] = newWorker(x, k, seat)
		x.crew.mine = append(x.crew.mine, x.crew.workers[k])
	}
	return x, nil
}

// SendsBytes reports whether a worker of this process sends messages as bytes.
func (x *Process) SendsBytes() bool { return x.ends.sendBytes() }

// Weight is a parameter or buffer after training.
type Weight struct {
	DType engine.DType
	Shape []int64
	Data  []byte
}

// departure holds the results of a worker that ends.
type departure struct {
	rank    int
	leaked  int
	memory  engine.Memory
	weights map[string]Weight
	rounded []trace.Rounded
	err     error
}

// Belongings holds the results of a process that ends.
type Belongings struct {
	control.Left
	Timeline *trace.Timeline // of the process's own workers, on its own clock
	Weights  map[string]Weight
	Stopped  bool  // the run was stopped before its last step
	Err      error // error while leaving
}

// Attend opens the workers, follows the leader until the leader says Leave or is lost, and frees everything. Anything
// in flight is freed before a device closes. When ctx ends, Attend asks the leader to stop the run.
//
// After another process is lost, a process that is not the leader waits at most HurryAfter for its devices to free what
// they hold. In the leading process the caller of Attend decides how long to wait.
func (x *Process) Attend(ctx context.Context) Belongings {
	a := attendance{x: x, release: make(chan struct{}), gone: make(chan departure, len(x.crew.mine))}
	a.herald.Go(crash.Caught(x.herald))
	if from := x.job.From; from != nil { // a read from another host must not outlast the run
		context.AfterFunc(x.ctx, crash.Caught(from.Interrupt))
	}
	x.leader.link.Start(x.told)
	crash.Go(a.open)
	stop := context.AfterFunc(ctx, crash.Caught(func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.say(control.Stop{})
	}))
	<-x.leaving.leave
	stop()
	left, in := a.await()
	if in {
		x.mu.Lock()
		for _, part := range control.RecordsOf(left.Timeline) {
			x.say(part)
		}
		x.say(left.Left)
		x.mu.Unlock()
	}
	if err := x.leader.link.Close(); err != nil {
		left.Err = errors.Join(left.Err, fmt.Errorf("run: %w", err))
	}
	return left
}

// attendance is the state of Attend. release is closed when nothing is in flight; only then do workers free the tensors
// that they still hold.
type attendance struct {
	x       *Process
	herald  sync.WaitGroup
	gone    chan departure
	release chan struct{}
}

// HurryAfter is how long a process that is not the leader may take to leave after another process is lost.
const HurryAfter = 2 * time.Second

// await waits until depart has returned the process's belongings. `in` is false if depart takes longer than HurryAfter
// after the loss of another process.
func (a *attendance) await() (left Belongings, in bool) {
	x, whole := a.x, make(chan Belongings, 1)
	crash.Go(func() { whole <- a.depart() })
	hurry := x.leaving.hurry
	if x.job.World.Rank == 0 {
		hurry = nil
	}
	select {
	case left := <-whole:
		return left, true
	case <-hurry:
	}
	select {
	case left := <-whole:
		return left, true
	case <-time.After(HurryAfter):
		return Belongings{Timeline: x.timeline(), Err: fmt.Errorf("run: %s did not wait for its devices: %v behind the end "+
			"of the run %s", x.job.World.Name(x.job.World.Rank), HurryAfter, x.Held())}, false
	}
}

// depart waits until nothing is in flight, frees everything, and returns the belongings of the process.
func (a *attendance) depart() Belongings {
	x := a.x
	for _, w := range x.crew.mine {
		<-w.idled
	}
	x.cancel()
	x.beside.Wait()
	a.herald.Wait() // after this, all buffers are freed
	left := Belongings{Stopped: x.leaving.stopped, Err: errors.Join(x.summers.close(), x.ends.ports.Close())}
	close(a.release)
	byRank := map[int]departure{}
	for range x.crew.mine {
		d := <-a.gone
		byRank[d.rank] = d
		left.Leaked += d.leaked
		left.Err = errors.Join(left.Err, d.err)
		for name, w := range d.weights {
			if left.Weights == nil {
				left.Weights = map[string]Weight{}
			}
			left.Weights[name] = w
		}
	}
	x.job.Network.join(left.Weights)
	left.Err = errors.Join(left.Err, x.saving.abandon())
	left.Timeline = x.timeline()
	for _, w := range x.crew.mine {
		left.Timeline.PeakBytes[w.rank] = byRank[w.rank].memory.PeakBytes
		left.Timeline.Rounded = trace.JoinRounded(left.Timeline.Rounded, byRank[w.rank].rounded)
	}
	if left.Err != nil {
		failed := x.job.FailedOf(left.Err)
		left.Failed = &failed
	}
	left.Due = x.Due()
	return left
}

// Held describes the workers that keep this process from leaving, and the instruction that each of them is at.
func (x *Process) Held() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	var all []string
	for _, w := range x.crew.mine {
		select {
		case <-w.idled:
			continue
		default:
		}
		at := "in front of its first instruction"
		if w.at.Kind != 0 {
			at = fmt.Sprintf("at %v", x.now.absolute(w.at))
		}
		all = append(all, fmt.Sprintf("worker %d is still %s", w.rank, at))
	}
	if all == nil {
		return "its workers are done, and something that they began is not"
	}
	return strings.Join(all, ", ")
}

// open starts the workers. Once all of them have opened their devices and made their stages, it reports that the
// process is ready.
func (a *attendance) open() {
	x := a.x
	opened := make(chan error, len(x.crew.mine))
	for _, w := range x.crew.mine {
		crash.Go(func() { a.gone <- w.life(opened, a.release) })
	}
	whole := true
	for range x.crew.mine {
		if err := <-opened; err != nil {
			x.fail(x.crew.some(), fmt.Errorf("run: %w", err)) // do not wait for the other workers: their devices may hang
			whole = false
		}
	}
	if !whole {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.activity.owes = false
	x.say(control.Ready{})
}

// say sends a message to the leader, unless the leader no longer needs it. The caller holds mu.
func (x *Process) say(body control.Body) {
	m, useful := x.leader.follower.Say(body)
	if !useful {
		return
	}
	if err := x.leader.link.Send(m); err != nil {
		x.leader.follower.Unsay()
		x.failLocked(x.crew.some(), fmt.Errorf("run: the leader cannot be told: %w", err))
	}
}

// part makes the workers leave. The caller holds mu.
func (x *Process) part() {
	x.leaving.over = true
	x.crew.wakeAll()
	x.leaving.gone.Do(func() { close(x.leaving.leave) })
}

// told is called with every message of the leader, in order, and at the end with the error that broke the Link.
func (x *Process) told(m control.Message, broken error) {
	err := crash.Guard(func() error {
		x.mu.Lock()
		defer x.mu.Unlock()
		if broken != nil {
			x.leaving.hurryUp() // no leader receives this process's results
			if !x.leaving.over {
				x.failLocked(x.crew.some(), fmt.Errorf("run: %w", x.job.World.noLeader(broken)))
				x.part()
			}
			return nil
		}
		body, err := x.leader.follower.Receive(m)
		if err != nil {
			return err
		}
		return x.obey(body)
	})
	if err != nil {
		x.fail(x.crew.some(), err)
	}
	x.mu.Lock()
	early := x.ends.early
	x.ends.early = nil
	x.mu.Unlock()
	if early != nil {
		early()
	}
}

// obey carries out a message of the leader. The caller holds mu.
func (x *Process) obey(body control.Body) error {
	switch body := body.(type) {
	case control.Load:
		x.saving.run = body.Run
		return x.begin(body.Program, body.Base, body.Slots, true)
	case control.Evaluate:
		return x.begin(body.Program, body.Base, body.Slots, false)
	case control.Save:
		var err error
		if x.saving.dir, err = x.saving.pathOf(body.Draft); err != nil {
			return err
		}
		return x.begin(body.Program, body.Base, body.Slots, false)
	case control.Mark, control.Look, control.Commit, control.Prune:
		x.carryOut(body)
	case control.Stop:
		begun := x.crew.gate.Begun()
		held := x.crew.gate.Hold(begun + 1)
		x.say(control.Begun{Minibatch: begun})
		x.look(held)
	case control.Limit:
		x.now.limit = min(x.now.limit, body.Minibatches)
		x.look(x.crew.gate.Limit(body.Minibatches))
	case control.Release:
		x.look(x.crew.gate.Release())
	case control.Beat:
		x.say(x.needs())
	case control.Show:
		x.show(body)
	case control.Failed:
		x.failLocked(x.crew.some(), ErrorOf(x.job.World, &body))
	case control.Leave:
		if x.leaving.stopped, x.saving.abandoned = body.Stopped, body.Drafts; body.Draft != "" {
			x.saving.abandoned = append(x.saving.abandoned, body.Draft)
		}
		x.part()
	}
	return nil
}

// end tells the leader that all lists have ended. Before that it sends the results of an evaluation or a checkpoint, if
// there are any. The caller holds mu.
func (x *Process) end() {
	x.now.ended = true
	if !x.now.trains {
		if len(x.now.tested.Parts) > 0 || x.now.tested.Apart > 0 {
			for _, part := range control.ResultsOf(x.now.tested) {
				x.say(part)
			}
		}
		if len(x.now.saved.Files) > 0 {
			x.say(x.now.saved)
		}
	}
	e := control.Ended{Minibatches: min(x.now.limit, x.now.minibatches)}
	if x.now.refused != nil {
		refused := x.job.FailedOf(x.now.refused)
		e.Refused = &refused
	}
	for _, w := range x.crew.mine {
		e.PeakBytes = append(e.PeakBytes, w.progress.memory.PeakBytes)
	}
	x.say(e)
}
