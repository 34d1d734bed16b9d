package setup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/millrace-ml/millrace/internal/crash"
	"github.com/millrace-ml/millrace/run/control"
)

// Leader is rank 0's side. Its methods are for one goroutine, but for Ask, of different ranks.
type Leader struct {
	Config
	ctx    context.Context
	cancel context.CancelCauseFunc
	stop   func() bool // has the end of ctx be the run's business
	peers  []*peer     // by rank; nil: rank 0 itself

	mu    sync.Mutex
	asked map[int]asked // by rank, those that have not answered
	look  *time.Timer   // until it is said who these are; nil: nobody is asked
}

// asked is what a process does.
type asked struct {
	name  string
	since time.Time
}

// tellEvery is how often it is logged who is waited for.
const tellEvery = 10 * time.Second

// peer is another process.
type peer struct {
	*relay
	answers chan control.Answer // of the question that is asked
}

// Lead begins rank 0's part. links are by rank, nil for its own.
func Lead(ctx context.Context, links []control.Link, c Config) *Leader {
	l := &Leader{Config: c, peers: make([]*peer, len(links)), asked: map[int]asked{}}
	l.ctx, l.cancel = context.WithCancelCause(ctx)
	for rank, link := range links {
		if link == nil {
			continue
		}
		p := &peer{answers: make(chan control.Answer, 1)}
		p.relay = &relay{Link: link, begin: func(m control.Message, err error) { l.hear(rank, p.answers, m, err) }}
		l.peers[rank] = p
		p.listen()
	}
	l.stop = context.AfterFunc(l.ctx, crash.Caught(func() { // whatever rank 0 is at
		err := context.Cause(l.ctx)
		if ctx.Err() != nil {
			err = &StoppedError{0, l.Name(0)}
		}
		l.sendAway(err)
	}))
	return l
}

// Context ends where the Leader's does, a process is lost, or one was told to stop.
func (l *Leader) Context() context.Context { return l.ctx }

// hear takes what a process says.
func (l *Leader) hear(rank int, answers chan<- control.Answer, m control.Message, err error) {
	if err != nil {
		l.cancel(control.NewLost(rank, l.Name(rank), err))
		return
	}
	switch body := m.Body.(type) {
	case control.Answer:
		select {
		case answers <- body:
			return
		default:
		}
	case control.Stop:
		l.cancel(&StoppedError{rank, l.Name(rank)})
		return
	}
	l.cancel(control.NewLost(rank, l.Name(rank), fmt.Errorf("setup: it says a %T, which answers nothing", m.Body)))
}

// say says something short to all others. That one is lost is heard of it.
func (l *Leader) say(body control.Body) {
	m := control.Message{N: ofSetup, Body: body}.Shared()
	for _, p := range l.peers {
		if p != nil {
			_ = p.Send(m) // it has a text that can be sent
		}
	}
}

// question is what processes are asked, made into bytes once for all of them.
func question(name string, with any) (control.Message, error) {
	text, err := json.Marshal(with)
	if err != nil {
		return control.Message{}, fmt.Errorf("setup: %s: %w", name, err)
	}
	return control.Message{N: ofSetup, Body: control.Ask{Name: name, With: text}}.Shared(), nil
}

// Ask has a process do something and reads its answer into a pointer; nil reads none.
func (l *Leader) Ask(rank int, name string, with, answer any) error {
	m, err := question(name, with)
	if err != nil {
		return err
	}
	return l.ask(rank, name, m, answer)
}

func (l *Leader) ask(rank int, name string, m control.Message, answer any) error {
	if err := context.Cause(l.ctx); err != nil {
		return err
	}
	if err := l.peers[rank].Send(m); err != nil {
		return fmt.Errorf("setup: %s: %w", name, err)
	}
	l.waits(rank, name)
	defer l.answered(rank)
	select {
	case a := <-l.peers[rank].answers:
		if a.Failed != nil {
			a.Failed.Process = rank
			return l.errorOf(a.Failed)
		}
		if answer == nil {
			return nil
		}
		if err := json.Unmarshal(a.With, answer); err != nil {
			return fmt.Errorf("setup: the answer of %s to %s: %w", l.Name(rank), name, err)
		}
		return nil
	case <-l.ctx.Done():
		return context.Cause(l.ctx)
	}
}

// waits notes that a process is asked, and has it logged now and then who is.
func (l *Leader) waits(rank int, name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked[rank] = asked{name, time.Now()}
	if l.look == nil {
		l.look = time.AfterFunc(tellEvery, crash.Caught(l.tell))
	}
}

// answered notes that a process is not waited for any more.
func (l *Leader) answered(rank int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.asked, rank)
}

// most is how many processes are named that are waited for.
const most = 8

// tell logs which processes have owed an answer for a while, and to which question.
func (l *Leader) tell() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.look = nil; len(l.asked) == 0 {
		return
	}
	l.look = time.AfterFunc(tellEvery, crash.Caught(l.tell))
	var missing []string
	more := 0
	for _, rank := range slices.Sorted(maps.Keys(l.asked)) {
		a := l.asked[rank]
		switch took := time.Since(a.since); {
		case took < tellEvery:
		case len(missing) == most:
			more++
		default:
			missing = append(missing, fmt.Sprintf("%s: %s (%v)", l.Name(rank), a.name, took.Round(time.Second)))
		}
	}
	if more > 0 {
		missing = append(missing, fmt.Sprintf("and %d more", more))
	}
	if missing != nil {
		l.Log.Info("waiting for other processes", "missing", strings.Join(missing, ", "), "of", len(l.peers))
	}
}

// All asks every other process the same at once, and has each answer read into what into gives for its rank.
// Of several errors the one of the least rank is returned.
func (l *Leader) All(name string, with any, into func(rank int) any) error {
	m, err := question(name, with)
	if err != nil {
		return err
	}
	errs := make([]error, len(l.peers))
	var all sync.WaitGroup
	for rank := range l.peers {
		if l.peers[rank] == nil {
			continue
		}
		var answer any
		if into != nil {
			answer = into(rank)
		}
		all.Go(crash.Caught(func() { errs[rank] = l.ask(rank, name, m, answer) }))
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// Begin has the run begin and returns its Links, by rank.
func (l *Leader) Begin() ([]control.Link, error) {
	l.stop()
	links := make([]control.Link, len(l.peers))
	for rank, p := range l.peers {
		if p == nil {
			continue
		}
		p.handOver() // what comes from here on answers Begin
		links[rank] = p.relay
	}
	if err := context.Cause(l.ctx); err != nil {
		return nil, err
	}
	l.say(control.Begin{}) // that one is lost is the run's to hear from here on
	return links, nil
}

// sendAway tells all others that there will be no run.
func (l *Leader) sendAway(err error) {
	var failed *control.Failed
	if err != nil {
		failed = l.failedOf(0, err)
	}
	l.say(control.Dismiss{Failed: failed})
}

// Dismiss sends all others away, without an error or with one, and closes the Links.
func (l *Leader) Dismiss(err error) error {
	l.stop()
	l.sendAway(err)
	var closing sync.WaitGroup
	errs := make([]error, len(l.peers))
	for rank, p := range l.peers {
		if p != nil {
			p.handOver() // nothing that it says matters any more
			closing.Go(crash.Caught(func() { errs[rank] = p.Close() }))
		}
	}
	closing.Wait()
	l.cancel(errors.New("setup: over"))
	return errors.Join(errs...)
}
