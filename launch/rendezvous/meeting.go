package rendezvous

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"
)

// DefaultWait is how long all processes may take to come.
const DefaultWait = 5 * time.Minute

// Times of a meeting.
const (
	defaultMaxClock = time.Minute
	helloWait       = 10 * time.Second // for a stranger to prove who it is and say Hello
	wordWait        = 10 * time.Second // for a word, or the answer to it
	beatEvery       = time.Second
	settle          = time.Second      // from the first reason to fail to the end, for others to be heard
	linger          = 10 * time.Second // or Wait, in which those who come to a meeting that failed are told why
	pings           = 8
)

// Config is how a process meets the others.
type Config struct {
	Own      Hello         // who this process is; its Version is filled in where it is 0
	Wait     time.Duration // for all to come; 0: five minutes
	MaxClock time.Duration // the most that clocks may be apart; 0: a minute
	// Guard returns the authenticated connection of one that was accepted, or refuses it. It works under a
	// deadline that is set on the connection that it is given. nil: whoever reaches the Listener is trusted.
	Guard func(net.Conn) (net.Conn, error)
	Clock func() time.Time // nil: time.Now
	Log   *slog.Logger     // is told of strangers and of who is waited for; nil: nobody
}

// complete fills in what was left out, and refuses what cannot be.
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

// Meeting is who has met.
type Meeting struct {
	Places []Place // by rank
	// Links are, of rank 0, the connections to each process by rank, none to itself; of another, the one to rank
	// 0.
	Links []net.Conn
	// Clocks are, of rank 0, those of all processes by rank; of another, its own.
	Clocks []Clock
	// Differ are facts that need not be the same and are not, a sentence each.
	Differ []string
}

// Place is where a process is.
type Place struct {
	Host                 string
	Node                 int // the number of the host, in the order of the hosts' least ranks
	LocalRank, LocalSize int // among the processes on the host
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

// Refused is the error of every process of a meeting that failed.
type Refused struct {
	Reasons []string
	Retry   bool // nothing contradicts: the same processes may meet another time
}

func (r *Refused) Error() string {
	return "rendezvous: the processes of the run cannot begin: " + strings.Join(r.Reasons, "; ")
}
