// Package blocking is a carrier that blocks and has no tags.
//
// On each edge a send blocks until the receiver takes the frame. Frames must be received strictly in the order in which
// they were posted. A communicator of NCCL works the same way: each side counts its frames by itself, and a frame out
// of turn is written to the wrong buffer. Tests use this carrier, and so does train if MILLRACE_CARRIER names it. A run
// that finishes with this carrier shows that every Program keeps to the order of its edges, and that no message waits
// for another message that is itself blocked.
//
// In: frames in host memory. Out: the same bytes in the receiver's memory. Epochs are ignored, and frame numbers are
// used only in errors.
package blocking

import (
	"fmt"
	"slices"
	"sync"

	"github.com/millrace-ml/millrace/internal/crash"
	"github.com/millrace-ml/millrace/wire"
)

// New makes a carrier for each worker of one process.
func New(workers int) ([]wire.Carrier, error) {
	h := &hub{meet: map[edge]chan *offer{}}
	return wire.Locals("blocking", "sends that block, without tags", workers, func(l *wire.Local) wire.Carrier {
		return &carrier{Local: l, hub: h, sides: map[edge]*side{}}
	})
}

// hub is where the two sides of an edge meet.
type hub struct {
	mu   sync.Mutex
	meet map[edge]chan *offer
}

// edge identifies a wire.Edge without its slots and class.
type edge struct {
	from, to int
	id       uint32
}

func (h *hub) at(e edge) chan *offer {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.meet[e] == nil {
		h.meet[e] = make(chan *offer)
	}
	return h.meet[e]
}

// offer is a frame whose sender blocks until the frame is taken.
type offer struct {
	data  []byte
	taken chan error // capacity 1
}

type carrier struct {
	*wire.Local
	hub *hub

	mu      sync.Mutex
	sides   map[edge]*side
	running sync.WaitGroup
}

func (c *carrier) Send(_ uint32, e wire.Edge, n uint32, frames []*wire.Buffer, done func(error)) {
	done = wire.Once(len(frames), done)
	for i, b := range frames {
		c.post(e, e.To, (*side).send, frame{n + uint32(i), b, done})
	}
}

func (c *carrier) Recv(e wire.Edge, n uint32, b *wire.Buffer, done func(error)) {
	if int64(len(b.Data)) != b.Bytes() {
		done(fmt.Errorf("blocking: a receive of %d bytes is posted with %d bytes of memory", b.Bytes(), len(b.Data)))
		return
	}
	c.post(e, e.From, (*side).receive, frame{n, b, done})
}

// frame is a posted frame. Its number is only for errors.
type frame struct {
	n    uint32
	b    *wire.Buffer
	done func(error)
}

// post queues a frame on this worker's side of an edge.
func (c *carrier) post(e wire.Edge, peer int, do func(*side, frame) error, f frame) {
	c.mu.Lock()
	if err := c.Refusal(peer); err != nil {
		c.mu.Unlock()
		f.done(err)
		return
	}
	on := edge{e.From, e.To, e.ID}
	s := c.sides[on]
	if s == nil {
		s = &side{edge: e, peer: peer, meet: c.hub.at(on), more: make(chan struct{}, 1), stopped: make(chan struct{}),
			do: do}
		c.sides[on] = s
		c.running.Go(crash.Caught(s.run))
	}
	c.mu.Unlock()
	s.add(f)
}

// Fail ends all sends and receives that are posted with a worker.
func (c *carrier) Fail(rank int, err error) {
	c.Refuse(rank, err)
	c.end(err, func(peer int) bool { return peer == rank })
}

// Close ends all posted sends and receives.
func (c *carrier) Close() error {
	c.RefuseAll()
	c.end(wire.ErrClosed, func(int) bool { return true })
	c.running.Wait()
	return nil
}

// end stops the sides whose peer the filter `with` accepts.
func (c *carrier) end(err error, with func(peer int) bool) {
	c.mu.Lock()
	var sides []*side
	for _, s := range c.sides {
		if with(s.peer) {
			sides = append(sides, s)
		}
	}
	c.mu.Unlock()
	for _, s := range sides {
		s.stop(err)
	}
}

// side is one worker's end of an edge. One goroutine sends or receives its posted frames in turn.
type side struct {
	edge    wire.Edge
	peer    int
	meet    chan *offer
	more    chan struct{} // capacity 1: signals that `queue` has grown
	stopped chan struct{} // closed by the method `stop`
	do      func(*side, frame) error

	mu    sync.Mutex
	queue []frame
	err   error // why the side was stopped
}

func (s *side) add(f frame) {
	s.mu.Lock()
	if err := s.err; err != nil {
		s.mu.Unlock()
		f.done(err)
		return
	}
	s.queue = append(s.queue, f)
	s.mu.Unlock()
	select {
	case s.more <- struct{}{}:
	default:
	}
}

func (s *side) stop(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
		close(s.stopped)
	}
}

func (s *side) reason() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

func (s *side) run() {
	for {
		s.mu.Lock()
		if len(s.queue) > 0 {
			f := s.queue[0]
			s.queue = slices.Delete(s.queue, 0, 1)
			err := s.err
			s.mu.Unlock()
			if err == nil {
				err = s.do(s, f)
			}
			f.done(err)
			continue
		}
		over := s.err != nil
		s.mu.Unlock()
		if over {
			return
		}
		select {
		case <-s.more:
		case <-s.stopped:
		}
	}
}

// send blocks until a receive takes the frame.
func (s *side) send(f frame) error {
	o := &offer{data: f.b.Data, taken: make(chan error, 1)}
	select {
	case s.meet <- o:
		return <-o.taken // the receiver is copying the frame
	case <-s.stopped:
		return s.reason()
	}
}

// receive blocks until a sender offers a frame.
func (s *side) receive(f frame) error {
	select {
	case o := <-s.meet:
		var err error
		if len(o.data) != len(f.b.Data) {
			err = &wire.LengthError{Edge: s.edge, N: f.n, Sent: int64(len(o.data)), Room: int64(len(f.b.Data))}
		} else {
			copy(f.b.Data, o.data)
		}
		o.taken <- err
		return err
	case <-s.stopped:
		return s.reason()
	}
}
