package wire

import (
	"fmt"
	"sync"
)

// InProcess makes a carrier for each worker of one process. Memory changes hands: nothing is copied.
func InProcess(workers int) ([]Carrier, error) {
	h := &hub{lanes: map[between]*lane{}}
	return Locals("in-process", "memory changes hands", workers, func(l *Local) Carrier {
		return &handing{Local: l, hub: h}
	})
}

// inProcess makes the carrier for a worker's edges to itself.
func inProcess(rank int) Carrier {
	return &handing{Local: &Local{rank: rank}, hub: &hub{lanes: map[between]*lane{}}}
}

// hub is shared by the carriers of a process.
type hub struct {
	mu    sync.Mutex
	lanes map[between]*lane
}

// between identifies an edge, without its slots and class.
type between struct {
	way
	id uint32
}

// lane is the queue of an edge. It holds either sends that wait for receives, or receives that wait for sends.
type lane struct {
	edge   Edge
	mu     sync.Mutex
	posted [2][]post
}

// The sides of a lane.
const (
	sends = iota
	receives
)

// post is a posted send or receive of one frame.
type post struct {
	n    uint32
	b    *Buffer
	done func(error)
	by   *handing
}

// handing is a worker's carrier within a process, which hands memory over.
type handing struct {
	*Local
	hub    *hub
	handed sync.WaitGroup // counts its posted frames that another worker's goroutine is handing over
}

// Takes implements Carrier. Memory is only handed over, so every place is possible.
func (c *handing) Takes(int, Place) bool { return true }

// HandsOver implements Carrier.
func (c *handing) HandsOver(int) bool { return true }

func (h *hub) lane(e Edge) *lane {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := between{way{e.From, e.To}, e.ID}
	l := h.lanes[at]
	if l == nil {
		l = &lane{edge: e}
		h.lanes[at] = l
	}
	return l
}

func (c *handing) Send(_ uint32, e Edge, n uint32, frames []*Buffer, done func(error)) {
	done = Once(len(frames), done)
	for i, b := range frames {
		c.post(e, e.To, sends, post{n + uint32(i), b, done, c})
	}
}

func (c *handing) Recv(e Edge, n uint32, b *Buffer, done func(error)) {
	c.post(e, e.From, receives, post{n, b, done, c})
}

// post hands the frame over if its other side is posted already. Otherwise the frame waits in the queue.
func (c *handing) post(e Edge, peer, side int, own post) {
	l := c.hub.lane(e)
	l.mu.Lock()
	if err := c.Refusal(peer); err != nil {
		l.mu.Unlock()
		own.done(err)
		return
	}
	waiting := l.posted[1-side]
	if len(waiting) == 0 {
		l.posted[side] = append(l.posted[side], own)
		l.mu.Unlock()
		return
	}
	other := waiting[0]
	l.posted[1-side] = behindFirst(waiting)
	other.by.handed.Add(1)
	defer other.by.handed.Done()
	l.mu.Unlock()
	if side == sends {
		l.hand(own, other)
	} else {
		l.hand(other, own)
	}
}

// hand gives the sender's memory to the receiver. It calls `done` of the receive before `done` of the send.
func (l *lane) hand(send, recv post) {
	var err error
	switch sent, room := send.b.Bytes(), recv.b.Bytes(); {
	case send.n != recv.n:
		err = fmt.Errorf("wire: frame %d from worker %d to worker %d comes where %d is due", send.n, l.edge.From, l.edge.To,
			recv.n)
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

// behindFirst removes the first element and the queue's reference to it. An empty queue keeps its memory for reuse.
func behindFirst[T any](queue []T) []T {
	var none T
	queue[0] = none
	if len(queue) == 1 {
		return queue[:0]
	}
	return queue[1:]
}

// Fail ends everything that this worker has posted with another worker.
func (c *handing) Fail(rank int, err error) {
	c.Refuse(rank, err)
	c.end(err, func(peer int) bool { return peer == rank })
}

// Close ends all frames that this worker has posted. It waits for frames that are being handed over.
func (c *handing) Close() error {
	c.RefuseAll()
	c.end(ErrClosed, func(int) bool { return true })
	c.handed.Wait()
	return nil
}

// end ends what this worker has posted with the peers that pass the filter `with`.
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
		for side, worker := range [2]int{sends: l.edge.From, receives: l.edge.To} {
			if worker == c.rank {
				posts, l.posted[side] = append(posts, l.posted[side]...), nil
			}
		}
		l.mu.Unlock()
		for _, p := range posts {
			p.done(err)
		}
	}
}
