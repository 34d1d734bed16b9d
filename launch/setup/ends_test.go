package setup

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace-ml/millrace/run/control"
)

// An error that is sent from one process to another keeps its type: lost or stopped. It also names the same process.
func TestErrorsStayWhatTheyAre(t *testing.T) {
	gone := control.NewLost(2, "rank 2", errors.New("EOF"))
	for name, c := range map[string]struct {
		err  error
		lost int // process that is lost, according to the error; 0: none
		left int // process that was stopped, according to the error; -1: none
	}{
		"lost":            {gone, 2, -1},
		"lost at work":    {fmt.Errorf("the files: %w", gone), 2, -1},
		"stopped":         {&StoppedError{1, "rank 1"}, 0, 1},
		"stopped at work": {fmt.Errorf("the files: %w", errSignal), 0, 1},
		"neither":         {errOurs, 0, -1},
	} {
		l, ends, _ := setups(t, 3, map[string]Handler{"work": func(context.Context, json.RawMessage) (any, error) {
			return nil, c.err
		}})
		asked := l.Ask(1, "work", nil, nil)
		_ = l.Dismiss(asked)
		for rank, err := range []error{asked, (<-ends[1]).err, (<-ends[2]).err} {
			var lost *control.LostError
			var left *StoppedError
			if errors.As(err, &lost) != (c.lost > 0) || lost != nil && (lost.Process != c.lost || lost.Why != "EOF") ||
				errors.As(err, &left) != (c.left >= 0) || left != nil && (left.Rank != c.left || left.Name != "rank 1") {
				t.Errorf("%s: rank %d has %v", name, rank, err)
			}
		}
	}
}

// A process that is stopped during work is reported as stopped, whatever its work returns, and whenever it returns.
func TestWhoIsStoppedHasNoOtherError(t *testing.T) {
	for range 100 {
		working := make(chan struct{})
		l, ends, stops := setups(t, 2, map[string]Handler{"work": func(ctx context.Context, _ json.RawMessage) (any, error) {
			close(working)
			<-ctx.Done()
			return nil, errOurs
		}})
		go func() {
			<-working
			stops[1](errSignal)
		}()
		var left *StoppedError
		if err := l.Ask(1, "work", nil, nil); !errors.As(err, &left) || left.Rank != 1 {
			t.Fatal(err)
		}
		_ = l.Dismiss(left)
		if end := <-ends[1]; !errors.Is(end.err, errSignal) {
			t.Fatal(end.err)
		}
	}
}

// Here a process is stopped while the run begins. Either there is no run, and rank 0 hears that the process was
// stopped. Or the process gets its Link, over which it can report that it stops. It is never reported as lost.
func TestWhoIsStoppedAsTheRunBeginsIsNotLost(t *testing.T) {
	runs := 0
	for i := range 300 {
		ready := make(chan struct{})
		l, ends, stops := setups(t, 2, map[string]Handler{"ready": func(context.Context, json.RawMessage) (any, error) {
			close(ready)
			return nil, nil
		}})
		go func() {
			<-ready
			time.Sleep(time.Duration(i) * time.Microsecond)
			stops[1](errSignal)
		}()
		err := l.All("ready", nil, nil)
		var links []control.Link
		if err == nil {
			links, err = l.Begin()
		}
		if err != nil {
			var left *StoppedError
			if !errors.As(err, &left) {
				t.Fatal(err)
			}
			_ = l.Dismiss(err)
			if end := <-ends[1]; !errors.Is(end.err, errSignal) {
				t.Fatal(end.err)
			}
			continue
		}
		end := <-ends[1]
		if end.err != nil || end.link == nil {
			t.Fatalf("the run has begun, and the other process has %v", end.err)
		}
		runs++
		closeBoth(t, links[1], end.link)
	}
	if runs == 0 {
		t.Error("no run has begun")
	}
}

