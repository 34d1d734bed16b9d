package setup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/millrace-ml/millrace/internal/crash"
	"github.com/millrace-ml/millrace/run/control"
)

// Handler does what rank 0 asks. ctx ends when the answer is no longer wanted.
type Handler func(ctx context.Context, with json.RawMessage) (answer any, err error)

// Follower runs the setup in a process other than rank 0.
type Follower struct {
	Config
	rank     int
	relay    *relay
	handlers map[string]Handler
	asked    chan control.Ask
	begun    chan struct{}
	over     context.Context // ends when the leader dismisses this process or is lost
	end      context.CancelCauseFunc
}

// errDismissed ends a setup after which nothing is left to do.
var errDismissed = errors.New("setup: nothing is left to do")

// Follow begins the setup in a process other than rank 0.
func Follow(link control.Link, rank int, handlers map[string]Handler, c Config) *Follower {
	f := &Follower{Config: c, rank: rank, handlers: handlers, asked: make(chan control.Ask, 1), begun: make(chan struct{})}
	f.over, f.end = context.WithCancelCause(context.Background())
	f.relay = &relay{Link: link, begin: f.hear}
	f.relay.listen()
	return f
}

// hear handles a message from rank 0.
func (f *Follower) hear(m control.Message, err error) {
	if err != nil {
		f.end(control.NewLost(0, f.Name(0), err))
		return
	}
	switch body := m.Body.(type) {
	case control.Ask:
		select {
		case f.asked <- body:
			return
		default:
		}
	case control.Begin:
		f.relay.handOver()
		close(f.begun)
		return
	case control.Dismiss:
		err := errDismissed
		if body.Failed != nil {
			err = f.errorOf(body.Failed)
		}
		f.end(err)
		return
	}
	f.end(control.NewLost(0, f.Name(0), fmt.Errorf("setup: it says a %T out of turn", m.Body)))
}

// Wait answers questions of rank 0 until the run begins, and returns the run's Link. If there is no run, it returns
// nil. If ctx ends, Wait tells rank 0 and waits for its decision, because rank 0 may have begun the run already.
func (f *Follower) Wait(ctx context.Context) (control.Link, error) {
	stop := context.AfterFunc(ctx, crash.Caught(func() { _ = f.say(control.Stop{}) })) // sent even during an answer
	defer stop()
	for {
		select {
		case <-f.begun:
			return f.relay, nil
		case <-f.over.Done():
			err := context.Cause(f.over)
			switch cause := context.Cause(ctx); {
			case cause != nil:
				err = cause
			case errors.Is(err, errDismissed):
				err = nil
			}
			return nil, errors.Join(err, f.relay.Close())
		case ask := <-f.asked:
			if err := f.say(f.answer(ctx, ask)); err != nil {
				err = fmt.Errorf("setup: the answer to %s: %w", ask.Name, err)
				_ = f.say(control.Answer{Failed: f.failedOf(f.rank, err)}) // an error is short enough to be sent
			}
		}
	}
}

// say sends rank 0 a message. It fails if the message cannot be encoded.
func (f *Follower) say(body control.Body) error {
	return f.relay.Send(control.Message{N: ofSetup, From: f.rank, Body: body})
}

// answer does what is asked. If it fails in a process that was told to stop, its error says only that the process was
// stopped.
func (f *Follower) answer(own context.Context, ask control.Ask) control.Answer {
	ctx, cancel := context.WithCancelCause(own)
	defer cancel(nil)
	stop := context.AfterFunc(f.over, crash.Caught(func() { cancel(context.Cause(f.over)) }))
	defer stop()
	var with any
	err := crash.Guard(func() (err error) {
		do, known := f.handlers[ask.Name]
		if !known {
			return fmt.Errorf("setup: rank 0 asks for %q, which this process does not do", ask.Name)
		}
		with, err = do(ctx, ask.With)
		return err
	})
	if err != nil && own.Err() != nil {
		err = &StoppedError{f.rank, f.Name(f.rank)}
	}
	if err != nil {
		return control.Answer{Failed: f.failedOf(f.rank, err)}
	}
	text, err := json.Marshal(with)
	if err != nil {
		return control.Answer{Failed: f.failedOf(f.rank, fmt.Errorf("setup: the answer to %s: %w", ask.Name, err))}
	}
	return control.Answer{With: text}
}
