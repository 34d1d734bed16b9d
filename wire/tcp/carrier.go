package tcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/millrace-ml/millrace/internal/crash"
	"github.com/millrace-ml/millrace/wire"
)

// carrier is a worker's wire.Carrier over TCP.
type carrier struct {
	e       *Endpoint
	session uint32
	rank    int
	streams int  // number of streams to each peer
	alone   bool // closing it also closes its Endpoint
	running sync.WaitGroup
	moved   atomic.Int64 // bytes

	mu     sync.Mutex
	closed bool
	at     []place // by worker
	peers  map[int]*peer
}

// peer holds one worker's connections with another worker.
type peer struct {
	c      *carrier
	rank   int
	out    *target
	in     *source
	ended  atomic.Bool
	ctx    context.Context // ends when nothing more is sent to the peer or received from it
	cancel context.CancelFunc
}

func newCarrier(e *Endpoint, session uint32, rank int, at []place, streams int) *carrier {
	return &carrier{e: e, session: session, rank: rank, streams: streams, at: slices.Clone(at), peers: map[int]*peer{}}
}

func (c *carrier) Rank() int                      { return c.rank }
func (c *carrier) Address() wire.Address          { return c.e.Address() }
func (c *carrier) Takes(_ int, p wire.Place) bool { return p.Memory != wire.Device }
func (c *carrier) HandsOver(int) bool             { return false }
func (c *carrier) Moved() int64                   { return c.moved.Load() }

func (c *carrier) Connect(rank int, a wire.Address) error {
	at, err := placeOf(a, c.Address())
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if rank < 0 || rank >= len(c.at) {
		return fmt.Errorf("tcp: worker %d of %d", rank, len(c.at))
	}
	c.at[rank] = at
	return nil
}

// peer returns the state for another worker, and makes it when first needed. The caller holds mu.
func (c *carrier) peer(rank int) (*peer, error) {
	switch {
	case c.closed:
		return nil, wire.ErrClosed
	case rank < 0 || rank >= len(c.at):
		return nil, fmt.Errorf("tcp: there is no worker %d of %d", rank, len(c.at))
	}
	p := c.peers[rank]
	if p == nil {
		p = &peer{c: c, rank: rank, out: newTarget(c.e.limits.lent), in: newSource()}
		p.out.moved, p.in.moved, p.in.refused = &c.moved, &c.moved, c.e.unread
		p.ctx, p.cancel = context.WithCancel(context.Background())
		c.peers[rank] = p
	}
	return p, nil
}

func (c *carrier) Send(epoch uint32, e wire.Edge, n uint32, frames []*wire.Buffer, done func(error)) {
	c.mu.Lock()
	p, err := c.peer(e.To)
	if err == nil {
		c.running.Add(1)
		defer c.running.Done()
		for _, w := range p.out.begin(c.streams) {
			p.begin(w)
		}
	}
	c.mu.Unlock()
	if err != nil {
		done(err)
		return
	}
	p.out.post(e, wire.TagOf(epoch, e.ID, n), frames, done)
}

func (c *carrier) Recv(e wire.Edge, n uint32, b *wire.Buffer, done func(error)) {
	c.mu.Lock()
	p, err := c.peer(e.From)
	c.mu.Unlock()
	if err == nil && int64(len(b.Data)) != b.Bytes() {
		err = fmt.Errorf("tcp: a receive of %d bytes is posted with %d bytes of memory", b.Bytes(), len(b.Data))
	}
	if err != nil {
		done(err)
		return
	}
	p.in.post(e, n, b, done)
}

func (p *peer) begin(w *stream) { p.c.running.Go(crash.Caught(func() { p.write(w) })) }

