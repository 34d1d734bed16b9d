package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/wire"
	"github.com/millrace-ml/millrace/wire/tcp"
)

// member is a process with an Endpoint.
type member struct {
	Config
	token string
	tls   *tcp.TLS
}

// overTCP lets processes meet through Endpoints on the loopback.
func overTCP(t *testing.T, members []member) []result {
	t.Helper()
	results := make([]result, len(members))
	lead := make(chan wire.Address, 1)
	var all sync.WaitGroup
	for i, m := range members {
		all.Go(func() {
			c := m.Config
			results[i].Config = c
			e, err := tcp.Listen(t.Context(), tcp.Config{Token: []byte(m.token), Run: c.Own.Run, Process: c.Own.Rank,
				TLS: m.tls})
			if err != nil {
				t.Error(err)
				return
			}
			t.Cleanup(func() { e.Close() })
			began := time.Now()
			if c.Own.Rank == 0 {
				lead <- e.Address()
				results[i].m, results[i].err = Lead(t.Context(), e.Listener(tcp.Control), c)
			} else {
				at := <-lead
				lead <- at
				results[i].m, results[i].err = Join(t.Context(), func(ctx context.Context) (net.Conn, error) {
					conn, err := e.Dial(ctx, at, tcp.Control, 0)
					if tcp.Final(err) {
						return nil, fmt.Errorf("%w; %w", err, ErrFinal)
					}
					return conn, err
				}, c)
			}
			results[i].took = time.Since(began)
		})
	}
	all.Wait()
	for _, r := range results {
		if r.m != nil {
			_ = r.m.Close()
		}
	}
	return results
}

const secret = "0123456789abcdef"

func members(n int, tls *tcp.TLS) []member {
	var all []member
	for r := range n {
		c := rank(r, n)
		c.Wait = 20 * time.Second
		all = append(all, member{c, secret, tls})
	}
	return all
}

// Processes meet over authenticated connections, encrypted or not.
func TestMeetingsOverTCP(t *testing.T) {
	for name, tls := range map[string]*tcp.TLS{"plain": nil, "TLS": {}} {
		for _, r := range overTCP(t, members(4, tls)) {
			if r.err != nil {
				t.Errorf("%s: rank %d: %v", name, r.Own.Rank, r.err)
				continue
			}
			checkMeeting(t, r, 4)
			for i, c := range r.m.Clocks {
				if c.OffsetS > c.ErrorS || -c.OffsetS > c.ErrorS {
					t.Errorf("%s: clock %d is %+v; it is the same one", name, i, c)
				}
			}
		}
	}
}

// Over TCP, every process gets the reason for a refusal. The reason names the process that caused it.
func TestRefusalsOverTCP(t *testing.T) {
	all := members(3, &tcp.TLS{})
	all[2].Own.Facts = []Fact{{"plan", "p2", true}}
	for _, r := range overTCP(t, all) {
		var refused *Refused
		if !errors.As(r.err, &refused) || refused.Retry || !strings.Contains(r.err.Error(), "the plan of rank 2") {
			t.Errorf("rank %d: %v", r.Own.Rank, r.err)
		}
	}
}

// A process with another token is told so at once, and does not hold up those with the run's token.
func TestTokensOverTCP(t *testing.T) {
	stranger := members(2, nil)[1]
	stranger.token = "another token of somebody"
	results := overTCP(t, append(members(2, nil), stranger))
	for _, r := range results[:2] {
		if r.err != nil {
			t.Errorf("rank %d: %v", r.Own.Rank, r.err)
		}
	}
	var refused *Refused
	if err := results[2].err; !errors.As(err, &refused) || refused.Retry ||
		!strings.Contains(err.Error(), "its token is not this run's") {
		t.Errorf("%v", err)
	}
}
