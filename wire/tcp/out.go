package tcp

import (
	"bufio"
	"errors"
	"io"
	"net"
	"sync"

	"github.com/millrace-ml/millrace/wire"
)

// mostChunks is how many chunks are written at once, where they are small.
const mostChunks = 64

// target is what goes to one worker.
type target struct {
	mu      sync.Mutex
	more    *sync.Cond // something was posted, or err was set
	urgent  []*send    // credits, which go first
	queue   []*send
	open    map[*send]struct{} // whose done has not been called
	streams []*stream          // nil: nothing was posted yet
	err     error              // nothing more is sent
}

// send is a frame that is posted.
type send struct {
	tag    uint64
	data   []byte
	done   func(error)
	next   int64 // chunk that nobody has taken yet
	chunks int64
	busy   int  // chunks that are being written
	torn   bool // a chunk did not get out
}

// stream is one connection to a worker.
type stream struct {
	to      *target
	number  int
	conn    *Conn // nil until it is dialled
	writing bool
	failed  bool // nothing is written any more

	batch    []piece
	prefixes [mostChunks * prefixBytes]byte
	buffers  net.Buffers
	small    *bufio.Writer // makes one record of what is short, with TLS; nil without
}

// piece is a chunk of a frame.
type piece struct {
	of    *send
	index int64
}

func newTarget() *target {
	t := &target{open: map[*send]struct{}{}}
	t.more = sync.NewCond(&t.mu)
	return t
}

// begin makes the streams, where there are none; nil where there are.
func (t *target) begin(streams int) []*stream {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.streams != nil || t.err != nil {
		return nil
	}
	for i := range streams {
		t.streams = append(t.streams, &stream{to: t, number: i})
	}
	return t.streams
}

func (t *target) post(e wire.Edge, tag uint64, data []byte, done func(error)) {
	s := &send{tag: tag, data: data, done: done, chunks: chunksOf(int64(len(data)))}
	t.mu.Lock()
	if err := t.err; err != nil {
		t.mu.Unlock()
		done(err)
		return
	}
	t.open[s] = struct{}{}
	if e.Class == wire.Credits && s.chunks == 1 {
		t.urgent = append(t.urgent, s)
	} else {
		t.queue = append(t.queue, s)
	}
	t.more.Broadcast()
	t.mu.Unlock()
}

// take waits for chunks to write, of about chunkBytes together; nil once the target has ended. Streams but
// the first help with long frames alone, so that what is short comes in the order of its posting.
func (w *stream) take() []piece {
	t := w.to
	t.mu.Lock()
	defer t.mu.Unlock()
	w.batch = w.batch[:0]
	for t.err == nil {
		for size := int64(0); size < chunkBytes && len(w.batch) < mostChunks; {
			s := t.takes(w.number > 0)
			if s == nil {
				break
			}
			p := piece{s, s.next}
			s.next++
			s.busy++
			begin, end := p.chunk().span()
			size += end - begin
			w.batch = append(w.batch, p)
		}
		if len(w.batch) > 0 {
			w.writing = true
			return w.batch
		}
		t.more.Wait()
	}
	return nil
}

// takes is the frame whose chunk is due, which has left its queue where that is the last. The caller holds
// mu.
func (t *target) takes(long bool) *send {
	if !long && len(t.urgent) > 0 {
		s := t.urgent[0]
		t.urgent = without(t.urgent, 0)
		return s
	}
	for i, s := range t.queue {
		if long && s.chunks == 1 {
			continue
		}
		if s.next == s.chunks-1 {
			t.queue = without(t.queue, i)
		}
		return s
	}
	return nil
}

// without is a queue without one of its frames.
func without(queue []*send, i int) []*send {
	copy(queue[1:i+1], queue[:i])
	queue[0] = nil
	return queue[1:]
}

func (p piece) chunk() chunk {
	return chunk{tag: p.of.tag, total: int64(len(p.of.data)), index: uint32(p.index)}
}

// write writes a batch in one go.
func (w *stream) write(batch []piece) error {
	room := w.prefixes[:0]
	w.buffers = w.buffers[:0]
	for _, p := range batch {
		at := len(room)
		room = appendPrefix(room, kindChunk, p.chunk())
		w.buffers = append(w.buffers, room[at:])
		if begin, end := p.chunk().span(); end > begin {
			w.buffers = append(w.buffers, p.of.data[begin:end])
		}
	}
	if w.small == nil {
		all := w.buffers // WriteTo shortens it
		_, err := all.WriteTo(w.conn.Conn)
		return w.conn.why(err)
	}
	for _, b := range w.buffers {
		if _, err := w.small.Write(b); err != nil {
			return err
		}
	}
	return w.small.Flush()
}

// written says that nobody reads the memory of a batch any more.
func (w *stream) written(batch []piece, err error) {
	t := w.to
	var over []*send
	t.mu.Lock()
	w.writing, w.failed = false, err != nil
	for _, p := range batch {
		s := p.of
		s.busy--
		s.torn = s.torn || err != nil
		if whole := s.next == s.chunks && !s.torn; s.busy == 0 && (whole || t.err != nil) {
			delete(t.open, s)
			over = append(over, s)
		}
	}
	ended := t.err
	t.mu.Unlock()
	clear(batch) // whose memory is not this worker's any more
	clear(w.buffers)
	for _, s := range over {
		if s.torn || s.next < s.chunks {
			s.done(ended)
		} else {
			s.done(nil)
		}
	}
}

// run writes what is posted until the target ends.
func (w *stream) run() error {
	for {
		batch := w.take()
		if batch == nil {
			w.conn.leave()
			return nil
		}
		err := w.write(batch)
		w.written(batch, err)
		if err != nil {
			return err
		}
	}
}

// up says that a stream is dialled; false where the target has ended.
func (w *stream) up(c *Conn) bool {
	w.to.mu.Lock()
	defer w.to.mu.Unlock()
	if w.to.err != nil {
		return false
	}
	if w.conn = c; c.Conn != c.raw {
		w.small = bufio.NewWriterSize(c, readBytes)
	}
	return true
}

// errTalks is a receiver that sends.
var errTalks = errors.New("it sends frames on a connection that it is to receive on")

// heed waits for the receiver to leave, or for the connection to end.
func (w *stream) heed() error {
	prefix := make([]byte, prefixBytes)
	if _, err := io.ReadFull(w.conn, prefix); err != nil {
		return err
	}
	_, leaves, err := readPrefix(prefix)
	if err == nil && !leaves {
		err = errTalks
	}
	return err
}

// end ends every send, posted or to come. What is being written ends with its write.
func (t *target) end(err error) {
	t.mu.Lock()
	if t.err != nil {
		t.mu.Unlock()
		return
	}
	t.err = err
	t.urgent, t.queue = nil, nil
	var over []*send
	for s := range t.open {
		if s.busy == 0 {
			delete(t.open, s)
			over = append(over, s)
		}
	}
	var cut []*Conn
	for _, w := range t.streams {
		if w.writing || w.failed {
			cut = append(cut, w.conn)
		}
	}
	t.more.Broadcast()
	t.mu.Unlock()
	for _, c := range cut {
		c.cut(err)
	}
	for _, s := range over {
		s.done(err)
	}
}

// ways are the connections that there are.
func (t *target) ways() []*Conn {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []*Conn
	for _, w := range t.streams {
		if w.conn != nil {
			all = append(all, w.conn)
		}
	}
	return all
}
