package run

import (
	"fmt"
	"sync"
	"time"

	"github.com/millrace-ml/millrace/internal/crash"
	"github.com/millrace-ml/millrace/run/control"
	"github.com/millrace-ml/millrace/run/pace"
	"github.com/millrace-ml/millrace/run/process"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/trace"
)

// inbox holds the events that the leader has not looked at yet.
type inbox struct {
	mu     sync.Mutex
	events []event
	more   chan struct{} // holds one value if there may be events
}

// event is a message, the error that ended a Link, or an error of the leader's own process.
type event struct {
	from   int
	m      control.Message
	at     time.Time
	broken error
	failed error
}

func (b *inbox) put(e event) {
	b.mu.Lock()
	b.events = append(b.events, e)
	b.mu.Unlock()
	select {
	case b.more <- struct{}{}:
	default:
	}
}

func (b *inbox) take() []event {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.events
	b.events = nil
	return all
}

// tell sends messages to every process that has not left. The leader's own process comes last, because that process
// acts on a message at once.
func (l *leader) tell(messages []control.Message) {
	for _, m := range messages {
		m = m.Shared()
		for p := len(l.peers.links) - 1; p >= 0; p-- {
			if l.state.HasLeft(p) {
				continue
			}
			if _, beat := m.Body.(control.Beat); beat {
				l.peers.asked[p] = time.Now()
			}
			if err := l.peers.links[p].Send(m); err != nil { // it cannot be encoded, so no process gets it
				l.state.Unsay()
				l.fail(fmt.Errorf("run: the other processes cannot be told: %w", err))
				return
			}
		}
	}
}

// await waits for the next event and handles it.
func (l *leader) await() {
	select {
	case <-l.inbox.more:
	case <-l.stop:
		l.stop, l.stopping = nil, true
		l.tell(l.state.Stop())
	case <-l.silence.beat.C:
		defer l.look() // runs after the answers that have arrived meanwhile are handled
	case <-l.silence.late.tick.C:
		defer l.askWhyLate()
	}
	for _, e := range l.inbox.take() {
		switch {
		case e.failed != nil:
			l.fail(e.failed)
		case e.broken != nil:
			l.lose(e.from, e.broken)
		case !l.state.HasLeft(e.from):
			if err := crash.Guard(func() error { return l.hear(e.from, e.m, e.at) }); err != nil {
				l.fail(err)
			}
		}
	}
	if err := l.seal(); err != nil {
		l.fail(err)
	}
}

// hear handles a message of a process, received at time `at`.
func (l *leader) hear(from int, m control.Message, at time.Time) error {
	if m.From != from {
		return fmt.Errorf("run: %s says that it is process %d", l.job.World.Name(from), m.From)
	}
	under := l.state.Under()
	answer, err := l.state.Receive(m)
	if err != nil {
		return fmt.Errorf("run: %w", err)
	}
	l.tell(answer)
	switch body := m.Body.(type) {
	case control.Stop:
		l.stopping = true
	case control.Record:
		l.peers.records[from], l.silence.told = append(l.peers.records[from], body), time.Now()
	case control.Left:
		l.peers.left[from] = body
	case control.Needs:
		if from > 0 {
			l.peers.clocks[from].Read(control.Reading{AskedS: l.peers.sinceS(l.peers.asked[from]), AtS: body.AtS,
				HeardS: l.peers.sinceS(at)})
		}
		if body.Stuck || !l.state.Asked() { // every process that was asked has answered
			l.judge()
			l.tellLate()
		}
	case control.Shown:
		l.show(from, body)
	}
	if !under {
		return nil // no Program runs, or the process does not know yet that the run has failed
	}
	switch body := m.Body.(type) {
	case control.Step:
		return l.step(from, body)
	case control.Ended:
		return l.progress.Peaks(from, body.PeakBytes)
	case control.Saved:
		if body.Steps > 0 {
			return l.stageSaved(from, body)
		}
		l.adds(&l.saves.saved, from, body)
	case control.Result:
		return l.tested(body)
	}
	return nil
}

// adds adds the files that a process has written for a checkpoint.
func (l *leader) adds(to *control.Saved, from int, part control.Saved) {
	for _, f := range part.Files {
		if l.peers.hosts > 1 {
			f.Host = l.job.World.HostOf(from)
		}
		to.Files = append(to.Files, f)
	}
	for layer, n := range part.Updates {
		to.Updated(layer, n)
	}
}

