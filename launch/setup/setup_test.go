package setup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/millrace-ml/millrace/run/control"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errOurs, errSignal = errors.New("of a class"), errors.New("a signal")

func config() Config {
	return Config{Name: func(rank int) string { return fmt.Sprintf("rank %d", rank) }, Class: func(err error) string {
		switch {
		case errors.Is(err, errOurs):
			return "ours"
		case errors.Is(err, errSignal):
			return Stopped
		}
		return ""
	}, Log: slog.New(slog.DiscardHandler)}
}

// ended is the result of a Follower.
type ended struct {
	link control.Link
	err  error
}

// setups connects a leader with followers that all have these handlers.
func setups(t *testing.T, n int, handlers map[string]Handler) (*Leader, []chan ended, []context.CancelCauseFunc) {
	t.Helper()
	links, ends := make([]control.Link, n), make([]chan ended, n)
	stops := make([]context.CancelCauseFunc, n)
	for rank := 1; rank < n; rank++ {
		a, b := net.Pipe()
		links[rank], ends[rank] = control.Over(a), make(chan ended, 1)
		var ctx context.Context
		ctx, stops[rank] = context.WithCancelCause(t.Context())
		f := Follow(control.Over(b), rank, handlers, config())
		go func() {
			link, err := f.Wait(ctx)
			ends[rank] <- ended{link, err}
		}()
	}
	return Lead(t.Context(), links, config()), ends, stops
}

// A question is answered by the process that is asked, and the answer comes back. After Begin the Links belong to the
// run, and they deliver every message in order.
func TestAskAndBegin(t *testing.T) {
	l, ends, _ := setups(t, 3, map[string]Handler{"triple": func(_ context.Context, with json.RawMessage) (any, error) {
		var x int
		err := json.Unmarshal(with, &x)
		return 3 * x, err
	}})
	answers := make([]int, 3)
	var times atomic.Int32
	if err := l.All("triple", seven{&times}, func(rank int) any { return &answers[rank] }); err != nil {
		t.Fatal(err)
	}
	if answers[1] != 21 || answers[2] != 21 || times.Load() != 1 {
		t.Errorf("%v, of a question that was made into bytes %d times", answers, times.Load())
	}
	links, err := l.Begin()
	if err != nil || links[0] != nil {
		t.Fatal(links, err)
	}
	for rank := 1; rank < 3; rank++ {
		end := <-ends[rank]
		if end.err != nil {
			t.Fatal(end.err)
		}
		const many = 20
		for n := range many { // these messages are sent before either end is started
			if err := errors.Join(links[rank].Send(control.Message{N: uint64(n + 1), Body: control.Beat{}}),
				end.link.Send(control.Message{N: uint64(n + 1), From: rank, Body: control.Ready{}})); err != nil {
				t.Fatal(err)
			}
		}
		var all sync.WaitGroup
		all.Add(2)
		for _, link := range []control.Link{links[rank], end.link} {
			heard := uint64(0)
			link.Start(func(m control.Message, err error) {
				if err != nil {
					return
				}
				if heard++; m.N != heard {
					t.Errorf("message %d comes as number %d", m.N, heard)
				}
				if heard == many {
					all.Done()
				}
			})
		}
		all.Wait()
		if err := errors.Join(links[rank].Close(), end.link.Close()); err != nil {
			t.Error(err)
		}
	}
}

// seven counts how often it is encoded.
type seven struct{ times *atomic.Int32 }

func (s seven) MarshalJSON() ([]byte, error) {
	s.times.Add(1)
	return []byte("7"), nil
}

// An error of one process is reported in all processes, with the name of the failed process and the class of its error.
func TestOneErrorIsEverybodys(t *testing.T) {
	for asks, says := range map[string]string{"fail": "rank 2: it is of a class", "panic": "rank 2: panic: oh",
		"nothing": `rank 1: setup: rank 0 asks for "nothing", which this process does not do`} {
		l, ends, _ := setups(t, 4, map[string]Handler{
			"fail":  func(context.Context, json.RawMessage) (any, error) { return nil, fmt.Errorf("it is %w", errOurs) },
			"panic": func(context.Context, json.RawMessage) (any, error) { panic("oh") },
		})
		var err error
		if asks == "nothing" {
			err = l.All(asks, nil, nil)
		} else {
			err = l.Ask(2, asks, nil, nil)
		}
		class := map[string]string{"fail": "ours"}[asks]
		var said *Error
		if !errors.As(err, &said) || !strings.Contains(err.Error(), says) || said.Class != class {
			t.Errorf("rank 0: %v; want %q of class %q", err, says, class)
		}
		if err := l.Dismiss(err); err != nil {
			t.Error(err)
		}
		for rank := 1; rank < 4; rank++ {
			end := <-ends[rank]
			if said = nil; end.link != nil || !errors.As(end.err, &said) || said.Class != class ||
				!strings.Contains(end.err.Error(), says) {
				t.Errorf("rank %d: %v; want %q of class %q", rank, end.err, says, class)
			}
		}
	}
}

