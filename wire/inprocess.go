package wire

import (
	"fmt"
	"sync"
)

// InProcess makes the carriers of workers in one process. Memory changes hands: nothing is copied.
func InProcess(workers int) ([]Carrier, error) {
	if workers < 1 {
		return nil, fmt.Errorf("wire: carriers of %d workers; there must be at least 1", workers)
	}
	h := &hub{lanes: map[uint32]*lane{}}
	all := make([]Carrier, workers)
	for rank := range all {
		all[rank] = &handing{hub: h, rank: rank}
	}
	return all, nil
}

// inProcess is the carrier of a worker's edges to itself.
func inProcess(rank int) Carrier { return &handing{hub: &hub{lanes: map[uint32]*lane{}}, rank: rank} }

// hub is what the carriers of a process share.
type hub struct {
	mu    sync.Mutex
	lanes map[uint32]*lane // by edge
}

// lane is an edge: frames posted on one side that wait for the other.
type lane struct {
	edge         Edge
	mu           sync.Mutex
	sends, recvs []post
}

// post is one side of a frame.
type post struct {
	n    uint32
	b    *Buffer
	done func(error)
}

// handing is a worker's carrier within a process.
type handing struct {
	hub  *hub
	rank int

	mu     sync.Mutex
	failed map[int]error
	closed bool
}

const engineInProcess = "in-process"

func (c *handing) Rank() int          { return c.rank }
func (c *handing) Takes(Place) bool   { return true }
func (c *handing) HandsOver() bool    { return true }
func (c *handing) Security() Security { return InsideProcess }

// Address says which process, and which run of it, the carrier is of.
func (c *handing) Address() Address {
	return Address{Engine: engineInProcess, Version: "1", Data: fmt.Appendf(nil, "%p", c.hub)}
}

func (c *handing) Connect(rank int, a Address) error {
	own := c.Address()
	if err := a.Check(own); err != nil {
		return err
	}
	if string(a.Data) != string(own.Data) {
		return fmt.Errorf("wire: worker %d is not of this process", rank)
	}
	return nil
}

func (c *handing) Describe(e Edge) string {
	return fmt.Sprintf("worker %d to %d: memory changes hands", e.From, e.To)
}

// refusal is why nothing may be posted with a worker.
func (c *handing) refusal(rank int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return ErrClosed
	}
	return c.failed[rank]
}

func (c *handing) lane(e Edge) *lane {
	c.hub.mu.Lock()
	defer c.hub.mu.Unlock()
	l := c.hub.lanes[e.ID]
	if l == nil {
		l = &lane{edge: e}
		c.hub.lanes[e.ID] = l
	}
	return l
}

func (c *handing) Send(_ uint32, e Edge, n uint32, b *Buffer, done func(error)) {
	l := c.lane(e)
	l.mu.Lock()
	if err := c.refusal(e.To); err != nil {
		l.mu.Unlock()
		done(err)
		return
	}
	send := post{n, b, done}
	if len(l.recvs) == 0 {
		l.sends = append(l.sends, send)
		l.mu.Unlock()
		return
	}
	recv := l.recvs[0]
	l.recvs = behindFirst(l.recvs)
	l.mu.Unlock()
	l.hand(send, recv)
}

func (c *handing) Recv(e Edge, n uint32, b *Buffer, done func(error)) {
	l := c.lane(e)
	l.mu.Lock()
	if err := c.refusal(e.From); err != nil {
		l.mu.Unlock()
		done(err)
		return
	}
	recv := post{n, b, done}
	if len(l.sends) == 0 {
		l.recvs = append(l.recvs, recv)
		l.mu.Unlock()
		return
	}
	send := l.sends[0]
	l.sends = behindFirst(l.sends)
	l.mu.Unlock()
	l.hand(send, recv)
}

// hand gives the sender's memory to the receiver, who is told first.
func (l *lane) hand(send, recv post) {
	var err error
	switch sent, room := send.b.Bytes(), recv.b.Bytes(); {
	case send.n != recv.n:
		err = fmt.Errorf("wire: frame %d from worker %d to worker %d comes where %d is due", send.n, l.edge.From, l.edge.To, recv.n)
	case send.b.message != nil:
		recv.b.message, send.b.message = send.b.message, nil
	case sent != room:
		err = &LengthError{l.edge, send.n, sent, room}
	default:
		recv.b.Data, recv.b.Place, recv.b.Ready, recv.b.Owner = send.b.Data, send.b.Place, send.b.Ready, send.b.Owner
		send.b.Owner = nil
	}
	recv.done(err)
	send.done(err)
}

// behindFirst is a queue without its first, with its memory where that was the last.
func behindFirst[T any](queue []T) []T {
	if len(queue) > 1 {
		return queue[1:]
	}
	clear(queue)
	return queue[:0]
}

// Fail ends what this worker has posted with another.
func (c *handing) Fail(rank int, err error) {
	c.mu.Lock()
	if c.failed == nil {
		c.failed = map[int]error{}
	}
	if c.failed[rank] == nil {
		c.failed[rank] = err
	}
	c.mu.Unlock()
	c.end(err, func(peer int) bool { return peer == rank })
}

// end ends what this worker has posted with some others.
func (c *handing) end(err error, with func(peer int) bool) {
	c.hub.mu.Lock()
	var lanes []*lane
	for _, l := range c.hub.lanes {
		if l.edge.From == c.rank && with(l.edge.To) || l.edge.To == c.rank && with(l.edge.From) {
			lanes = append(lanes, l)
		}
	}
	c.hub.mu.Unlock()
	for _, l := range lanes {
		var posts []post
		l.mu.Lock()
		if l.edge.From == c.rank {
			posts, l.sends = append(posts, l.sends...), nil
		}
		if l.edge.To == c.rank {
			posts, l.recvs = append(posts, l.recvs...), nil
		}
		l.mu.Unlock()
		for _, p := range posts {
			p.done(err)
		}
	}
}

// Close ends all that this worker has posted.
func (c *handing) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.end(ErrClosed, func(int) bool { return true })
	return nil
}
