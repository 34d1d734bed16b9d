package wire

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Config holds functions by which a Port reports to its caller and asks it for memory. They run on any goroutine and
// must not block.
type Config struct {
	// Room allocates memory for the parts of a transfer whose header has arrived, and charges it to the receiver. It
	// sets Data and Owner of each part. If Room is nil, and for collectives, the port uses ordinary memory without an
	// Owner.
	Room func(e Edge, parts []Buffer) error
	// Arrived is called for every transfer once it is complete and its epoch has begun. Take returns the message.
	Arrived func(Arrival)
	// Credited is called when the receiver of a transfer's edge has given slots back.
	Credited func(e Edge, slots int)
	// Broken is called once, with the reason, when the port cannot go on: after a frame that it cannot read, a failure
	// of the carrier, or failed work of a device on a buffer.
	Broken func(error)
	// Now returns the sender's time in seconds. If Now is nil, the port uses the time since it was made.
	Now func() float64
}

// Arrival is a complete message. The memory of its Parts belongs to the caller that takes it.
type Arrival struct {
	Edge Edge
	Header
}

// Port is one worker's end of its edges. All methods may be called from any goroutine, but on each edge only one at a
// time may be in Send, and only one in Receive.
type Port struct {
	carrier Carrier
	self    Carrier // for edges from the worker to itself
	config  Config
	began   time.Time

	mu      sync.Mutex
	epoch   uint32
	out     map[end]*outEdge
	in      map[end]*inEdge
	credits map[int]*creditor // by the worker that gets the credits
	early   map[end]uint32    // credits that came before their edge was opened
	arrived map[lying]Arrival
	held    []Arrival // messages of later epochs; they wait for Begin
	err     error
	ended   chan struct{}  // closed when err is set
	waits   sync.WaitGroup // goroutines that wait for buffers' events

	sent, received atomic.Int64 // bytes of messages' parts
}

// end identifies an edge that begins or ends at the port's worker.
type end struct {
	peer int
	id   uint32
}

// lying is the key of a transfer that has arrived and was not taken yet.
type lying struct {
	edge end // the edge from its sender
	key  uint64
}

// NewPort makes the port of a carrier's worker. The port closes the carrier.
func NewPort(c Carrier, config Config) (*Port, error) {
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		return nil, fmt.Errorf("wire: this machine is big-endian; tensors travel in little-endian order")
	}
	return &Port{
		carrier: c, self: inProcess(c.Rank()), config: config, began: time.Now(), ended: make(chan struct{}),
		out: map[end]*outEdge{}, in: map[end]*inEdge{}, arrived: map[lying]Arrival{},
		credits: map[int]*creditor{}, early: map[end]uint32{},
	}, nil
}

// Rank returns the worker whose port this is.
func (p *Port) Rank() int { return p.carrier.Rank() }

// HandsOver says whether the memory of frames to another worker changes hands. If so, their Data is not read.
func (p *Port) HandsOver(rank int) bool { return rank == p.Rank() || p.carrier.HandsOver(rank) }

// of returns the carrier of an edge.
func (p *Port) of(e Edge) Carrier {
	if e.From == e.To {
		return p.self
	}
	return p.carrier
}

// Traffic returns the bytes of all messages that this worker has sent and received.
func (p *Port) Traffic() (sent, received int64) { return p.sent.Load(), p.received.Load() }

// Err returns why the port has ended, or nil if it has not.
func (p *Port) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// Ended is closed when the port has ended.
func (p *Port) Ended() <-chan struct{} { return p.ended }

