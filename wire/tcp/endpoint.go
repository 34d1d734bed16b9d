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

// LeastToken is the smallest length of a token, in bytes.
const LeastToken = 16

// Config says how a process listens, how other processes reach it, and what it must prove.
type Config struct {
	Address   string       // HOST:PORT to listen on; without a host the loopback, port 0 for any port
	Advertise string       // the host by which other processes reach this one; "": the host in Address
	Token     []byte       // the shared secret of all processes of the run
	Run       string       // identifies the run and this start of it
	Process   int          // the number of this process in the run
	TLS       *TLS         // nil: no encryption
	Log       *slog.Logger // gets a line for each refused connection; nil: no log

	limits limits
}

// limits holds times and sizes that tests make smaller.
type limits struct {
	handshake time.Duration // longest time of a handshake
	dial      time.Duration // longest time until a listener exists
	grace     time.Duration // wait for Fail after a connection has broken
	silence   time.Duration // longest time until a host acknowledges data
	look      time.Duration // interval between checks for silence
	pending   int           // most unfinished handshakes
	parked    int           // most connections that wait for a session or an Accept
	lines     int           // most log lines per second
	lent      int           // smallest frame whose memory is lent, in bytes
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
	ctx      context.Context // ends at Close
	cancel   context.CancelFunc
	running  sync.WaitGroup

	mu       sync.Mutex
	closed   bool
	pending  []net.Conn // connections with unfinished handshakes, the oldest first
	serving  int        // connections in a handshake, and those whose failed handshake is ending
	ended    *sync.Cond // signals that `serving` or the limit has changed, or that the Endpoint is closed
	conns    map[*Conn]struct{}
	session  session
	unlent   sync.Once // logs, only once, that lent memory cannot be read
	services map[Service]*service
}

// session is the last session begun, guarded by its Endpoint. Each session has a greater number than the previous
// session. It can begin only when no carrier of the previous session is open.
type session struct {
	number   uint32
	mine     []int            // the workers in this process
	members  int              // number of connections that other processes' workers make to these workers
	carriers map[int]*carrier // open carriers, by worker
	parked   []parked         // connections for a later session
}

// parked is a connection for a later session.
type parked struct {
	h hello
	c *Conn
}

// Listen makes an Endpoint. ctx bounds only the lookup of names.
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

// keepAlive returns the settings that detect dead connections on which nothing is sent.
func (l limits) keepAlive() net.KeepAliveConfig {
	return net.KeepAliveConfig{Enable: true, Idle: l.silence / 3, Interval: l.silence / 6, Count: 4}
}

// Address returns what other processes need to reach this process, for frames and services.
func (e *Endpoint) Address() wire.Address { return e.at.address() }

// Way returns this host's own address on connections to another Endpoint. It finds the address without sending
// anything.
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

// Close closes the Endpoint, its open carriers, and connections that were never accepted.
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

// accept starts a handshake for every new connection. It allows twice as many handshakes at a time as may be unfinished
// (most), since a handshake that was closed needs a moment to end.
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
		case err != nil: // perhaps no file descriptors are left; existing connections continue
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

// most returns how many handshakes may be unfinished. A session's own connections may all come at the same time, so
// there is room for all of them. The caller holds mu.
func (e *Endpoint) most() int { return max(e.limits.pending, e.session.members) }

// together determines how the time limit of handshakes grows. For every `together` connections of a session, the limit
// grows by that of a single handshake.
const together = 100

// patience returns the time limit of a handshake or a dial. `alone` is the limit if no other handshake runs. All
// handshakes of a session may run at the same time and share the processors, so the limit grows with their number.
func (e *Endpoint) patience(alone time.Duration) time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	return alone + alone*time.Duration(e.session.members)/together
}

// begins waits until another connection may start its handshake.
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

// enter records an unfinished handshake. If there are too many, it closes the oldest.
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

// exit removes a finished handshake from the pending ones. It returns false if the handshake was closed already.
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

// serve does the handshake and hands the connection to the carrier or service that it is for.
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
	if !e.exit(raw) { // from here on no newer handshake can close it
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

// unread logs, once, that this process cannot read memory lent to it.
func (e *Endpoint) unread(err error) {
	e.unlent.Do(func() {
		e.config.Log.Info("messages within this host go over TCP, since memory cannot be read", "why", err.Error())
	})
}

// keep adds a connection to those that are watched.
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

// check returns why a peer that knows the token is refused, or nil if it is accepted.
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

// put hands a connection to its service or carrier, or keeps it for a later session.
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
