package wire

import (
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/millrace-ml/millrace/internal/crash"
)

// outEdge is the sender's end of an edge.
type outEdge struct {
	port *Port
	Edge

	mu      sync.Mutex
	queue   []*outgoing // messages that wait for credits, for their buffers, or for an earlier message
	credits uint32
	granted int    // slots for which credits were given by Open
	n       uint32 // number of the next frame
	pumping bool   // a goroutine is posting frames
	ended   bool   // nothing more is posted
}

// outgoing is a message on its way out.
type outgoing struct {
	frames []*Buffer // header, descriptions, buffers; only one frame where memory changes hands
	parts  []Buffer
	hands  bool // memory changes hands
	header Header
	events waiting
	done   func(error)

	frame Buffer // the first frame
	room  [HeaderBytes]byte
	long  [1]int64
	few   [3]*Buffer
}

// waiting says whether a message's buffers are complete.
type waiting uint8

const (
	unasked waiting = iota
	pending         // a goroutine waits for the buffers' events
	ready
)

// Send posts a message in the current epoch. The parts belong to the port until it calls `done`, once. If Send returns
// an error, it frees the parts and does not call `done`. Only one goroutine at a time may send on an edge.
func (p *Port) Send(e Edge, key uint64, step uint32, parts []Buffer, done func(error)) error {
	p.mu.Lock()
	out, err, epoch := p.out[end{e.To, e.ID}], p.err, p.epoch
	p.mu.Unlock()
	if err == nil && out == nil {
		err = fmt.Errorf("wire: worker %d sends on edge %d to worker %d, which is not open", p.Rank(), e.ID, e.To)
	}
	m := &outgoing{parts: parts, done: done}
	m.header = Header{Epoch: epoch, Key: key, Step: step, SentS: p.now(), Parts: parts}
	if err == nil {
		err = m.inFrames(p.of(e), e.To)
	}
	if err != nil {
		FreeAll(parts)
		return err
	}
	out.mu.Lock()
	if out.ended {
		out.mu.Unlock()
		FreeAll(parts)
		return p.Err()
	}
	out.queue = append(out.queue, m)
	p.sent.Add(m.header.Bytes())
	out.mu.Unlock()
	out.pump()
	return nil
}

// inFrames makes the frames of a message: one that hands everything over, or several whose bytes are copied.
func (m *outgoing) inFrames(c Carrier, to int) error {
	m.hands = c.HandsOver(to)
	m.frame = Buffer{DType: U8, own: true}
	m.frames = append(m.few[:0], &m.frame)
	if m.hands {
		m.frame.message = &m.header
		return m.header.check()
	}
	frame, rest, err := m.header.Encode(m.room[:0])
	if err != nil {
		return err
	}
	m.long[0] = int64(len(frame))
	m.frame.Data, m.frame.Shape = frame, m.long[:]
	if len(rest) > 0 {
		m.frames = append(m.frames, bytesBuffer(rest))
	}
	for i := range m.parts {
		b := &m.parts[i]
		if err := sendable(c, to, b); err != nil {
			return err
		}
		if b.Bytes() > 0 {
			m.frames = append(m.frames, b)
		}
	}
	return nil
}

// sendable returns an error if the carrier cannot read a buffer.
func sendable(c Carrier, to int, b *Buffer) error {
	if !c.Takes(to, b.Place) {
		return fmt.Errorf("wire: this carrier does not take %v; copy the buffer to the host first", b.Place.Memory)
	}
	if b.Place.Memory != Device && int64(len(b.Data)) != b.Bytes() {
		return fmt.Errorf("wire: a buffer of shape %v of %v has %d bytes of memory", b.Shape, b.DType, len(b.Data))
	}
	return nil
}

// bytesBuffer makes one of the port's own frames (header or credits).
func bytesBuffer(b []byte) *Buffer {
	return &Buffer{DType: U8, Shape: []int64{int64(len(b))}, Data: b, own: true}
}