// Open posts a receive for the first frame of each new edge that ends at this worker. If this worker sends transfers
// over an edge, it begins with a credit for each slot. It gets further credits if a later Open gives the edge more
// slots. Credits for collectives come with Post. An edge that has no slots at its first Open never gets any.
func (p *Port) Open(edges []Edge) {
	var fresh []*inEdge
	p.mu.Lock()
	for _, e := range edges {
		to, from := end{e.To, e.ID}, end{e.From, e.ID}
		if e.From == p.Rank() && p.out[to] == nil {
			p.out[to] = &outEdge{port: p, Edge: e, credits: p.early[to], ended: p.err != nil}
			delete(p.early, to)
			if e.Class == Credits {
				p.credits[e.To] = newCreditor(p, e)
			}
		}
		if e.From == p.Rank() && e.Class == Transfers {
			p.out[to].grant(e.Slots)
		}
		if e.To == p.Rank() && p.in[from] == nil {
			c := p.of(e)
			at := &inEdge{port: p, Edge: e, carrier: c, hands: c.HandsOver(e.From), here: make(chan struct{}, 1)}
			p.in[from] = at
			fresh = append(fresh, at)
		}
	}
	p.mu.Unlock()
	for _, e := range fresh {
		e.begin()
	}
}

// Begin says that the Program of an epoch has been loaded. It returns a function that frees messages of earlier epochs,
// and passes the transfers that have already arrived for this epoch to Config.Arrived. The caller must call that
// function. Messages of collectives can be received immediately, in their order.
func (p *Port) Begin(epoch uint32) (early func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.epoch = epoch
	var tell []Arrival
	older := func(a Arrival) bool {
		if a.Epoch < epoch {
			tell = append(tell, a)
		}
		return a.Epoch < epoch
	}
	for at, a := range p.arrived {
		if older(a) {
			delete(p.arrived, at)
		}
	}
	for _, e := range p.in {
		e.queue = slices.DeleteFunc(e.queue, older)
	}
	p.held = slices.DeleteFunc(p.held, func(a Arrival) bool {
		switch {
		case a.Epoch > epoch:
			return false
		case a.Epoch == epoch && a.Edge.Class == Collectives:
			p.put(a)
		default:
			tell = append(tell, a)
		}
		return true
	})
	return func() {
		for _, a := range tell {
			p.complete(a)
		}
	}
}

// put queues a collective's message for Receive. The caller holds mu.
func (p *Port) put(a Arrival) {
	p.received.Add(a.Header.Bytes())
	e := p.in[end{a.Edge.From, a.Edge.ID}]
	e.queue = append(e.queue, a)
	select {
	case e.here <- struct{}{}:
	default:
	}
}

// complete stores and reports a complete message, keeps it for a later epoch, or drops it if its epoch is over.
func (p *Port) complete(a Arrival) {
	p.mu.Lock()
	switch {
	case p.err != nil:
		p.mu.Unlock()
		FreeAll(a.Parts)
	case a.Epoch < p.epoch:
		p.mu.Unlock()
		FreeAll(a.Parts)
		p.Post(a.Edge, 1)
	case a.Epoch > p.epoch:
		p.held = append(p.held, a)
		p.mu.Unlock()
	case a.Edge.Class == Collectives:
		p.put(a)
		p.mu.Unlock()
	default:
		at := lying{end{a.Edge.From, a.Edge.ID}, a.Key}
		if _, twice := p.arrived[at]; twice {
			p.mu.Unlock()
			FreeAll(a.Parts)
			p.breaks(fmt.Errorf("wire: worker %d has sent message %#x to worker %d twice", a.Edge.From, a.Key, a.Edge.To))
			return
		}
		p.received.Add(a.Header.Bytes())
		p.arrived[at] = a
		p.mu.Unlock()
		if p.config.Arrived != nil {
			p.config.Arrived(a)
		}
	}
}

// Take returns a transfer that has arrived, and posts a slot in its place.
func (p *Port) Take(e Edge, key uint64) (Arrival, bool) {
	p.mu.Lock()
	at := lying{end{e.From, e.ID}, key}
	a, here := p.arrived[at]
	delete(p.arrived, at)
	p.mu.Unlock()
	if here {
		p.Post(e, 1)
	}
	return a, here
}

