package tcp

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/millrace-ml/millrace/wire"
	"github.com/millrace-ml/millrace/wire/tcp/memory"
)

// readBytes is the size of a connection's read buffer. Longer pieces bypass this buffer and are read directly into
// their receive.
const readBytes = 16 << 10

// copyBytes is how many bytes of another process's memory are read at a time.
const copyBytes = 1 << 20

// errEnded is returned by readers of a source that has ended.
var errEnded = errors.New("tcp: ended")

// source receives what one worker sends: over several connections (streams), for several edges.
//
// The method post posts a receive with the buffer of its frame. The reader of each stream takes chunks off its
// connection. If the chunk's receive is not posted yet, the reader waits (claim). It writes into the buffer without the
// lock. Meanwhile the receive is busy, and a busy receive does not end (finished). Receives of an edge end in the order
// in which they were posted, whichever stream was faster (complete). An error ends all receives (end).
type source struct {
	mu      sync.Mutex
	posted  *sync.Cond // signals that a receive was posted, or that `err` or `gone` was set
	waiting int        // readers that wait for `posted`
	edges   map[uint32]*edgeQueue
	streams map[uint16]*Conn
	reads   bool        // this end reads frames out of the sender's memory
	gone    bool        // the sender's memory is gone, so the sender has ended; the reason is still unknown
	refused func(error) // is called with the reason when the sender's memory cannot be read
	moved   *atomic.Int64
	err     error // not nil: nothing more is received
}

// edgeQueue has the receives of an edge that have not ended. receives[i] is for frame first+i.
type edgeQueue struct {
	edge       wire.Edge
	first      uint32
	receives   []*receive
	completing bool // a goroutine runs the method complete; it ends the receives that are finished by then
}

// receive waits for one frame.
type receive struct {
	b    *wire.Buffer
	done func(error)
	left int64    // chunks that are not written yet; a lent frame counts as one
	came []uint64 // one bit for each chunk, set once it is claimed; nil: no bit is set, or the frame is one chunk
	busy int      // readers that write into b
	err  error
}

func newSource() *source {
	s := &source{moved: new(atomic.Int64), refused: func(error) {}, edges: map[uint32]*edgeQueue{},
		streams: map[uint16]*Conn{}}
	s.posted = sync.NewCond(&s.mu)
	return s
}

// queue returns an edge's queue. The caller holds mu.
func (s *source) queue(id uint32) *edgeQueue {
	q := s.edges[id]
	if q == nil {
		q = &edgeQueue{}
		s.edges[id] = q
	}
	return q
}

// post posts the receive of frame n of an edge, which must be the next frame. `done` is called once, without the lock.
func (s *source) post(e wire.Edge, n uint32, b *wire.Buffer, done func(error)) {
	s.mu.Lock()
	q, err := s.queue(e.ID), s.err
	if due := q.first + uint32(len(q.receives)); err == nil && n != due {
		err = fmt.Errorf("tcp: a receive is posted for frame %d from worker %d to worker %d; %d is due", n, e.From, e.To, due)
	}
	if err != nil {
		s.mu.Unlock()
		done(err)
		return
	}
	q.edge = e
	q.receives = append(q.receives, &receive{b: b, done: done, left: chunksOf(int64(len(b.Data)))})
	if s.waiting > 0 {
		s.posted.Broadcast()
	}
	s.mu.Unlock()
}

// add adds a connection. The caller then calls read for it.
func (s *source) add(number uint16, c *Conn) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	if s.streams[number] != nil {
		return fmt.Errorf("it has stream %d already", number)
	}
	s.streams[number] = c
	return nil
}

