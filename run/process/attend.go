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
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/trace"
	"github.com/millrace-ml/millrace/wire"
)

// New makes this process's part of a run, which hears of the leader over a Link.
func New(j *Job, on *place.Place, link control.Link) (*Process, error) {
	workers, mine := len(j.World.Workers), j.World.WorkersOf()[j.World.Rank]
	ctx, cancel := context.WithCancel(context.Background())
	x := &Process{
		ctx: ctx, cancel: cancel, job: j, place: on, began: time.Now(), moved: time.Now(), link: link,
		leave: make(chan struct{}), hurry: make(chan struct{}), broken: make(chan breakage, 1),
		workers: make([]*worker, workers),
		mine:    mine, owes: true, follower: control.NewFollower(j.World.Rank, len(mine)), keeps: true,
	}
	carriers, err := j.Carriers(workers)
	if err == nil {
		x.ports, err = wire.NewPorts(carriers, x.mine, x.portConfig)
	}
	if err != nil {
		cancel()
		return nil, fmt.Errorf("run: %w", err)
	}
	if len(carriers) != workers {
		cancel()
		return nil, errors.Join(fmt.Errorf("run: carriers of %d workers for %d workers", len(carriers), workers),
			x.ports.Close())
	}
	for seat, k := range x.mine {
		x.updates += len(j.places(k))
		x.workers[k] = &worker{
			rank: k, number: seat, x: x, job: j, port: x.ports.Port(k), held: map[position]*holding{}, bell: place.NewBell(),
			idled:   make(chan struct{}),
			running: true, free: time.Now(),
		}
	}
	x.record = record.New(j.KeepSteps, j.WantStep)
	return x, nil
}

// SendsBytes says whether messages from some worker of this process travel as bytes.
func (x *Process) SendsBytes() bool {
	for _, worker := range x.mine {
		for k := range x.workers {
			if !x.ports.Port(worker).HandsOver(k) {
				return true
			}
		}
	}
	return false
}

// Weight is a parameter or buffer after training.
type Weight struct {
	DType engine.DType
	Shape []int64
	Data  []byte
}

// departure is what a worker leaves behind.
type departure struct {
	rank    int
	leaked  int
	memory  engine.Memory
	weights map[string]Weight
	rounded []trace.Rounded
	err     error
}

// Belongings is what a process leaves behind.
type Belongings struct {
	control.Left
	Timeline *trace.Timeline // of its own workers, on its own clock
	Weights  map[string]Weight
	Stopped  bool  // the run was, before its last step
	Err      error // what went wrong as it left
}

// Attend opens the workers, does what the leader says until that is to leave, and gives everything back.
// Whatever is in flight is given back before any device closes. When ctx ends it asks for the run to stop.
//
// Once another process is lost, one that does not lead returns without what its devices hold if they take long
// over it. For the leader's own whoever calls Attend decides that.
func (x *Process) Attend(ctx context.Context) Belongings {
	release, gone := make(chan struct{}), make(chan departure, len(x.mine))
	var herald sync.WaitGroup
	herald.Go(crash.Caught(x.herald))
	if from := x.job.From; from != nil { // nobody waits for another host once the run is over
		context.AfterFunc(x.ctx, crash.Caught(from.Interrupt))
	}
	x.link.Start(x.told)
	crash.Go(func() { x.open(gone, release) })
	stop := context.AfterFunc(ctx, crash.Caught(func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.say(control.Stop{})
	}))
	<-x.leave
	stop()
	whole := make(chan Belongings, 1)
	crash.Go(func() { whole <- x.depart(&herald, gone, release) })
	left, in := x.await(whole)
	if in {
		x.mu.Lock()
		for _, part := range control.RecordsOf(left.Timeline) {
			x.say(part)
		}
		x.say(left.Left)
		x.mu.Unlock()
	}
	if err := x.link.Close(); err != nil {
		left.Err = errors.Join(left.Err, fmt.Errorf("run: %w", err))
	}
	return left
}

// HurryAfter is how long a process may take to leave once another is lost: who runs ends.
const HurryAfter = 2 * time.Second