// Receive waits for the next message of a collective's edge. Only one goroutine at a time may wait on an edge.
func (p *Port) Receive(ctx context.Context, e Edge) (Arrival, error) {
	p.mu.Lock()
	in := p.in[end{e.From, e.ID}]
	p.mu.Unlock()
	if in == nil {
		return Arrival{}, fmt.Errorf("wire: worker %d receives on edge %d from worker %d, which is not open", p.Rank(), e.ID,
			e.From)
	}
	for {
		p.mu.Lock()
		if p.err != nil {
			p.mu.Unlock()
			return Arrival{}, p.err
		}
		if len(in.queue) > 0 {
			a := in.queue[0]
			in.queue = behindFirst(in.queue)
			p.mu.Unlock()
			return a, nil
		}
		p.mu.Unlock()
		select {
		case <-in.here:
		case <-p.ended:
		case <-ctx.Done():
			return Arrival{}, fmt.Errorf("wire: worker %d waits for worker %d: %w", p.Rank(), e.From, context.Cause(ctx))
		}
	}
}

// Waiting returns how many messages of an edge have arrived and were not taken.
func (p *Port) Waiting(e Edge) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n, from := 0, end{e.From, e.ID}
	if in := p.in[from]; in != nil {
		n = len(in.queue)
	}
	for at := range p.arrived {
		if at.edge == from {
			n++
		}
	}
	for i := range p.held {
		if lies := p.held[i].Edge; lies.From == e.From && lies.ID == e.ID {
			n++
		}
	}
	return n
}

// Post posts slots on an edge: its sender gets as many credits.
func (p *Port) Post(e Edge, slots int) {
	if e.Slots == 0 || slots <= 0 {
		return
	}
	p.mu.Lock()
	c := p.credits[e.From]
	p.mu.Unlock()
	if c != nil { // nil after Close
		c.add(e.ID, uint32(slots))
	}
}

// Fail ends the port because a worker has failed. All calls, all messages that wait in the port, and all frames posted
// with that worker end at once, with a PeerError. Frames posted with other workers end when the port is closed. The
// first failure is kept.
func (p *Port) Fail(rank int, err error) {
	why := &PeerError{Rank: rank, Err: err}
	p.stop(why)
	p.carrier.Fail(rank, why)
	p.self.Fail(p.Rank(), why)
}

// breaks ends the port with an error of its own and reports it to Config.Broken.
func (p *Port) breaks(err error) {
	if p.stop(err) && p.config.Broken != nil {
		p.config.Broken(err)
	}
}

// stop ends the port, unless it has ended already. Waiting calls return err, and messages that wait to be sent are
// freed.
func (p *Port) stop(err error) bool {
	p.mu.Lock()
	if p.err != nil {
		p.mu.Unlock()
		return false
	}
	p.err = err
	close(p.ended)
	var waiting []*outgoing
	for _, e := range p.out {
		waiting = append(waiting, e.end()...)
	}
	p.mu.Unlock()
	for _, m := range waiting {
		m.end(err)
	}
	return true
}

// Close ends the port. Waiting calls return ErrClosed, and messages that were not taken are freed.
func (p *Port) Close() error {
	p.stop(ErrClosed)
	err := p.carrier.Close()
	if e := p.self.Close(); err == nil {
		err = e
	}
	p.waits.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range p.arrived {
		FreeAll(a.Parts)
	}
	for _, a := range p.held {
		FreeAll(a.Parts)
	}
	for _, e := range p.in {
		for _, a := range e.queue {
			FreeAll(a.Parts)
		}
	}
	p.arrived, p.held, p.in, p.credits = nil, nil, map[end]*inEdge{}, map[int]*creditor{}
	return err
}

// now returns the time that headers carry, in seconds.
func (p *Port) now() float64 {
	if p.config.Now != nil {
		return p.config.Now()
	}
	return time.Since(p.began).Seconds()
}