// read reads from a connection until it ends; nil means that the sender has closed its carrier. `proof` is the value
// that the sender keeps in its memory as long as it lends memory. While the worker is told of a frame, the target
// `back` holds credits back, so that they are sent together with the worker's answer.
func (s *source) read(from io.ReadWriter, proof memory.Proof, back *target) error {
	in := bufio.NewReaderSize(from, readBytes)
	prefix := make([]byte, prefixBytes)
	var lent *memory.Reader // nil: no offer of memory was accepted
	for {
		if _, err := io.ReadFull(in, prefix); err != nil {
			return err
		}
		kind, c, err := readPrefix(prefix)
		switch {
		case err != nil || kind == kindLeave:
			return err
		case kind == kindOffer && lent == nil:
			lent, err = s.accept(c.loan(), proof, from)
		case kind == kindChunk:
			err = s.readChunk(in, c, back)
		case kind == kindLent && lent != nil:
			err = s.readLent(lent, c, from, back)
		default:
			err = fmt.Errorf("a frame of kind %d, which nobody has asked for", kind)
		}
		if err != nil {
			return err
		}
	}
}

// accept opens the sender's memory and answers the offer. If the memory cannot be read, accept does not answer, and the
// sender still sends chunks.
func (s *source) accept(l memory.Loan, proof memory.Proof, to io.Writer) (*memory.Reader, error) {
	lent, err := memory.Open(l, proof)
	if err != nil {
		s.refused(err)
		return nil, nil
	}
	s.mu.Lock()
	s.reads = true
	s.mu.Unlock()
	_, err = to.Write(appendPrefix(nil, kindReads, chunk{}))
	return lent, err
}

// readChunk reads the bytes of a chunk into its receive.
func (s *source) readChunk(in *bufio.Reader, c chunk, back *target) error {
	q, r, err := s.claim(kindChunk, c)
	begin, end := c.span()
	switch {
	case err != nil:
		return err
	case r == nil:
		_, _ = in.Discard(int(end - begin)) // if this fails, the next read fails too
		return nil
	}
	_, err = io.ReadFull(in, r.b.Data[begin:end])
	s.moved.Add(end - begin)
	back.hold()
	s.written(q, r, err)
	back.release()
	return err
}

// readLent copies a whole frame out of the sender's memory into its receive, and tells the sender whether that
// worked.
func (s *source) readLent(lent *memory.Reader, c chunk, to io.Writer, back *target) error {
	q, r, err := s.claim(kindLent, c)
	if err != nil || r == nil {
		return err
	}
	switch err = s.copy(lent, r.b.Data, c.at); {
	case err == nil || errors.Is(err, errEnded):
		back.hold()
		s.written(q, r, err)
		back.release()
		if err == nil { // the answer comes last, since the worker may be waiting for the frame
			_, err = to.Write(appendPrefix(nil, kindTaken, chunk{tag: c.tag}))
		}
		return err
	case errors.Is(err, memory.ErrGone):
		s.unread(q, r, true)
		return nil
	}
	s.refused(err)
	s.unread(q, r, false)
	_, err = to.Write(appendPrefix(nil, kindBack, chunk{tag: c.tag}))
	return err
}

// copy reads a lent frame piece by piece, so that the method `end` need not wait for a long frame.
func (s *source) copy(lent *memory.Reader, into []byte, at uint64) error {
	for begin := 0; begin < len(into); begin += copyBytes {
		s.mu.Lock()
		ended := s.err != nil
		s.mu.Unlock()
		if ended {
			return errEnded
		}
		if err := lent.Read(into[begin:min(begin+copyBytes, len(into))], at+uint64(begin)); err != nil {
			return err
		}
		s.moved.Add(copyBytes)
	}
	return nil
}

// claim waits until the receive of a chunk, or of a lent frame, is posted, and marks it busy. The caller writes into it
// and then calls the method written or the method unread. If the sender's memory is gone, claim does not wait, and
// returns nil if the receive is not posted.
func (s *source) claim(kind byte, c chunk) (*edgeQueue, *receive, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.queue(c.edge())
	// Numbers wrap around, so their difference is signed.
	for s.err == nil && !s.gone && int32(c.number()-q.first) >= int32(len(q.receives)) {
		s.waiting++
		s.posted.Wait()
		s.waiting--
	}
	at := int32(c.number() - q.first)
	switch {
	case s.err != nil:
		return nil, nil, errEnded
	case at < 0:
		return nil, nil, fmt.Errorf("frame %d of edge %d comes where %d is due", c.number(), c.edge(), q.first)
	case int(at) >= len(q.receives):
		return nil, nil, nil
	}
	r := q.receives[at]
	if err := r.claim(q.edge, kind, c); err != nil {
		s.complete(q)
		return nil, nil, err
	}
	return q, r, nil
}