// write dials a stream and writes what is posted on it.
func (p *peer) write(w *stream) {
	p.c.mu.Lock()
	at := p.c.at[p.rank]
	p.c.mu.Unlock()
	e := p.c.e
	ctx, cancel := context.WithTimeout(p.ctx, e.patience(e.limits.dial))
	defer cancel()
	conn, err := e.dial(ctx, at, hello{service: frames, from: uint32(p.c.rank), to: uint32(p.rank),
		session: p.c.session, stream: uint16(w.number), streams: uint16(max(p.c.streams, w.number+1))})
	if err != nil {
		var said *refused
		if !errors.As(err, &said) || said.code != over { // `over` means that the peer has closed its carrier
			p.lost(at.String(), err)
		}
		return
	}
	if !w.again {
		conn.offers()
	}
	if !w.up(conn) {
		conn.leave()
		return
	}
	if w.number == 0 {
		p.tellWay()
	}
	p.c.running.Go(crash.Caught(func() {
		if err := w.heed(p.tellWay, p.begin); err != nil {
			p.lost(at.String(), err)
		}
	}))
	if err := w.run(); err != nil {
		conn.blame(err)
		_ = conn.SetReadDeadline(time.Now().Add(e.limits.grace)) // a peer that has closed its carrier has said so by then
	}
}

// tellWay logs how frames reach a worker.
func (p *peer) tellWay() {
	p.c.e.config.Log.Debug("messages", "how", p.c.Describe(wire.Edge{From: p.c.rank, To: p.rank}))
}

// has says whether the connection that a hello asks for exists already.
func (c *carrier) has(h hello) bool {
	c.mu.Lock()
	p := c.peers[int(h.from)]
	c.mu.Unlock()
	return p != nil && p.in.has(h.stream)
}

// attach starts reading from a connection.
func (c *carrier) attach(h hello, conn *Conn) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	p, err := c.peer(int(h.from))
	if err == nil {
		err = p.in.add(h.stream, conn)
	}
	if err != nil {
		return err
	}
	c.running.Go(crash.Caught(func() {
		if err := p.in.read(conn, conn.proof, p.out); err != nil {
			p.lost(conn.RemoteAddr().String(), err)
		}
	}))
	return nil
}

// lost ends everything with a worker whose connection has failed. If the error does not say why, it first gives Fail
// some time to report the reason.
func (p *peer) lost(at string, err error) {
	for _, unclear := range []error{io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, syscall.EPIPE} {
		if errors.Is(err, unclear) {
			select {
			case <-p.ctx.Done():
			case <-time.After(p.c.e.limits.grace):
			}
			break
		}
	}
	var said *refused
	ended := wire.Gone(err) || errors.As(err, &said) && said.code == another
	err = fmt.Errorf("tcp: its connection with worker %d, at %s: %w", p.c.rank, at, err)
	p.end(&wire.PeerError{Rank: p.rank, Err: err, Lost: ended})
}

// end ends everything with a worker. Only the first call counts, and its reason stays.
func (p *peer) end(err error) {
	if !p.ended.CompareAndSwap(false, true) {
		return
	}
	p.out.end(err)
	p.in.end(err)
	p.cancel()
}

// Fail ends all sends and receives with a worker.
func (c *carrier) Fail(rank int, err error) {
	c.mu.Lock()
	p, none := c.peer(rank)
	c.mu.Unlock()
	if none == nil {
		p.end(err)
	}
}

// Close ends all sends and receives, and waits for the carrier's goroutines.
func (c *carrier) Close() error {
	c.mu.Lock()
	c.closed = true
	peers := c.peers
	c.peers = map[int]*peer{}
	c.mu.Unlock()
	for _, p := range peers {
		p.end(wire.ErrClosed)
	}
	c.running.Wait()
	c.e.gone(c)
	if c.alone {
		return c.e.Close()
	}
	return nil
}

func (c *carrier) Describe(e wire.Edge) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	other, ways, reads := e.To, []*Conn(nil), false
	if e.To == c.rank {
		other = e.From
	}
	text := fmt.Sprintf("worker %d to %d: TCP", e.From, e.To)
	if c.e.at.tls {
		text += " with TLS 1.3"
	}
	if p := c.peers[other]; p != nil && e.From == c.rank {
		ways, reads = p.out.ways()
	} else if p != nil {
		ways, reads = p.in.ways()
	}
	if len(ways) == 0 && other < len(c.at) {
		return fmt.Sprintf("%s at %v, not connected yet", text, c.at[other])
	}
	var all []string
	for _, w := range ways {
		all = append(all, fmt.Sprintf("%v and %v", w.LocalAddr(), w.RemoteAddr()))
	}
	slices.Sort(all)
	if reads {
		text += ", what is long read from memory,"
	}
	return text + " between " + strings.Join(all, ", ")
}
