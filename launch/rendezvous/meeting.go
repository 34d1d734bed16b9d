package rendezvous

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"
)

// DefaultWait is how long the meeting waits for all processes if Config.Wait is 0.
const DefaultWait = 5 * time.Minute

// These are the times of a meeting.
const (
	defaultMaxClock = time.Minute
	helloWait       = 10 * time.Second // for a stranger to authenticate and send Hello
	wordWait        = 10 * time.Second // for sending a word and receiving its answer
	beatEvery       = time.Second
	settle          = time.Second      // from the first reason to fail until the end; meanwhile further reasons can come
	linger          = 10 * time.Second // longest time in which late processes are told why the meeting failed
	pings           = 8
)

// Config describes this process and the rules of the meeting.
type Config struct {
	Own      Hello         // this process; Version 0 is replaced by the current one
	Wait     time.Duration // time within which all processes must come; 0: five minutes
	MaxClock time.Duration // largest difference between clocks; 0: a minute
	// Guard returns the authenticated connection for an accepted one, or refuses it. The connection has a deadline.
	// If Guard is nil, every process that reaches the Listener is trusted.
	Guard func(net.Conn) (net.Conn, error)
	Clock func() time.Time // nil: time.Now
	Log   *slog.Logger     // logs strangers and missing processes; nil: no log
}

// complete fills in defaults, and refuses invalid values.
func (c *Config) complete() error {
	if c.Own.Version == 0 {
		c.Own.Version = version
	}
	if c.Wait <= 0 {
		c.Wait = DefaultWait
	}
	if c.MaxClock <= 0 {
		c.MaxClock = defaultMaxClock
	}
	if c.Guard == nil {
		c.Guard = func(plain net.Conn) (net.Conn, error) { return plain, nil }
	}
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if err := c.Own.check(); err != nil {
		return fmt.Errorf("rendezvous: this process: %w", err)
	}
	return nil
}

// Meeting is the result of a successful meeting.
type Meeting struct {
	Places []Place // by rank
	// Links holds, at rank 0, the connections to all other processes, by rank. In any other process it holds only the
	// connection to rank 0.
	Links []net.Conn
	// Clocks holds, at rank 0, the clocks of all processes, by rank. In any other process it holds only that process's
	// clock.
	Clocks []Clock
	// Differ has a sentence for each fact that differs although nothing requires it to be equal (Fact.Must is not set).
	Differ []string
}

// Place says where a process is.
type Place struct {
	Host                 string
	Node                 int // number of its host; hosts are ordered by their lowest rank
	LocalRank, LocalSize int // rank and number of processes on its host
	Address              []byte
}

// Close closes all links.
func (m *Meeting) Close() error {
	var err error
	for _, l := range m.Links {
		if l != nil {
			err = errors.Join(err, l.Close())
		}
	}
	return err
}

// Refused is the error of every process when the meeting fails.
type Refused struct {
	Reasons []string
	Retry   bool // no contradiction was found: the same processes may succeed at another try
}

func (r *Refused) Error() string {
	return "rendezvous: the processes of the run cannot begin: " + strings.Join(r.Reasons, "; ")
}