// step records a process's part of a step, and reports the step once it is complete.
func (l *leader) step(from int, part control.Step) error {
	if end := l.done + l.under.length; part.Step < l.done || part.Step >= end {
		return fmt.Errorf("run: %s says that step %d stands; the program has steps %d to %d", l.job.World.Name(from),
			trace.StepNumber(part.Step), trace.StepNumber(l.done), end)
	}
	f, whole, err := l.progress.Add(from, part, l.peers.clocks[from].OffsetS(l.peers.sinceS(time.Now())))
	for ; whole && err == nil; f, whole = l.progress.Next() {
		l.finished(f)
	}
	return err
}

// finished handles a complete step.
func (l *leader) finished(f control.Finished) {
	l.under.whole++
	l.loss = f.Loss
	if l.stagesSave() && divides(l.config.Checkpoint.Every, f.Step+1) {
		l.saves.epochs.of(f.Step + 1).loss = &f.Loss
	}
	l.pace(f)
	l.silence.late.step(f.TookS)
	l.trace(f.Step)
	hook := l.config.Hooks.OnStep
	if hook == nil {
		return
	}
	report := StepReport{Step: f.Step, Loss: f.Loss, Rate: l.job.Updates.Rate.At(f.Step), Seconds: f.TookS,
		BusySeconds:  f.BusyS,
		GradientNorm: f.Norm, Workers: f.Workers}
	if f.TookS > 0 {
		report.SamplesPerSecond = float64(l.job.Plan.Batch()*l.job.Together()) / report.Seconds
		// In a stream a worker computes part of a step's work before the previous step ends, so it may be busy for longer
		// than the step took.
		report.Bubble = max(0, 1-report.BusySeconds/(report.Seconds*float64(len(l.job.World.Workers))))
	}
	l.hooks.add(func() { hook(report) })
}

// open waits until all processes are ready, and reads their clocks.
func (l *leader) open() error {
	for !l.state.Ready() {
		l.await()
		if err := l.failure(); err != nil {
			return err
		}
	}
	l.readClocks()
	return l.failure()
}

// failure returns the error that ended the run, or nil.
func (l *leader) failure() error {
	if f := l.state.Failed(); f != nil {
		return process.ErrorOf(l.job.World, f)
	}
	return nil
}

// execute makes the processes execute a Program and returns how many of its minibatches they have done.
func (l *leader) execute(p *schedule.Program, start func(text string, slots int) control.Body) (int, error) {
	if err := l.failure(); err != nil {
		return 0, err
	}
	slots, err := l.slots(p)
	if err != nil {
		return 0, err
	}
	body := start(p.Text(), slots)
	l.under.program, l.under.whole, l.under.length = p, 0, p.Minibatches()
	_, l.under.trains = body.(control.Load)
	if l.under.trains && l.paces.watch == nil && len(l.config.Watch.ProfileS) > 0 && !p.Served() {
		l.paces.watch, l.paces.slow = pace.New(l.config.Watch.ProfileS, p.StopUnit()), map[int]int{}
	}
	if p.Served() {
		l.progress.Expect(l.done, p.Trainers(), l.partsOf(p))
	}
	l.silence.late.begin()
	l.tell(l.state.Begin(body, p.StopUnit()))
	for l.state.Under() {
		l.await()
	}
	if err := l.failure(); err != nil {
		return l.under.whole, err
	}
	n, refused := l.state.Outcome()
	if refused != nil {
		return l.under.whole, process.ErrorOf(l.job.World, refused)
	}
	return n, nil
}

// order makes all processes carry out an order.
func (l *leader) order(body control.Body) error {
	if err := l.failure(); err != nil {
		return err
	}
	l.tell(l.state.Order(body))
	for l.state.Ordered() {
		l.await()
	}
	return l.failure()
}

// dismiss makes all processes leave, and waits until they have left or are lost.
func (l *leader) dismiss() {
	l.readClocks()
	l.silence.told = time.Now()
	l.tell(l.state.Leave(control.Leave{Stopped: l.stopped, Draft: l.saves.draft, Drafts: l.saves.drafts()}))
	for hurries := false; !l.state.Gone(); {
		if patience := l.patience(); patience < l.config.Watch.StallAfter && !hurries {
			hurries = true
			l.silence.beat.Reset(max(patience/8, time.Millisecond))
		}
		l.await()
	}
	l.silence.beat.Stop()
	l.silence.late.tick.Stop()
	l.hooks.close()
	for _, e := range l.inbox.take() { // events of hooks, after the last step
		if e.failed != nil {
			l.fail(e.failed)
		}
	}
}

// timeline returns the record of the run until now, without the events, which the leader does not have.
func (l *leader) timeline() trace.Timeline {
	t := l.job.Timeline()
	l.progress.Fill(&t)
	t.Stragglers = l.paces.stragglers
	t.Evaluations = append(t.Evaluations, l.tests.all...)
	return t
}
