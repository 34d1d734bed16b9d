package tcp

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/millrace-ml/millrace/internal/crash"
	"github.com/millrace-ml/millrace/wire"
	"github.com/millrace-ml/millrace/wire/tcp/memory"
)

// LeastToken is how many bytes a token has at least.
const LeastToken = 16

// Config is how a process lets others in and reaches them.
type Config struct {
	Address   string       // HOST:PORT to listen on; no host is the loopback, port 0 any
	Advertise string       // the host by which others reach this one; "": that of Address
	Token     []byte       // what every process of the run knows
	Run       string       // which run, and which start of it
	Process   int          // the number of this process
	TLS       *TLS         // nil: bytes travel as they are
	Log       *slog.Logger // is told of whoever is refused; nil: nobody is

	limits limits
}

// limits are what tests have smaller.
type limits struct {
	handshake time.Duration // a connection may take to be one of ours
	dial      time.Duration // a listener may take to be there
	grace     time.Duration // Fail may take, once a connection has broken
	silence   time.Duration // a host may take to acknowledge anything
	look      time.Duration // between looks at that
	pending   int           // unfinished handshakes
	parked    int           // connections that wait to be asked for
	lines     int           // logged in a second
	lent      int           // bytes that a frame has at least whose memory is lent
}

var usual = limits{handshake: 5 * time.Second, dial: 5 * time.Second, grace: 2 * time.Second, silence: 6 * time.Second,
	look: time.Second, pending: 256, parked: 4096, lines: 10, lent: 128 << 10}

// Endpoint is a process's end of all connections. Its methods may be called from any goroutine.
type Endpoint struct {
	config   Config
	limits   limits
	run      [sha256.Size]byte
	listener *net.TCPListener
	at       place
	tls      *sides
	log      refusals
	ctx      context.Context // ends with Close
	cancel   context.CancelFunc
	running  sync.WaitGroup

	mu       sync.Mutex
	closed   bool
	pending  []net.Conn // whose handshakes are unfinished, the oldest first
	serving  int        // connections that shake hands, or end as they do
	ended    *sync.Cond // one has ended, or the Endpoint
	conns    map[*Conn]struct{}
	session  session
	unlent   sync.Once // memory that cannot be read was logged
	services map[Service]*service
}

// session is the last one begun, guarded by its Endpoint. Each has a greater number than the one before, and begins
// when no carrier of that is open.
type session struct {
	number   uint32
	mine     []int            // its workers here
	members  int              // connections that its workers elsewhere make to those
	carriers map[int]*carrier // that are open, by worker
	parked   []parked         // for a session to come
}

// parked is a connection for carriers to come.
type parked struct {
	h hello
	c *Conn
}

