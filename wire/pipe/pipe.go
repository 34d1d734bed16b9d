// Package pipe is a carrier that copies bytes through pipes of the operating system.
//
// It works within one process, but moves bytes as a carrier between processes must. Each directed pair of workers
// has a pipe. In it the frames of all edges follow each other, each after its tag and length. Tests use this
// carrier, and so does train if MILLRACE_CARRIER names it, to show that nothing depends on memory that changes
// hands.
//
// In: frames in host memory. Out: the same bytes in the receiver's memory. A frame without a posted receive is kept
// until one is posted. A pipe whose other end is gone reports nothing: sends and receives stay posted until Fail or
// Close, since only the control connection decides who is dead.
package pipe

import (
	"encoding/binary"
	"fmt"
	"os"
	"slices"
	"sync"

	"github.com/millrace-ml/millrace/internal/crash"
	"github.com/millrace-ml/millrace/wire"
)

// New makes a carrier for each worker of one process.
func New(workers int) ([]wire.Carrier, error) {
	h := &hub{ways: map[pair]*way{}, gone: map[int]bool{}}
	return wire.Locals("pipe", "a pipe of this process", workers, func(l *wire.Local) wire.Carrier {
		return &carrier{Local: l, hub: h, out: map[int]*writer{}, in: map[int]*reader{}}
	})
}

type pair struct{ from, to int }

// way holds the two ends of a pipe.
type way struct{ read, write *os.File }

// hub makes each pipe when either side first needs it.
type hub struct {
	mu   sync.Mutex
	ways map[pair]*way
	gone map[int]bool // workers whose carriers are closed
}

func (h *hub) way(p pair) (*way, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if w := h.ways[p]; w != nil {
		return w, nil
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("pipe: from worker %d to worker %d: %w", p.from, p.to, err)
	}
	h.ways[p] = &way{r, w}
	for rank := range h.gone {
		h.ways[p].close(p, rank)
	}
	return h.ways[p], nil
}

// close closes a worker's ends of all pipes, including pipes that it has never used.
func (h *hub) close(rank int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.gone[rank] = true
	for p, w := range h.ways {
		w.close(p, rank)
	}
}

// close closes a worker's ends of a pipe.
func (w *way) close(p pair, rank int) {
	if p.from == rank {
		w.write.Close()
	}
	if p.to == rank {
		w.read.Close()
	}
}

type carrier struct {
	*wire.Local
	hub *hub

	mu      sync.Mutex
	out     map[int]*writer // by peer
	in      map[int]*reader
	running sync.WaitGroup
}

// prefixBytes is the size of the tag and the length before each frame.
const prefixBytes = 16

// frame is a posted frame.
type frame struct {
	edge wire.Edge
	tag  uint64
	b    *wire.Buffer
	done func(error)
}

func (c *carrier) Send(epoch uint32, e wire.Edge, n uint32, frames []*wire.Buffer, done func(error)) {
	done = wire.Once(len(frames), done)
	for i, b := range frames {
		w, err := c.writer(e.To)
		if err == nil {
			err = w.add(frame{e, wire.TagOf(epoch, e.ID, n+uint32(i)), b, done})
		}
		if err != nil {
			done(err)
		}
	}
}

func (c *carrier) Recv(e wire.Edge, n uint32, b *wire.Buffer, done func(error)) {
	r, err := c.reader(e.From)
	if err == nil && int64(len(b.Data)) != b.Bytes() {
		err = fmt.Errorf("pipe: a receive of %d bytes is posted with %d bytes of memory", b.Bytes(), len(b.Data))
	}
	if err != nil {
		done(err)
		return
	}
	r.post(frame{e, wire.TagOf(0, e.ID, n), b, done})
}

func (c *carrier) writer(peer int) (*writer, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.Refusal(peer); err != nil {
		return nil, err
	}
	if c.out[peer] == nil {
		way, err := c.hub.way(pair{c.Rank(), peer})
		if err != nil {
			return nil, err
		}
		w := &writer{file: way.write, more: make(chan struct{}, 1), count: c.Count}
		c.out[peer] = w
		c.running.Go(crash.Caught(w.run))
	}
	return c.out[peer], nil
}

func (c *carrier) reader(peer int) (*reader, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.Refusal(peer); err != nil {
		return nil, err
	}
	if c.in[peer] == nil {
		way, err := c.hub.way(pair{peer, c.Rank()})
		if err != nil {
			return nil, err
		}
		r := &reader{file: way.read, lanes: map[uint32]*lane{}, stopped: make(chan struct{}), count: c.Count}
		c.in[peer] = r
		c.running.Go(crash.Caught(r.run))
	}
	return c.in[peer], nil
}

// Fail ends all sends and receives that are posted with a worker.
func (c *carrier) Fail(rank int, err error) {
	c.Refuse(rank, err)
	c.mu.Lock()
	w, r := c.out[rank], c.in[rank]
	c.mu.Unlock()
	if w != nil {
		w.end(err)
	}
	if r != nil {
		r.end(err)
	}
}

// Close ends all posted sends and receives.
func (c *carrier) Close() error {
	c.RefuseAll()
	c.mu.Lock()
	out, in := c.out, c.in
	c.out, c.in = map[int]*writer{}, map[int]*reader{}
	c.mu.Unlock()
	for _, w := range out {
		w.end(wire.ErrClosed)
	}
	for _, r := range in {
		r.end(wire.ErrClosed)
	}
	c.running.Wait()
	c.hub.close(c.Rank())
	return nil
}

// writer writes the frames for one peer, in the order in which they were posted.
type writer struct {
	file  *os.File
	more  chan struct{} // capacity 1: signals a change
	count func(bytes int)

	mu    sync.Mutex
	queue []frame
	err   error // not nil: nothing more is written
}

func (w *writer) add(f frame) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return w.err
	}
	w.queue = append(w.queue, f)
	w.ring()
	return nil
}

func (w *writer) ring() {
	select {
	case w.more <- struct{}{}:
	default:
	}
}

func (w *writer) run() {
	broken := false // the peer's end is gone; frames wait for Fail or Close
	for range w.more {
		for {
			w.mu.Lock()
			if w.err != nil {
				left, err := w.queue, w.err
				w.queue = nil
				w.mu.Unlock()
				for _, f := range left {
					f.done(err)
				}
				return
			}
			if len(w.queue) == 0 || broken {
				w.mu.Unlock()
				break
			}
			f := w.queue[0]
			w.mu.Unlock()
			if err := w.write(f); err != nil {
				broken = true
				continue
			}
			w.mu.Lock()
			w.queue = slices.Delete(w.queue, 0, 1)
			w.mu.Unlock()
			f.done(nil)
		}
	}
}

func (w *writer) write(f frame) error {
	prefix := binary.LittleEndian.AppendUint64(make([]byte, 0, prefixBytes), f.tag)
	prefix = binary.LittleEndian.AppendUint64(prefix, uint64(len(f.b.Data)))
	if _, err := w.file.Write(prefix); err != nil {
		return err
	}
	for part := range slices.Chunk(f.b.Data, countedBytes) {
		n, err := w.file.Write(part)
		if w.count(n); err != nil {
			return err
		}
	}
	return nil
}

// countedBytes is how many bytes of a frame are written before they are counted. A pipe has room for several times as
// many.
const countedBytes = 1 << 14

func (w *writer) end(err error) {
	w.mu.Lock()
	if w.err == nil {
		w.err = err
	}
	w.mu.Unlock()
	w.file.Close()
	w.ring()
}