// await waits for what a process leaves, and returns false where that takes too long.
func (x *Process) await(whole <-chan Belongings) (left Belongings, in bool) {
	hurry := x.hurry
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

// depart waits until nothing is under way, and gives everything back.
func (x *Process) depart(herald *sync.WaitGroup, gone <-chan departure, release chan<- struct{}) Belongings {
	for _, k := range x.mine {
		<-x.workers[k].idled
	}
	x.cancel()
	x.beside.Wait()
	herald.Wait() // buffers are given back by then
	left := Belongings{Stopped: x.stopped, Err: errors.Join(x.summers.close(), x.ports.Close())}
	close(release)
	byRank := map[int]departure{}
	for range x.mine {
		d := <-gone
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
	x.job.join(left.Weights)
	left.Err = errors.Join(left.Err, x.abandon())
	left.Timeline = x.timeline()
	for _, k := range x.mine {
		left.Timeline.PeakBytes[k] = byRank[k].memory.PeakBytes
		left.Timeline.Rounded = trace.JoinRounded(left.Timeline.Rounded, byRank[k].rounded)
	}
	if left.Err != nil {
		failed := x.job.FailedOf(left.Err)
		left.Failed = &failed
	}
	left.Due = x.Due()
	return left
}

// Held says which workers keep this process from leaving, and with what.
func (x *Process) Held() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	var all []string
	for _, k := range x.mine {
		w := x.workers[k]
		select {
		case <-w.idled:
			continue
		default:
		}
		at := "in front of its first instruction"
		if w.at.Kind != 0 {
			at = fmt.Sprintf("at %v", x.absolute(w.at))
		}
		all = append(all, fmt.Sprintf("worker %d is still %s", k, at))
	}
	if all == nil {
		return "its workers are done, and something that they began is not"
	}
	return strings.Join(all, ", ")
}

// open starts the workers, which open their devices, and says once all have that the process is ready.
func (x *Process) open(gone chan<- departure, release <-chan struct{}) {
	opened := make(chan error, len(x.mine))
	for _, k := range x.mine {
		w := x.workers[k]
		crash.Go(func() { gone <- w.life(opened, release) })
	}
	whole := true
	for range x.mine {
		if err := <-opened; err != nil {
			x.fail(x.some(), fmt.Errorf("run: %w", err)) // at once: another device may hang
			whole = false
		}
	}
	if !whole {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.owes = false
	x.say(control.Ready{})
}

// say sends the leader a message. The caller holds mu.
func (x *Process) say(body control.Body) {
	m, useful := x.follower.Say(body)
	if !useful {
		return
	}
	if err := x.link.Send(m); err != nil {
		x.follower.Unsay()
		x.failLocked(x.some(), fmt.Errorf("run: the leader cannot be told: %w", err))
	}
}

// some is a worker of this process, for a failure that is no worker's; where there is none nobody asks which.
func (x *Process) some() int {
	if len(x.mine) == 0 {
		return 0
	}
	return x.mine[0]
}

// part has the workers leave. The caller holds mu.
func (x *Process) part() {
	x.over = true
	x.wakeAll()
	x.gone.Do(func() { close(x.leave) })
}

// told is called with everything that the leader says, in order.
func (x *Process) told(m control.Message, broken error) {
	err := crash.Guard(func() error {
		x.mu.Lock()
		defer x.mu.Unlock()
		if broken != nil {
			x.hurried.Do(func() { close(x.hurry) }) // nobody hears what this process leaves
			if !x.over {
				x.failLocked(x.some(), fmt.Errorf("run: %w", x.noLeader(broken)))
				x.part()
			}
			return nil
		}
		body, err := x.follower.Receive(m)
		if err != nil {
			return err
		}
		return x.obey(body)
	})
	if err != nil {
		x.fail(x.some(), err)
	}
	x.mu.Lock()
	early := x.early
	x.early = nil
	x.mu.Unlock()
	if early != nil {
		early()
	}
}

// obey does what the leader says. The caller holds mu.
func (x *Process) obey(body control.Body) error {
	switch body := body.(type) {
	case control.Load:
		x.run = body.Run
		return x.load(body.Program, body.Base, body.Slots, true)
	case control.Evaluate:
		return x.load(body.Program, body.Base, body.Slots, false)
	case control.Save:
		var err error
		if x.dir, err = x.pathOf(body.Draft); err != nil {
			return err
		}
		return x.load(body.Program, body.Base, body.Slots, false)
	case control.Mark, control.Look, control.Commit, control.Prune:
		x.carryOut(body)
	case control.Stop:
		begun := x.gate.Begun()
		held := x.gate.Hold(begun + 1)
		x.say(control.Begun{Minibatch: begun})
		x.look(held)
	case control.Limit:
		x.limit = min(x.limit, body.Minibatches)
		x.look(x.gate.Limit(body.Minibatches))
	case control.Release:
		x.look(x.gate.Release())
	case control.Beat:
		x.say(x.needs())
	case control.Show:
		x.show(body)
	case control.Failed:
		x.failLocked(x.some(), ErrorOf(x.job.World, &body))
	case control.Leave:
		if x.stopped, x.abandoned = body.Stopped, body.Drafts; body.Draft != "" {
			x.abandoned = append(x.abandoned, body.Draft)
		}
		x.part()
	}
	return nil
}

// load begins a Program from its text, which is the same in every process, and which the leader has checked: a
// check takes as long as the Program of all workers is.
func (x *Process) load(text string, base, slots int, trains bool) error {
	p, err := schedule.ParseText(strings.NewReader(text))
	if err != nil {
		return fmt.Errorf("run: %w", err)
	}
	return x.begin(p, base, slots, trains)
}

// end tells the leader that all lists have ended, and what there is of an evaluation or a checkpoint. The
// caller holds mu.
func (x *Process) end() {
	x.ended = true
	if !x.trains {
		if len(x.tested.Parts) > 0 || x.tested.Apart > 0 {
			for _, part := range control.ResultsOf(x.tested) {
				x.say(part)
			}
		}
		if len(x.saved.Files) > 0 {
			x.say(x.saved)
		}
	}
	e := control.Ended{Minibatches: min(x.limit, x.minibatches)}
	if x.refused != nil {
		refused := x.job.FailedOf(x.refused)
		e.Refused = &refused
	}
	for _, k := range x.mine {
		e.PeakBytes = append(e.PeakBytes, x.workers[k].memory.PeakBytes)
	}
	x.say(e)
}
