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

// Config is what a Port tells and asks whoever drives it. Its functions run on any goroutine and must not
// block.
type Config struct {
	// Room takes memory for the parts of a transfer whose header has come, and charges it to the receiver. It
	// sets Data and Owner of each. Nil, and for collectives: ordinary memory, which has no Owner.
	Room func(e Edge, parts []Buffer) error
	// Arrived is told of every transfer once it is complete and its epoch has begun. Take gives it out.
	Arrived func(Arrival)
	// Credited is told of slots of a transfer's edge that its receiver has given back.
	Credited func(e Edge, slots int)
	// Broken is told once why the port cannot go on: a frame that is none, a carrier that fails.
	Broken func(error)
	// Now is the sender's clock; nil: the time since the port was made.
	Now func() float64
}

// Arrival is a complete message. The memory of its Parts is the taker's.
type Arrival struct {
	Edge Edge
	Header
}

// Port is one worker's end of its edges. All methods may be called from any goroutine, but see Send.
type Port struct {
	carrier Carrier
	self    Carrier // for edges from the worker to itself
	config  Config
	began   time.Time

	mu      sync.Mutex
	epoch   uint32
	out     map[end]*outEdge
	in      map[end]*inEdge
	credits map[int]*creditor // by the worker that they go to
	early   map[end]uint32    // credits for edges that are not open yet
	arrived map[lying]Arrival
	held    []Arrival // of epochs to come
	err     error
	ended   chan struct{}  // closed when err is set
	waits   sync.WaitGroup // for events

	sent, received atomic.Int64 // bytes of messages' parts
}

// end is an edge that begins or ends at the port's worker.
type end struct {
	peer int
	id   uint32
}

// lying is where a transfer is until it is taken.
type lying struct {
	edge end // from its sender
	key  uint64
}

// NewPort makes the port of a carrier's worker. Its carrier is the port's to close.
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

// Rank is the port's worker.
func (p *Port) Rank() int { return p.carrier.Rank() }

// HandsOver says whether the memory of frames to another worker changes hands; then nobody looks at their Data.
func (p *Port) HandsOver(rank int) bool { return rank == p.Rank() || p.carrier.HandsOver(rank) }

// of is the carrier of an edge.
func (p *Port) of(e Edge) Carrier {
	if e.From == e.To {
		return p.self
	}
	return p.carrier
}

// Traffic is how many bytes the messages had that the worker has sent, and those that have come to it.
func (p *Port) Traffic() (sent, received int64) { return p.sent.Load(), p.received.Load() }

// Err is why the port has ended, nil while it has not.
func (p *Port) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// Ended is closed when the port has ended.
func (p *Port) Ended() <-chan struct{} { return p.ended }

// Open posts what receives the first frame of each edge that ends here and is new. Transfers begin with
// credits for all their slots, and get more where an edge has more slots than before; those of collectives
// come with Post. Edges have slots from their first Open on, or never.
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

// Begin says that the Program of an epoch has been loaded. Transfers that have come for it already are told
// when the function that it returns is called, on the caller's goroutine; what is left of earlier ones is
// freed then. Messages of collectives are there at once, in their order.
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

// put has a collective's message wait for Receive. The caller holds mu.
func (p *Port) put(a Arrival) {
	p.received.Add(a.Header.Bytes())
	e := p.in[end{a.Edge.From, a.Edge.ID}]
	e.queue = append(e.queue, a)
	select {
	case e.here <- struct{}{}:
	default:
	}
}

// complete puts a message where it is taken, tells of it, or drops it, by its epoch.
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

// Take gives out a transfer that has arrived, and posts a slot in its place.
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

// Receive waits for the next message of a collective's edge. One goroutine at a time waits on an edge.
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

// Waiting is how many messages lie with this worker on an edge, untaken.
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

// Post lets so many more messages come on an edge: its sender gets as many credits.
func (p *Port) Post(e Edge, slots int) {
	if e.Slots == 0 || slots <= 0 {
		return
	}
	p.mu.Lock()
	c := p.credits[e.From]
	p.mu.Unlock()
	if c != nil { // none behind Close
		c.add(e.ID, uint32(slots))
	}
}

// Fail says that a worker has failed, which ends the port: calls, what waits in it and what is posted with
// that worker end with a PeerError, at once; what is posted with others when the port is closed. The first
// failure wins.
func (p *Port) Fail(rank int, err error) {
	why := &PeerError{Rank: rank, Err: err}
	p.stop(why)
	p.carrier.Fail(rank, why)
	p.self.Fail(p.Rank(), why)
}

// breaks ends the port for a reason of its own, and says so.
func (p *Port) breaks(err error) {
	if p.stop(err) && p.config.Broken != nil {
		p.config.Broken(err)
	}
}

// stop ends the port, unless it has ended: waits return err, and what waits for credits is freed.
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

// Close ends the port: waits return ErrClosed, and what nobody took is freed.
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

// now is the time that headers say.
func (p *Port) now() float64 {
	if p.config.Now != nil {
		return p.config.Now()
	}
	return time.Since(p.began).Seconds()
}