// If nothing is left to do, all leave without an error.
func TestDismissedWithoutARun(t *testing.T) {
	l, ends, _ := setups(t, 3, nil)
	if err := l.Dismiss(nil); err != nil {
		t.Error(err)
	}
	for rank := 1; rank < 3; rank++ {
		if end := <-ends[rank]; end.link != nil || end.err != nil {
			t.Errorf("rank %d: %+v", rank, end)
		}
	}
}

// If one process is told to stop or is lost, all processes stop, even if one of them is answering a question.
func TestStoppedAndLost(t *testing.T) {
	for _, lost := range []bool{false, true} {
		working := make(chan struct{})
		l, ends, stops := setups(t, 3, map[string]Handler{"work": func(ctx context.Context, _ json.RawMessage) (any, error) {
			close(working)
			<-ctx.Done()
			return nil, context.Cause(ctx)
		}})
		asked := make(chan error, 1)
		go func() { asked <- l.Ask(1, "work", nil, nil) }()
		<-working
		if lost {
			_ = l.peers[2].Close()
		} else {
			stops[2](errors.New("a signal"))
		}
		var err error
		select {
		case err = <-asked:
		case <-time.After(5 * time.Second):
			t.Fatal("rank 0 waits on")
		}
		var was *StoppedError
		var gone *control.LostError
		if errors.As(err, &was) == lost || errors.As(err, &gone) != lost || !strings.Contains(err.Error(), "rank 2") {
			t.Errorf("rank 0: %v", err)
		}
		_ = l.Dismiss(err) // returns an error, because one process is gone
		if end := <-ends[2]; !lost && !strings.Contains(end.err.Error(), "a signal") || end.err == nil {
			t.Errorf("rank 2: %v", end.err)
		}
		end := <-ends[1]
		was, gone = nil, nil
		if errors.As(end.err, &was) == lost || errors.As(end.err, &gone) != lost ||
			!strings.Contains(end.err.Error(), "rank 2") {
			t.Errorf("rank 1: %v", end.err)
		}
	}
}

// If rank 0 is told to stop, the others are told, whatever rank 0 is doing.
func TestRankZeroIsStopped(t *testing.T) {
	a, b := net.Pipe()
	ctx, cancel := context.WithCancelCause(t.Context())
	l := Lead(ctx, []control.Link{nil, control.Over(a)}, config())
	cancel(errors.New("a signal"))
	link, err := Follow(control.Over(b), 1, nil, config()).Wait(t.Context())
	var was *StoppedError
	if link != nil || !errors.As(err, &was) || was.Name != "rank 0" {
		t.Error(link, err)
	}
	if err := l.Ask(1, "any", nil, nil); err == nil || !strings.Contains(err.Error(), "a signal") {
		t.Error(err)
	}
	if err := l.Dismiss(context.Cause(ctx)); err != nil {
		t.Error(err)
	}
}

// A message out of turn ends the setup, with an error that says so.
func TestOutOfTurn(t *testing.T) {
	a, b := net.Pipe()
	l := Lead(t.Context(), []control.Link{nil, control.Over(a)}, config())
	other := control.Over(b)
	other.Start(func(control.Message, error) {})
	if err := other.Send(control.Message{From: 1, Body: control.Ready{}}); err != nil {
		t.Fatal(err)
	}
	<-l.Context().Done()
	var lost *control.LostError
	if err := context.Cause(l.Context()); !errors.As(err, &lost) || lost.Process != 1 ||
		!strings.Contains(err.Error(), "control.Ready") {
		t.Error(err)
	}
	if _, err := l.Begin(); !errors.As(err, &lost) {
		t.Error(err)
	}
	_ = errors.Join(l.Dismiss(nil), other.Close())
}
