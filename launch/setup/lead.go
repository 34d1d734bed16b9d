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

// Leader runs the setup at rank 0. Only one goroutine may call its methods, except Ask, which may run for different
// ranks at once.
type Leader struct {
	Config
	ctx    context.Context
	cancel context.CancelCauseFunc
	stop   func() bool // ends the setup's watch of ctx; after that the run handles the end of ctx
	peers  []*peer     // by rank; nil for rank 0 itself

	mu    sync.Mutex
	asked map[int]asked // by rank: open questions
	look  *time.Timer   // runs until open questions are logged next; nil: no question is open
}

// asked is an open question.
type asked struct {
	name  string
	since time.Time
}

// tellEvery is the interval at which processes that have not answered are logged.
const tellEvery = 10 * time.Second

// peer is another process.
type peer struct {
	*relay
	answers chan control.Answer // answers to the open question
}

// Lead begins the setup at rank 0. links is indexed by rank, with nil for rank 0.
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
	l.stop = context.AfterFunc(l.ctx, crash.Caught(func() { // runs as soon as l.ctx ends, whatever rank 0 is doing
		err := context.Cause(l.ctx)
		if ctx.Err() != nil {
			err = &StoppedError{0, l.Name(0)}
		}
		l.sendAway(err)
	}))
	return l
}

// Context returns a context that ends if Lead's context ends, a process is lost, or a process was told to stop. It also
// ends with Dismiss.
func (l *Leader) Context() context.Context { return l.ctx }

// hear handles a message from a process.
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

// say sends a short message to all others. A lost process is noticed through its Link.
func (l *Leader) say(body control.Body) {
	m := control.Message{N: ofSetup, Body: body}.Shared()
	for _, p := range l.peers {
		if p != nil {
			_ = p.Send(m) // the message can always be encoded
		}
	}
}

// question encodes a question, once for all processes.
func question(name string, with any) (control.Message, error) {
	text, err := json.Marshal(with)
	if err != nil {
		return control.Message{}, fmt.Errorf("setup: %s: %w", name, err)
	}
	return control.Message{N: ofSetup, Body: control.Ask{Name: name, With: text}}.Shared(), nil
}

// Ask asks a process a question and decodes its answer into the pointer `answer`. If this pointer is nil, Ask ignores
// the content of the answer.
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

// waits records an open question, and starts the regular logging of open questions.
func (l *Leader) waits(rank int, name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked[rank] = asked{name, time.Now()}
	if l.look == nil {
		l.look = time.AfterFunc(tellEvery, crash.Caught(l.tell))
	}
}

// answered records that a process has answered.
func (l *Leader) answered(rank int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.asked, rank)
}

// most is how many processes without an answer are named.
const most = 8

// tell logs which processes have not answered for a while, and which question they have not answered.
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

// All asks every other process the same question at once. For each rank, `into` returns the pointer into which the
// answer is decoded. If several processes fail, the error of the lowest rank is returned.
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

// Begin lets the run begin and returns its Links, by rank. It fails if Context has ended.
func (l *Leader) Begin() ([]control.Link, error) {
	l.stop()
	links := make([]control.Link, len(l.peers))
	for rank, p := range l.peers {
		if p == nil {
			continue
		}
		p.handOver() // from now on the run gets the messages
		links[rank] = p.relay
	}
	if err := context.Cause(l.ctx); err != nil {
		return nil, err
	}
	l.say(control.Begin{}) // from here on the run notices lost processes
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

// Dismiss tells all other processes that there will be no run, and closes the Links. If err is not nil, it tells them
// the error too.
func (l *Leader) Dismiss(err error) error {
	l.stop()
	l.sendAway(err)
	var closing sync.WaitGroup
	errs := make([]error, len(l.peers))
	for rank, p := range l.peers {
		if p != nil {
			p.handOver() // later messages are ignored
			closing.Go(crash.Caught(func() { errs[rank] = p.Close() }))
		}
	}
	closing.Wait()
	l.cancel(errors.New("setup: over"))
	return errors.Join(errs...)
}