// Listen makes an Endpoint. ctx bounds the looking up of names alone.
func Listen(ctx context.Context, c Config) (*Endpoint, error) {
	if c.limits == (limits{}) {
		c.limits = usual
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	switch {
	case len(c.Token) < LeastToken:
		return nil, fmt.Errorf("tcp: a token of %d bytes; it has at least %d", len(c.Token), LeastToken)
	case c.Process < 0:
		return nil, fmt.Errorf("tcp: this is process %d", c.Process)
	}
	on, err := listensAt(c.Address)
	if err != nil {
		return nil, err
	}
	both, err := c.TLS.sides()
	if err != nil {
		return nil, err
	}
	how := net.ListenConfig{KeepAliveConfig: c.limits.keepAlive()}
	l, err := how.Listen(ctx, "tcp", on)
	if err != nil {
		return nil, fmt.Errorf("tcp: %w", err)
	}
	e := &Endpoint{
		config: c, limits: c.limits, run: sha256.Sum256([]byte(c.Run)), listener: l.(*net.TCPListener), tls: both,
		log: refusals{log: c.Log, lines: c.limits.lines}, conns: map[*Conn]struct{}{},
		session: session{carriers: map[int]*carrier{}}, services: map[Service]*service{},
	}
	for _, s := range []Service{Control, Files} {
		e.services[s] = &service{e: e, more: make(chan struct{}, 1)}
	}
	if e.at.host, e.at.port, err = advertised(l.Addr(), c.Advertise); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	e.at.tls, e.ended = c.TLS != nil, sync.NewCond(&e.mu)
	e.ctx, e.cancel = context.WithCancel(context.Background())
	e.running.Go(crash.Caught(e.accept))
	e.running.Go(crash.Caught(e.watch))
	return e, nil
}

// keepAlive finds out about connections on which nothing is sent.
func (l limits) keepAlive() net.KeepAliveConfig {
	return net.KeepAliveConfig{Enable: true, Idle: l.silence / 3, Interval: l.silence / 6, Count: 4}
}

// Address is what others need to reach this process, for frames and services alike.
func (e *Endpoint) Address() wire.Address { return e.at.address() }

// Way is the address of this host from which connections to another Endpoint go. Nothing is sent.
func (e *Endpoint) Way(ctx context.Context, to wire.Address) (netip.Addr, error) {
	at, err := placeOf(to, e.Address())
	if err != nil {
		return netip.Addr{}, err
	}
	var dialler net.Dialer
	c, err := dialler.DialContext(ctx, "udp", at.String())
	if err != nil {
		return netip.Addr{}, fmt.Errorf("tcp: %w", err)
	}
	own := c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap()
	return own, c.Close()
}

// Close ends the Endpoint, its carriers where they are open, and what nobody has asked for.
func (e *Endpoint) Close() error {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return nil
	}
	e.closed = true
	open := slices.Collect(maps.Values(e.session.carriers))
	strangers, waiting := slices.Clone(e.pending), e.session.parked
	e.session.parked = nil
	e.ended.Broadcast()
	e.mu.Unlock()
	e.cancel()
	err := e.listener.Close()
	for _, c := range open {
		err = errors.Join(err, c.Close())
	}
	for _, raw := range strangers {
		raw.Close()
	}
	for _, p := range waiting {
		p.c.leave()
	}
	for _, s := range e.services {
		err = errors.Join(err, s.Close())
	}
	e.running.Wait()
	return err
}

// accept has everybody who dials shake hands, twice as many as may be unfinished at a time: the others are those
// that are about to end.
func (e *Endpoint) accept() {
	for {
		e.begins()
		raw, err := e.listener.AcceptTCP()
		switch {
		case e.ctx.Err() != nil:
			if err == nil {
				raw.Close()
			}
			return
		case err != nil: // no files are left, perhaps; those that there are go on
			e.config.Log.Error("no connections can be accepted", "address", e.at.String(), "error", err)
			select {
			case <-e.ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
			e.ends()
			continue
		}
		e.enter(raw)
		e.running.Go(crash.Caught(func() {
			defer e.ends()
			err := e.serve(raw)
			if err == nil {
				return
			}
			raw.Close()
			if !e.exit(raw) && errors.Is(err, net.ErrClosed) {
				err = errors.New("too many others have dialled since, and it has not finished its handshake")
			}
			if e.ctx.Err() == nil {
				e.log.add(raw.RemoteAddr(), err)
			}
		}))
	}
}

// most is how many handshakes may be unfinished: all of a session's, which may come at once, whoever else comes. The
// caller holds mu.
func (e *Endpoint) most() int { return max(e.limits.pending, e.session.members) }

// together is how many of a session's handshakes at once have as long as one has alone.
const together = 100

// patience is how long a handshake may take, or a whole dial; alone is that of the only one under way. All of a
// session's may be under way at the same time, and share the processors that there are.
func (e *Endpoint) patience(alone time.Duration) time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	return alone + alone*time.Duration(e.session.members)/together
}

// begins waits until one more connection may shake hands.
func (e *Endpoint) begins() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for e.serving >= 2*e.most() && !e.closed {
		e.ended.Wait()
	}
	e.serving++
}