func closeBoth(t *testing.T, a, b control.Link) {
	t.Helper()
	var both sync.WaitGroup
	for _, l := range []control.Link{a, b} {
		both.Go(func() {
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	both.Wait()
}

// If a process is lost when the run begins, the run begins nevertheless for the other processes. The run learns of the
// loss from the Link to the lost process.
func TestARunBeginsForThoseThatAreLeft(t *testing.T) {
	l, ends, _ := setups(t, 4, nil)
	l.peers[2].Link = cut{l.peers[2].Link} // before Begin is sent
	links, err := l.Begin()
	if err != nil {
		t.Fatal(err)
	}
	for _, rank := range []int{1, 3} {
		if end := <-ends[rank]; end.err != nil || end.link == nil {
			t.Errorf("rank %d: %v", rank, end.err)
		} else {
			closeBoth(t, links[rank], end.link)
		}
	}
	lost := make(chan error, 1)
	links[2].Start(func(_ control.Message, err error) { lost <- err })
	if err := <-lost; err == nil {
		t.Error("the run does not hear that rank 2 is lost")
	}
	if end := <-ends[2]; end.err == nil {
		t.Error("rank 2 has begun")
	}
}

// cut is a Link that ends before anything is sent over it.
type cut struct{ control.Link }

func (c cut) Send(control.Message) error { return c.Close() }

// If a question or an answer cannot be sent, rank 0 gets an error, and nobody waits for the message.
func TestWhatCannotBeSaidIsAnError(t *testing.T) {
	l, ends, _ := setups(t, 2, map[string]Handler{
		"long": func(context.Context, json.RawMessage) (any, error) {
			return strings.Repeat("x", control.MaxLine), nil
		},
		"none": func(context.Context, json.RawMessage) (any, error) { return math.NaN(), nil },
	})
	for name, says := range map[string]string{
		"long": "rank 1: setup: the answer to long: control: answer has 67108",
		"none": "rank 1: setup: the answer to none: json: unsupported value: NaN",
	} {
		if err := l.Ask(1, name, nil, nil); err == nil || !strings.HasPrefix(err.Error(), says) {
			t.Errorf("%v; want %s", err, says)
		}
	}
	link := l.peers[1].Link
	l.peers[1].Link = full{link}
	if err := l.Ask(1, "none", nil, nil); !errors.Is(err, errLong) || err.Error() != "setup: none: too long" {
		t.Error(err)
	}
	l.peers[1].Link = link
	if err := l.Dismiss(nil); err != nil {
		t.Error(err)
	}
	if end := <-ends[1]; end.err != nil {
		t.Error(end.err)
	}
}

// full is a Link for which every message is too long.
type full struct{ control.Link }

var errLong = errors.New("too long")

func (full) Send(control.Message) error { return errLong }

// Rank 0 logs which processes it has been waiting for, and for which answer.
func TestRankZeroSaysWhomItWaitsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said bytes.Buffer
		c := config()
		c.Log = slog.New(slog.NewTextHandler(&said, nil))
		const others = 10
		links, ends := make([]control.Link, 1+others), make([]chan ended, 1+others)
		for rank := 1; rank <= others; rank++ {
			a, b := net.Pipe()
			links[rank], ends[rank] = control.Over(a), make(chan ended, 1)
			f := Follow(control.Over(b), rank, map[string]Handler{"nap": func(context.Context, json.RawMessage) (any, error) {
				time.Sleep(time.Duration(15*rank+3) * time.Second)
				return nil, nil
			}}, c)
			go func() {
				link, err := f.Wait(t.Context())
				ends[rank] <- ended{link, err}
			}()
		}
		l := Lead(t.Context(), links, c)
		if err := l.All("nap", nil, nil); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		lines := strings.Split(strings.TrimSpace(said.String()), "\n")
		if len(lines) != 15 || !strings.Contains(lines[0], "rank 8: nap (10s), and 2 more") ||
			!strings.Contains(lines[1], `missing="rank 2: nap (20s), `) ||
			!strings.Contains(lines[14], `missing="rank 10: nap (2m30s)" of=11`) {
			t.Errorf("%d lines:\n%s", len(lines), said.String())
		}
		if err := l.Dismiss(nil); err != nil {
			t.Error(err)
		}
		for rank := 1; rank <= others; rank++ {
			if end := <-ends[rank]; end.err != nil {
				t.Error(end.err)
			}
		}
	})
}
