package setup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

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
}

// peer is another process.
type peer struct {
	*relay
	answers chan control.Answer // of the question that is asked
}

// Lead begins rank 0's part. links are by rank, nil for its own.
func Lead(ctx context.Context, links []control.Link, c Config) *Leader {
	l := &Leader{Config: c, peers: make([]*peer, len(links))}
	l.ctx, l.cancel = context.WithCancelCause(ctx)
	l.stop = context.AfterFunc(ctx, crash.Caught(func() { l.sendAway(&StoppedError{l.Name(0)}) })) // whatever it is at
	for rank, link := range links {
		if link == nil {
			continue
		}
		p := &peer{answers: make(chan control.Answer, 1)}
		p.relay = &relay{Link: link, begin: func(m control.Message, err error) { l.hear(rank, p.answers, m, err) }}
		l.peers[rank] = p
		p.listen()
	}
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
		l.cancel(&StoppedError{l.Name(rank)})
		return
	}
	l.cancel(control.NewLost(rank, l.Name(rank), fmt.Errorf("setup: it says a %T, which answers nothing", m.Body)))
}

// say sends a process a message.
func (l *Leader) say(rank int, body control.Body) error {
	return l.send(rank, control.Message{N: ofSetup, Body: body})
}

func (l *Leader) send(rank int, m control.Message) error {
	if err := l.peers[rank].Send(m); err != nil {
		return control.NewLost(rank, l.Name(rank), err)
	}
	return nil
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
	if err := l.send(rank, m); err != nil {
		return err
	}
	select {
	case a := <-l.peers[rank].answers:
		if a.Failed != nil {
			return &Error{Rank: rank, Name: l.Name(rank), Text: a.Failed.Text, Class: a.Failed.Class}
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
	for rank, p := range l.peers {
		if p == nil {
			continue
		}
		if err := l.say(rank, control.Begin{}); err != nil {
			return nil, err
		}
	}
	return links, nil
}

// sendAway tells all others that there will be no run.
func (l *Leader) sendAway(err error) {
	var failed *control.Failed
	if err != nil {
		failed = l.failedOf(0, err)
	}
	for rank, p := range l.peers {
		if p != nil {
			_ = l.say(rank, control.Dismiss{Failed: failed}) // one that is lost needs no word
		}
	}
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
