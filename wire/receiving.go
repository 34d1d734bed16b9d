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
	here    chan struct{} // of a collective: queue has grown
	queue   []Arrival     // of a collective; the port's mu guards it

	mu      sync.Mutex
	n       uint32 // of the next frame to post
	got     []incoming
	reading bool        // somebody reads headers
	frame   Buffer      // where memory changes hands: what the next message comes in
	told    func(error) // and what is told
}

// incoming is a header frame, or why there is none.
type incoming struct {
	frame *Buffer
	err   error
}

// recv posts a frame.
func (e *inEdge) recv(b *Buffer, done func(error)) {
	e.mu.Lock()
	n := e.n
	e.n++
	e.mu.Unlock()
	e.carrier.Recv(e.Edge, n, b, done)
}

// room is a frame of the port's own to be received.
func (e *inEdge) room(size int) *Buffer {
	if e.hands {
		return &Buffer{DType: U8, Shape: []int64{int64(size)}, own: true}
	}
	return bytesBuffer(make([]byte, size))
}

// post waits for the next header.
func (e *inEdge) post() {
	if e.hands {
		if e.told == nil {
			e.frame = Buffer{DType: U8, own: true}
			e.told = func(err error) { e.header(incoming{&e.frame, err}) }
		}
		e.recv(&e.frame, e.told)
		return
	}
	frame := e.room(HeaderBytes)
	e.recv(frame, func(err error) { e.header(incoming{frame, err}) })
}

// header reads a header, and those that come meanwhile: posting a receive may complete it at once.
func (e *inEdge) header(in incoming) {
	e.mu.Lock()
	e.got = append(e.got, in)
	if e.reading {
		e.mu.Unlock()
		return
	}
	e.reading = true
	for len(e.got) > 0 {
		in := e.got[0]
		e.got = behindFirst(e.got)
		e.mu.Unlock()
		if err := e.read(in); err != nil {
			e.port.breaks(err)
		}
		e.mu.Lock()
	}
	e.reading = false
	e.mu.Unlock()
}

// read posts receives for what a header says, and for the next header behind it.
func (e *inEdge) read(in incoming) error {
	if in.err != nil {
		return in.err
	}
	if e.hands {
		if in.frame.message == nil {
			return e.damaged(errors.New("a frame that hands no message over"))
		}
		h := *in.frame.message
		in.frame.message = nil
		e.post()
		e.port.complete(Arrival{e.Edge, h})
		return nil
	}
	long, err := RestOf(in.frame.Data)
	if err != nil {
		return e.damaged(err)
	}
	if long == 0 {
		return e.bodies(in.frame, nil)
	}
	rest := e.room(long)
	e.recv(rest, func(err error) {
		if err == nil {
			err = e.bodies(in.frame, rest.Data)
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

// bodies takes memory for a message and posts its buffers' receives.
func (e *inEdge) bodies(frame *Buffer, rest []byte) error {
	h, err := Decode(frame.Data, rest)
	if err != nil {
		return e.damaged(err)
	}
	if err := e.memory(h.Parts); err != nil {
		FreeAll(h.Parts)
		return fmt.Errorf("wire: room for a message from worker %d to worker %d: %w", e.From, e.To, err)
	}
	m := &arriving{edge: e, header: h, left: 1}
	for i := range h.Parts {
		if h.Parts[i].Bytes() > 0 {
			m.left++
		}
	}
	for i := range h.Parts {
		if h.Parts[i].Bytes() > 0 {
			e.recv(&h.Parts[i], m.here)
		}
	}
	e.post()
	m.here(nil)
	return nil
}

// memory takes room for the parts of a message.
func (e *inEdge) memory(parts []Buffer) error {
	if e.Class == Transfers && e.port.config.Room != nil {
		return e.port.config.Room(e.Edge, parts)
	}
	for i := range parts {
		parts[i].Data = make([]byte, parts[i].Bytes())
	}
	return nil
}

// arriving is a message whose header has come.
type arriving struct {
	edge   *inEdge
	header Header

	mu   sync.Mutex
	left int // buffers, and one more until all receives are posted
	err  error
}

// here counts a buffer that has come.
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

// listen takes credits.
func (e *inEdge) listen() {
	frame := e.room(creditBytes)
	e.recv(frame, func(err error) {
		if err == nil && len(frame.Data) != creditBytes {
			err = fmt.Errorf("a credit of %d bytes", len(frame.Data))
		}
		if err != nil {
			e.port.breaks(err)
			return
		}
		edge, slots := binary.LittleEndian.Uint32(frame.Data), binary.LittleEndian.Uint32(frame.Data[4:])
		e.port.mu.Lock()
		out := e.port.out[edge]
		if out == nil && edge < MaxEdges {
			e.port.early[edge] += slots // its Open comes
			e.port.mu.Unlock()
			e.listen()
			return
		}
		e.port.mu.Unlock()
		if out == nil || out.To != e.From {
			e.port.breaks(fmt.Errorf("wire: worker %d gives credits for edge %d, which is none from worker %d to it", e.From,
				edge, e.To))
			return
		}
		out.give(slots)
		e.listen()
		out.pump()
		if f := e.port.config.Credited; f != nil && out.Class == Transfers {
			f(out.Edge, int(slots))
		}
	})
}

// give adds credits.
func (e *outEdge) give(slots uint32) {
	e.mu.Lock()
	e.credits += slots
	e.mu.Unlock()
}

// grant adds credits for slots that the edge has had none for.
func (e *outEdge) grant(slots int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if more := slots - e.granted; more > 0 {
		e.credits += uint32(more)
		e.granted = slots
	}
}
