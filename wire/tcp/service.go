package tcp

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/millrace-ml/millrace/internal/crash"
	"github.com/millrace-ml/millrace/wire"
	"github.com/millrace-ml/millrace/wire/tcp/memory"
)

// service queues connections of one service until they are accepted.
type service struct {
	e    *Endpoint
	more chan struct{} // capacity 1: signals that `queue` has grown, or `closed` was set

	mu     sync.Mutex
	queue  []*Conn
	closed bool
}

// Listener returns the listener for a service's connections, each a *Conn. Closing it does not close the Endpoint.
func (e *Endpoint) Listener(s Service) net.Listener {
	if e.services[s] == nil {
		panic(fmt.Sprintf("tcp: nobody listens for %v", s))
	}
	return e.services[s]
}

// add queues a connection.
func (s *service) add(c *Conn, most int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return net.ErrClosed
	case len(s.queue) >= most:
		return fmt.Errorf("%d connections wait already", most)
	}
	s.queue = append(s.queue, c)
	s.ring()
	return nil
}

func (s *service) ring() {
	select {
	case s.more <- struct{}{}:
	default:
	}
}

func (s *service) Accept() (net.Conn, error) {
	for {
		s.mu.Lock()
		var c *Conn
		if !s.closed && len(s.queue) > 0 {
			c = s.queue[0]
			s.queue = s.queue[1:]
		}
		if s.closed || len(s.queue) > 0 {
			s.ring() // wakes other goroutines in Accept
		}
		closed := s.closed
		s.mu.Unlock()
		switch {
		case closed:
			return nil, fmt.Errorf("tcp: %w", net.ErrClosed)
		case c != nil:
			return c, nil
		}
		<-s.more
	}
}

func (s *service) Close() error {
	s.mu.Lock()
	s.closed = true
	waiting := s.queue
	s.queue = nil
	s.ring()
	s.mu.Unlock()
	for _, c := range waiting {
		c.Close()
	}
	return nil
}

func (s *service) Addr() net.Addr { return s.e.listener.Addr() }

// Dial makes a connection to a process, for a service. If nobody answers, it tries again until ctx ends. It gives up at
// once if it is refused, if a certificate is rejected, or if the answer has another protocol.
func (e *Endpoint) Dial(ctx context.Context, to wire.Address, s Service, process int) (*Conn, error) {
	at, err := placeOf(to, e.Address())
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(e.ctx, crash.Caught(cancel))()
	c, err := e.dial(ctx, at, hello{service: s, from: uint32(e.config.Process), to: uint32(process), streams: 1})
	if err != nil {
		return nil, fmt.Errorf("tcp: process %d at %v: %w", process, at, err)
	}
	return c, nil
}

// dial retries until it succeeds, an attempt fails for good (final), or ctx ends.
func (e *Endpoint) dial(ctx context.Context, at place, h hello) (*Conn, error) {
	h.run = e.run
	var last error
	began := time.Now()
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, 500*time.Millisecond) {
		c, err := e.attempt(ctx, at, h)
		if err == nil {
			return c, nil
		}
		if last == nil || ctx.Err() == nil {
			last = err // the real cause, instead of the end of ctx
		}
		if final(err) {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("it has not let this process in for %v: %w", time.Since(began).Round(time.Millisecond), last)
		case <-time.After(wait):
		}
	}
}

func (e *Endpoint) attempt(ctx context.Context, at place, h hello) (*Conn, error) {
	how := net.Dialer{KeepAliveConfig: e.limits.keepAlive()}
	raw, err := how.DialContext(ctx, "tcp", at.String())
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, crash.Caught(func() { raw.Close() }))
	c, lends, err := e.greet(raw, h)
	if !stop() && !final(err) {
		err = context.Cause(ctx) // ctx has ended and closed the connection
	}
	if err != nil {
		raw.Close()
		return nil, err
	}
	return e.keep(&Conn{Conn: c, From: int(h.to), raw: raw, e: e, proof: memory.Proof(lends)}), nil
}

// refusals logs refused connections, with a limited number of lines per second.
type refusals struct {
	log   *slog.Logger
	lines int

	mu           sync.Mutex
	second       time.Time
	said, unsaid int
}

func (r *refusals) add(who net.Addr, why error) {
	r.mu.Lock()
	if now := time.Now(); now.Sub(r.second) >= time.Second {
		r.second, r.said = now, 0
	}
	if r.said == r.lines {
		r.unsaid++
		r.mu.Unlock()
		return
	}
	unsaid := r.unsaid
	r.said, r.unsaid = r.said+1, 0
	r.mu.Unlock()
	r.log.Warn("a connection is refused", "from", who.String(), "why", why.Error(), "others_not_logged", unsaid)
}