// end returns the queued messages and takes no more.
func (e *outEdge) end() []*outgoing {
	e.mu.Lock()
	defer e.mu.Unlock()
	queue := e.queue
	e.queue, e.ended = nil, true
	return queue
}

// pump posts the messages at the front of the queue that have a credit and complete buffers, in order.
func (e *outEdge) pump() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.pumping {
		return // the pumping goroutine looks at the queue again
	}
	e.pumping = true
	for len(e.queue) > 0 && (e.Slots == 0 || e.credits > 0) {
		m := e.queue[0]
		if !e.ready(m) {
			break
		}
		e.queue = behindFirst(e.queue)
		if e.Slots > 0 {
			e.credits--
		}
		n := e.n
		e.n += uint32(len(m.frames))
		e.mu.Unlock()
		e.port.of(e.Edge).Send(m.header.Epoch, e.Edge, n, m.frames, func(err error) {
			if err != nil {
				e.port.breaks(err)
			}
			m.end(err)
		})
		e.mu.Lock()
	}
	e.pumping = false
}

// ready says whether all buffers of a message are complete. If not, pump runs again once they are. The caller holds mu.
func (e *outEdge) ready(m *outgoing) bool {
	if m.events != unasked {
		return m.events == ready
	}
	var events []Event
	for i := range m.parts {
		if r := m.parts[i].Ready; r != nil && !r.Done() {
			events = append(events, r)
		}
	}
	if len(events) == 0 {
		m.events = ready
		return true
	}
	m.events = pending
	e.port.waits.Go(crash.Caught(func() {
		for _, r := range events {
			if err := r.Wait(); err != nil {
				e.port.breaks(fmt.Errorf("wire: a buffer for worker %d: %w", e.To, err))
				return
			}
		}
		e.mu.Lock()
		m.events = ready
		e.mu.Unlock()
		e.pump()
	}))
	return false
}

// end frees the buffers and reports err, after the last frame or when nothing was sent.
func (m *outgoing) end(err error) {
	if !m.hands || m.frame.message != nil { // otherwise the receiver has the parts
		FreeAll(m.parts)
	}
	if m.done != nil {
		m.done(err)
	}
}

// creditor sends credits back to one worker. It sends one frame at a time, so that credit frames need no credits.
type creditor struct {
	port *Port
	edge Edge

	mu    sync.Mutex
	due   map[uint32]uint32 // credits to send, by the edge from that worker
	order []uint32          // the edges in `due`, in the order in which they were added
	n     uint32
	busy  bool // `frame` is on its way
	frame *Buffer
	list  [1]*Buffer
	sent  func(error)
}

func newCreditor(p *Port, e Edge) *creditor {
	c := &creditor{port: p, edge: e, due: map[uint32]uint32{}, frame: bytesBuffer(make([]byte, creditBytes))}
	c.list[0] = c.frame
	c.sent = func(err error) {
		if err != nil {
			c.port.breaks(err)
			return
		}
		c.mu.Lock()
		c.busy = false
		c.mu.Unlock()
		c.next()
	}
	return c
}

// creditBytes is the size of a credit frame: an edge and a number of credits.
const creditBytes = 8

func (c *creditor) add(edge, slots uint32) {
	c.mu.Lock()
	if c.due[edge] == 0 {
		c.order = append(c.order, edge)
	}
	c.due[edge] += slots
	c.mu.Unlock()
	c.next()
}

// next sends what is due, unless a frame is on its way.
func (c *creditor) next() {
	c.mu.Lock()
	if c.busy || len(c.order) == 0 {
		c.mu.Unlock()
		return
	}
	c.busy = true
	edge := c.order[0]
	c.order = behindFirst(c.order)
	binary.LittleEndian.PutUint32(c.frame.Data, edge)
	binary.LittleEndian.PutUint32(c.frame.Data[4:], c.due[edge])
	delete(c.due, edge)
	n := c.n
	c.n++
	c.mu.Unlock()
	c.port.of(c.edge).Send(0, c.edge, n, c.list[:], c.sent)
}