func (e *Endpoint) ends() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.serving--
	e.ended.Signal()
}

// enter notes an unfinished handshake; of too many the oldest ends.
func (e *Endpoint) enter(raw net.Conn) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.pending = append(e.pending, raw)
	if e.closed {
		raw.Close()
	}
	if len(e.pending) > e.most() {
		e.pending[0].Close()
		e.pending = slices.Delete(e.pending, 0, 1)
	}
}

// exit is the end of a handshake; false where it has ended already.
func (e *Endpoint) exit(raw net.Conn) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	at := slices.Index(e.pending, raw)
	if at < 0 {
		return false
	}
	e.pending = slices.Delete(e.pending, at, at+1)
	return true
}

// serve shakes hands and puts the connection where it belongs.
func (e *Endpoint) serve(raw net.Conn) error {
	h, c, p, err := e.receive(raw)
	if err == nil {
		err = e.check(h)
	}
	if err != nil {
		if r, ok := errors.AsType[*refused](err); ok {
			refuse(c, r)
		}
		return err
	}
	if !e.exit(raw) { // from here on it is one of ours, and nobody takes its place
		return net.ErrClosed
	}
	if err := answer(c, welcome, 0, p.listener); err != nil {
		return err
	}
	_ = raw.SetDeadline(time.Time{})
	conn := e.keep(&Conn{Conn: c, From: int(h.from), raw: raw, e: e, proof: memory.Proof(p.lender)})
	err = e.put(h, conn)
	if err != nil {
		conn.leave()
	}
	return err
}

// unread says, once, that this process cannot read memory that it is lent.
func (e *Endpoint) unread(err error) {
	e.unlent.Do(func() {
		e.config.Log.Info("messages within this host go over TCP, since memory cannot be read", "why", err.Error())
	})
}

// keep has a connection watched.
func (e *Endpoint) keep(c *Conn) *Conn {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.conns[c] = struct{}{}
	return c
}

func (e *Endpoint) forget(c *Conn) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.conns, c)
}

// check says why somebody who knows the token is refused.
func (e *Endpoint) check(h hello) error {
	if h.run != e.run {
		return &refused{another, "it is of another run, or of another start of it"}
	}
	if h.service != frames {
		if int(h.to) != e.config.Process {
			return &refused{notHere, fmt.Sprintf("this is process %d; it wants %d", e.config.Process, h.to)}
		}
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	switch c := e.session.carriers[int(h.to)]; {
	case h.session > e.session.number && len(e.session.parked) >= e.limits.parked:
		return &refused{notHere, fmt.Sprintf("%d connections wait for carriers to come", len(e.session.parked))}
	case h.session > e.session.number:
	case h.session < e.session.number || c == nil && slices.Contains(e.session.mine, int(h.to)):
		return &refused{over, fmt.Sprintf("session %d of worker %d is over", h.session, h.to)}
	case c == nil:
		return &refused{notHere, fmt.Sprintf("worker %d is not of this process, which has %v", h.to, e.session.mine)}
	case int(h.from) >= len(c.at):
		return &refused{notHere, fmt.Sprintf("there is no worker %d of %d", h.from, len(c.at))}
	case c.has(h):
		return &refused{notHere, fmt.Sprintf("worker %d has stream %d from worker %d already", h.to, h.stream, h.from)}
	}
	return nil
}

// put hands a connection over to whoever wants it.
func (e *Endpoint) put(h hello, c *Conn) error {
	if s := e.services[h.service]; s != nil {
		return s.add(c, e.limits.parked)
	}
	e.mu.Lock()
	to := e.session.carriers[int(h.to)]
	switch {
	case e.closed || h.session == e.session.number && to == nil || h.session < e.session.number:
		e.mu.Unlock()
		return errors.New("its worker has left meanwhile")
	case h.session > e.session.number:
		e.session.parked = append(e.session.parked, parked{h, c})
		e.mu.Unlock()
		return nil
	}
	e.mu.Unlock()
	return to.attach(h, c)
}