// claim marks a chunk as received and the receive as busy. It returns an error if the chunk does not belong to this
// frame.
func (r *receive) claim(e wire.Edge, kind byte, c chunk) error {
	if room := int64(len(r.b.Data)); c.total != room {
		r.err = &wire.LengthError{Edge: e, N: c.number(), Sent: c.total, Room: room}
		return r.err
	}
	n := chunksOf(c.total)
	switch {
	case kind == kindLent:
		if r.came != nil || r.busy > 0 || r.left == 0 {
			return fmt.Errorf("frame %d of edge %d is lent and has come", c.number(), c.edge())
		}
		r.came, r.left = slices.Repeat([]uint64{math.MaxUint64}, int((n+63)/64)), 1
	case n > 1:
		if r.came == nil {
			r.came = make([]uint64, (n+63)/64)
		}
		word, bit := c.index/64, uint64(1)<<(c.index%64)
		if r.came[word]&bit != 0 {
			return fmt.Errorf("chunk %d of frame %d of edge %d comes twice", c.index, c.number(), c.edge())
		}
		r.came[word] |= bit
	case r.came != nil || r.busy > 0 || r.left == 0:
		return fmt.Errorf("frame %d of edge %d comes twice", c.number(), c.edge())
	}
	r.busy++
	return nil
}

// written ends a claim: its goroutine no longer writes into the receive. If err is not nil, the bytes are
// incomplete.
func (s *source) written(q *edgeQueue, r *receive, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.busy--; err == nil {
		r.left--
	}
	s.complete(q)
}

// unread ends the claim of a lent frame that could not be read. Its chunks will come over a connection, unless the
// sender's memory is gone.
func (s *source) unread(q *edgeQueue, r *receive, gone bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if gone {
		s.gone = true
		s.posted.Broadcast() // readers no longer wait for receives
	}
	r.busy--
	r.came, r.left = nil, chunksOf(int64(len(r.b.Data)))
	s.complete(q)
}

// finished says whether a receive can end, whole or with its error. Nobody writes into it then.
func (r *receive) finished() bool { return r.busy == 0 && (r.left == 0 || r.err != nil) }

// complete ends the finished receives at the front of a queue, in order. The caller holds mu, which is released while a
// receive's `done` is called. If another goroutine is already running complete, that goroutine ends the receives.
func (s *source) complete(q *edgeQueue) {
	if q.completing {
		return
	}
	q.completing = true
	for len(q.receives) > 0 && q.receives[0].finished() {
		r := q.receives[0]
		q.receives = withoutFirst(q.receives)
		q.first++
		err := r.err
		if r.left == 0 {
			err = nil // the frame was whole before the error
		}
		s.mu.Unlock()
		r.done(err)
		s.mu.Lock()
	}
	q.completing = false
}

// withoutFirst removes the first element and the queue's reference to it. An empty queue keeps its memory for reuse.
func withoutFirst[T any](queue []T) []T {
	var none T
	queue[0] = none
	if len(queue) == 1 {
		return queue[:0]
	}
	return queue[1:]
}

// end ends every receive with err, later ones included, and closes the connections. The first error stays.
func (s *source) end(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return
	}
	s.err = err
	for _, q := range s.edges {
		for _, r := range q.receives {
			if r.err == nil {
				r.err = err
			}
		}
	}
	s.posted.Broadcast()
	streams := s.streams
	s.mu.Unlock()
	for _, c := range streams {
		c.leave()
	}
	s.mu.Lock()
	for _, q := range slices.Collect(maps.Values(s.edges)) {
		s.complete(q)
	}
}

// ways returns the connections, and whether frames are read out of the sender's memory.
func (s *source) ways() (all []*Conn, reads bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.streams {
		all = append(all, c)
	}
	return all, s.reads
}

func (s *source) has(number uint16) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.streams[number] != nil
}
