package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
)

// inEdge is the receiver's end of an edge.
type inEdge struct {
	port *Port
	Edge
	carrier Carrier
	hands   bool          // memory changes hands
	here    chan struct{} // for collectives: signals that `queue` has grown
	queue   []Arrival     // for collectives; guarded by the port's mu

	mu      sync.Mutex
	n       uint32      // number of the next frame to post a receive for
	frame   *Buffer     // receives the next header or credit
	told    func(error) // is called when `frame` has been received
	got     []error     // results of received headers or credits that are not read yet, at most two
	reading bool        // whether a goroutine is handling the results in `got`
}

// recv posts a receive for the edge's next frame.
func (e *inEdge) recv(b *Buffer, done func(error)) {
	e.mu.Lock()
	n := e.n
	e.n++
	e.mu.Unlock()
	e.carrier.Recv(e.Edge, n, b, done)
}

// room makes a buffer for receiving a header or credit.
func (e *inEdge) room(size int) *Buffer {
	if e.hands {
		return &Buffer{DType: U8, Shape: []int64{int64(size)}, own: true}
	}
	return bytesBuffer(make([]byte, size))
}

// begin posts the receive of the edge's first frame.
func (e *inEdge) begin() {
	if e.told = e.header; e.Class == Credits {
		e.frame, e.told = e.room(creditBytes), e.credit
	} else {
		e.frame = e.room(HeaderBytes)
	}
	e.post()
}

// post posts the receive of the next header or credit, in the memory of the header or credit just read.
func (e *inEdge) post() { e.recv(e.frame, e.told) }

// header reads a header. A receive may complete as soon as it is posted, so header also reads, in a loop, the headers
// that come meanwhile.
func (e *inEdge) header(err error) {
	e.mu.Lock()
	e.got = append(e.got, err)
	if e.reading {
		e.mu.Unlock()
		return
	}
	e.reading = true
	for len(e.got) > 0 {
		err := e.got[0]
		e.got = behindFirst(e.got)
		e.mu.Unlock()
		if err == nil {
			err = e.read()
		}
		if err != nil {
			e.port.breaks(err)
		}
		e.mu.Lock()
	}
	e.reading = false
	e.mu.Unlock()
}

// read posts receives for the frames that a header announces, and for the next header.
func (e *inEdge) read() error {
	if e.hands {
		if e.frame.message == nil {
			return e.damaged(errors.New("a frame that hands no message over"))
		}
		h := *e.frame.message
		e.frame.message = nil
		e.post()
		e.port.complete(Arrival{e.Edge, h})
		return nil
	}
	long, err := RestOf(e.frame.Data)
	if err != nil {
		return e.damaged(err)
	}
	if long == 0 {
		return e.bodies(nil)
	}
	rest := e.room(long)
	e.recv(rest, func(err error) {
		if err == nil {
			err = e.bodies(rest.Data)
		}
		if err != nil {
			e.port.breaks(err)
		}
	})
	return nil
}

func (e *inEdge) damaged(err error) error {
	return fmt.Errorf("from worker %d to worker %d: %w", e.From, e.To, err)
}

// bodies takes memory for a message and posts receives for its buffers.
func (e *inEdge) bodies(rest []byte) error {
	h, err := Decode(e.frame.Data, rest)
	if err != nil {
		return e.damaged(err)
	}
	if err := e.memory(h.Parts); err != nil {
		FreeAll(h.Parts)
		return fmt.Errorf("wire: room for a message from worker %d to worker %d: %w", e.From, e.To, err)
	}
	m := &arriving{edge: e, header: h, left: 1}
	here := m.here
	for i := range h.Parts {
		if h.Parts[i].Bytes() > 0 {
			m.left++
		}
	}
	for i := range h.Parts {
		if h.Parts[i].Bytes() > 0 {
			e.recv(&h.Parts[i], here)
		}
	}
	m.here(nil)
	e.post() // last, because the next message may be complete immediately, and must not be reported before this one
	return nil
}

// memory allocates the parts of a message.
func (e *inEdge) memory(parts []Buffer) error {
	if e.Class == Transfers && e.port.config.Room != nil {
		return e.port.config.Room(e.Edge, parts)
	}
	for i := range parts {
		parts[i].Data = make([]byte, parts[i].Bytes())
	}
	return nil
}

// arriving is a message whose header has arrived.
type arriving struct {
	edge   *inEdge
	header Header

	mu   sync.Mutex
	left int // buffers that have not arrived, plus one until all receives are posted
	err  error
}

// here counts a buffer that has arrived. The last buffer completes the message.
func (m *arriving) here(err error) {
	m.mu.Lock()
	m.left--
	if m.err == nil {
		m.err = err
	}
	last, failed := m.left == 0, m.err
	m.mu.Unlock()
	if err != nil {
		m.edge.port.breaks(err)
	}
	switch {
	case !last:
	case failed != nil:
		FreeAll(m.header.Parts)
	default:
		m.edge.port.complete(Arrival{m.edge.Edge, m.header})
	}
}

// credit reads a credit frame and gives the credits to the edge's sender, which is this worker.
func (e *inEdge) credit(err error) {
	if err == nil && len(e.frame.Data) != creditBytes {
		err = fmt.Errorf("a credit of %d bytes", len(e.frame.Data))
	}
	if err != nil {
		e.port.breaks(err)
		return
	}
	edge, slots := binary.LittleEndian.Uint32(e.frame.Data), binary.LittleEndian.Uint32(e.frame.Data[4:])
	if edge >= MaxEdges {
		e.port.breaks(fmt.Errorf("wire: worker %d gives credits for edge %d from worker %d; there are at most %d", e.From,
			edge, e.To, MaxEdges))
		return
	}
	to := end{e.From, edge}
	e.port.mu.Lock()
	out := e.port.out[to]
	if out == nil {
		e.port.early[to] += slots // the edge is not open yet
		e.port.mu.Unlock()
		e.post()
		return
	}
	e.port.mu.Unlock()
	out.give(slots)
	e.post()
	out.pump()
	if f := e.port.config.Credited; f != nil && out.Class == Transfers {
		f(out.Edge, int(slots))
	}
}

func (e *outEdge) give(slots uint32) {
	e.mu.Lock()
	e.credits += slots
	e.mu.Unlock()
}

// grant adds credits for slots that the edge did not have before.
func (e *outEdge) grant(slots int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if more := slots - e.granted; more > 0 {
		e.credits += uint32(more)
		e.granted = slots
	}
}
