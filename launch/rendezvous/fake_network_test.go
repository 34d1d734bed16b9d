package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"
)

// fakeNet is a Listener with its dialler, over pipes in memory.
type fakeNet struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newFakeNet() *fakeNet {
	return &fakeNet{conns: make(chan net.Conn), closed: make(chan struct{})}
}

func (f *fakeNet) Accept() (net.Conn, error) {
	select {
	case c := <-f.conns:
		return c, nil
	case <-f.closed:
		return nil, net.ErrClosed
	}
}

func (f *fakeNet) Close() error {
	f.once.Do(func() { close(f.closed) })
	return nil
}

func (f *fakeNet) Addr() net.Addr { return &net.UnixAddr{Name: "fake", Net: "unix"} }

var errNobody = errors.New("nobody listens")

func (f *fakeNet) dial(ctx context.Context) (net.Conn, error) {
	own, other := net.Pipe()
	select {
	case f.conns <- other:
		return own, nil
	case <-f.closed:
		return nil, errNobody
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// rank returns the Config of a process on one of two hosts.
func rank(r, size int) Config {
	return Config{
		Own: Hello{Rank: r, Size: size, Run: "run", Host: fmt.Sprint("host", 2*r/size), PID: 100 + r,
			Address: []byte{byte(r)},
			Facts:   []Fact{{"plan", "p1", true}, {"data", "d1", true}, {"build", "b1", true}, {"kernels", "k1", false}}},
		Wait: time.Minute,
	}
}

// result is the result of a process in a meeting.
type result struct {
	Config
	m    *Meeting
	err  error
	took time.Duration
}

// meet lets processes meet, each after its delay, and closes their links.
func meet(t *testing.T, net *fakeNet, delay func(i int) time.Duration, configs ...Config) []result {
	t.Helper()
	results := make([]result, len(configs))
	var all sync.WaitGroup
	for i, c := range configs {
		all.Go(func() {
			time.Sleep(delay(i))
			began := time.Now()
			r := result{Config: c}
			if c.Own.Rank == 0 {
				r.m, r.err = Lead(t.Context(), net, c)
			} else {
				r.m, r.err = Join(t.Context(), net.dial, c)
			}
			r.took = time.Since(began)
			results[i] = r
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

func atOnce(int) time.Duration { return 0 }
