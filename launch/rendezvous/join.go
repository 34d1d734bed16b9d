package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/millrace-ml/millrace/internal/crash"
)

// ErrFinal is matched by an error of dial after which another try does not help, such as a wrong token.
var ErrFinal = errors.New("no other try helps")

// firstAgain and mostAgain are the shortest and longest time between tries to reach rank 0.
const (
	firstAgain = 20 * time.Millisecond
	mostAgain  = time.Second
)

// Join takes part in the meeting as any rank except 0. It dials until rank 0 admits this process, for at most
// Config.Wait. Then it waits until all have met. dial returns an authenticated connection.
func Join(ctx context.Context, dial func(context.Context) (net.Conn, error), c Config) (*Meeting, error) {
	if err := c.complete(); err != nil {
		return nil, err
	}
	if c.Own.Rank == 0 {
		return nil, errors.New("rendezvous: rank 0 does not join; it leads")
	}
	enough, cancel := context.WithTimeout(ctx, c.Wait)
	defer cancel()
	again := firstAgain
	for {
		m, err := c.try(ctx, enough, dial)
		var stranger *strangerError
		switch {
		case err == nil:
			return m, nil
		case !errors.As(err, &stranger):
			return nil, err
		}
		select {
		case <-time.After(again):
			again = min(2*again, mostAgain)
			continue
		case <-enough.Done():
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("rendezvous: rank %d was stopped: %w", c.Own.Rank, context.Cause(ctx))
		}
		return nil, &Refused{Retry: true, Reasons: []string{fmt.Sprintf("rank 0 took rank %d (process %d on host %s) in "+
			"at no time "+
			"within %v: %v", c.Own.Rank, c.Own.PID, c.Own.Host, c.Wait, stranger.err)}}
	}
}

// strangerError says that rank 0 was not reached or did not admit this process. Another try may help.
type strangerError struct{ err error }

func (e *strangerError) Error() string { return e.err.Error() }

// try dials once and, if that works, takes part in the meeting.
func (c *Config) try(ctx, enough context.Context, dial func(context.Context) (net.Conn, error)) (*Meeting, error) {
	one, cancel := context.WithTimeout(enough, helloWait)
	defer cancel()
	conn, err := dial(one)
	switch {
	case errors.Is(err, ErrFinal):
		return nil, &Refused{Reasons: []string{fmt.Sprintf("rank 0 refused rank %d: %v", c.Own.Rank, err)}}
	case err != nil:
		return nil, &strangerError{err}
	}
	stop := context.AfterFunc(ctx, crash.Caught(func() { _ = conn.Close() }))
	defer stop()
	m, err := c.attend(conn)
	if err != nil {
		_ = conn.Close()
		if ctx.Err() != nil {
			return nil, fmt.Errorf("rendezvous: rank %d was stopped: %w", c.Own.Rank, context.Cause(ctx))
		}
		return nil, err
	}
	return m, nil
}

// attend does all communication on a connection to rank 0.
func (c *Config) attend(conn net.Conn) (*Meeting, error) {
	_ = conn.SetDeadline(time.Now().Add(wordWait))
	if err := say(conn, c.Own); err != nil {
		return nil, &strangerError{err}
	}
	var m *Meeting
	entered, awaited, told := false, "", time.Now()
	for {
		_ = conn.SetDeadline(time.Now().Add(wordWait))
		var w word
		if err := hear(conn, maxWord, &w); err != nil {
			return nil, c.without(err, entered, awaited)
		}
		switch w.Kind {
		case notOurs:
			return nil, &strangerError{errors.New(strings.Join(w.Reasons, "; "))}
		case refused:
			return nil, &Refused{w.Reasons, w.Retry}
		case goAhead:
			if m == nil {
				return nil, errors.New("rendezvous: rank 0 said go before it said who is where")
			}
			return m, conn.SetDeadline(time.Time{})
		case table:
			var err error
			if m, err = c.hearTable(conn, w.Clock); err != nil {
				return nil, c.without(err, entered, awaited)
			}
		case beat:
			if awaited = strings.Join(w.Reasons, "; "); time.Since(told) >= tellEvery {
				told = time.Now()
				c.Log.Info("waiting for other processes", "awaited", awaited)
			}
		case ping:
		default:
			return nil, fmt.Errorf("rendezvous: rank 0 said %q, which this process does not know", clip(string(w.Kind)))
		}
		entered = true
		if err := say(conn, answer{At: c.Clock().UnixNano()}); err != nil {
			return nil, c.without(err, entered, awaited)
		}
	}
}

// without returns the error of a process that has lost rank 0.
func (c *Config) without(err error, entered bool, awaited string) error {
	if !entered {
		return &strangerError{err}
	}
	text := fmt.Sprintf("rank %d (process %d on host %s) lost rank 0 before all had met: %v", c.Own.Rank, c.Own.PID,
		c.Own.Host, err)
	if awaited != "" {
		text += " (by then " + awaited + ")"
	}
	return &Refused{Reasons: []string{text}, Retry: true}
}

// hearTable receives the table of all processes.
func (c *Config) hearTable(conn net.Conn, clock *Clock) (*Meeting, error) {
	text, err := hearBytes(conn, maxWord+c.Own.Size*maxInTable)
	if err != nil {
		return nil, err
	}
	t, err := decode(text, c.Own.Size)
	if err != nil {
		return nil, err
	}
	if clock == nil {
		clock = &Clock{}
	}
	return &Meeting{Places: t.places(), Links: []net.Conn{conn}, Clocks: []Clock{*clock}, Differ: t.Differ}, nil
}
