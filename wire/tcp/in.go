package tcp

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/millrace-ml/millrace/wire"
	"github.com/millrace-ml/millrace/wire/tcp/memory"
)

// readBytes is what a connection is read through. What is longer is read past it.
const readBytes = 16 << 10

// copyBytes is how much of another's memory is read at a time.
const copyBytes = 1 << 20

// errEnded ends a reader whose source has ended.
var errEnded = errors.New("tcp: ended")

// source is what comes from one worker.
type source struct {
	mu      sync.Mutex
	posted  *sync.Cond // a receive was, or err was set
	waiting int        // readers that wait for one
	lanes   map[uint32]*lane
	streams map[uint16]*Conn
	reads   bool        // the sender's memory
	gone    bool        // the sender, with what it has lent: only how it has gone is to come
	refused func(error) // is told why that cannot be read
	moved   *atomic.Int64
	err     error // nothing more is received
}

// lane is an edge: receives that are posted, from the one that ends next on.
type lane struct {
	edge    wire.Edge
	first   uint32 // number of the first in queue
	queue   []*receive
	telling bool // somebody calls done
}

// receive is one that is posted.
type receive struct {
	b    *wire.Buffer
	done func(error)
	left int64    // chunks to come
	came []uint64 // chunks that are here or under way, a bit each; nil where one is all, and is not lent
	busy int      // readers that write into it
	err  error
}

func newSource() *source {
	s := &source{moved: new(atomic.Int64), refused: func(error) {}, lanes: map[uint32]*lane{}, streams: map[uint16]*Conn{}}
	s.posted = sync.NewCond(&s.mu)
	return s
}

// lane is an edge's. The caller holds mu.
func (s *source) lane(id uint32) *lane {
	l := s.lanes[id]
	if l == nil {
		l = &lane{}
		s.lanes[id] = l
	}
	return l
}

func (s *source) post(e wire.Edge, n uint32, b *wire.Buffer, done func(error)) {
	s.mu.Lock()
	l, err := s.lane(e.ID), s.err
	if due := l.first + uint32(len(l.queue)); err == nil && n != due {
		err = fmt.Errorf("tcp: a receive is posted for frame %d from worker %d to worker %d; %d is due", n, e.From, e.To, due)
	}
	if err != nil {
		s.mu.Unlock()
		done(err)
		return
	}
	l.edge = e
	l.queue = append(l.queue, &receive{b: b, done: done, left: chunksOf(int64(len(b.Data)))})
	if s.waiting > 0 {
		s.posted.Broadcast()
	}
	s.mu.Unlock()
}

// add takes a connection on, to be read by run.
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

// read takes chunk after chunk; nil is that the sender leaves in good order. proof is what it has in its
// memory where it lends that. What answers it at once goes to back.
func (s *source) read(from io.ReadWriter, proof memory.Proof, back *target) error {
	in := bufio.NewReaderSize(from, readBytes)
	prefix := make([]byte, prefixBytes)
	var lent *memory.Reader
	for {
		if _, err := io.ReadFull(in, prefix); err != nil {
			return err
		}
		kind, c, err := readPrefix(prefix)
		switch {
		case err != nil || kind == kindLeave:
			return err
		case kind == kindOffer && lent == nil:
			if lent, err = memory.Open(c.loan(), proof); err != nil {
				s.refused(err)
				continue
			}
			s.mu.Lock()
			s.reads = true
			s.mu.Unlock()
			if _, err := from.Write(appendPrefix(nil, kindReads, chunk{})); err != nil {
				return err
			}
			continue
		case kind != kindChunk && (kind != kindLent || lent == nil):
			return fmt.Errorf("a frame of kind %d, which nobody has asked for", kind)
		}
		l, r, err := s.claim(kind, c)
		begin, end := c.span()
		switch {
		case err != nil:
			return err
		case r == nil && kind == kindChunk:
			_, _ = in.Discard(int(end - begin)) // where it fails, so does what follows
			continue
		case r == nil:
			continue
		}
		if kind == kindChunk {
			_, err = io.ReadFull(in, r.b.Data[begin:end])
			s.moved.Add(end - begin)
		} else {
			err = s.copy(lent, r.b.Data, c.at)
		}
		switch {
		case kind == kindChunk || err == nil || errors.Is(err, errEnded):
			back.hold()
			s.landed(l, r, err)
			back.release()
			if kind == kindLent && err == nil { // the worker is told first, who may be waiting
				_, err = from.Write(appendPrefix(nil, kindTaken, chunk{tag: c.tag}))
			}
		case errors.Is(err, memory.ErrGone):
			s.awaits(l, r, true)
			err = nil
		default:
			s.refused(err)
			s.awaits(l, r, false)
			_, err = from.Write(appendPrefix(nil, kindBack, chunk{tag: c.tag}))
		}
		if err != nil {
			return err
		}
	}
}

// copy reads a frame that is lent, in pieces, so that the end of all is not held up.
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

// claim waits for the receive that a chunk belongs to, or a frame that is lent; none comes where the sender has gone.
// The caller writes into it until landed.
func (s *source) claim(kind byte, c chunk) (*lane, *receive, error) {
	s.mu.Lock()
	l := s.lane(c.edge())
	for s.err == nil && !s.gone && int32(c.number()-l.first) >= int32(len(l.queue)) {
		s.waiting++
		s.posted.Wait()
		s.waiting--
	}
	at, err := int32(c.number()-l.first), s.err
	switch {
	case err != nil:
		err = errEnded
	case at < 0:
		err = fmt.Errorf("frame %d of edge %d comes where %d is due", c.number(), c.edge(), l.first)
	case int(at) >= len(l.queue):
	default:
		r := l.queue[at]
		if err = r.claim(l.edge, kind, c); err == nil {
			s.mu.Unlock()
			return l, r, nil
		}
	}
	s.tell(l)
	return nil, nil, err
}

// claim takes a chunk for its reader, or says why it is none of this frame.
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

// landed says that nobody writes to a chunk any more.
func (s *source) landed(l *lane, r *receive, err error) {
	s.mu.Lock()
	if r.busy--; err == nil {
		r.left--
	}
	s.tell(l)
}

// awaits says that a frame that was lent cannot be read: its chunks are to come, or nothing, where its sender has gone.
func (s *source) awaits(l *lane, r *receive, gone bool) {
	s.mu.Lock()
	if gone {
		s.gone = true
		s.posted.Broadcast() // nobody waits for what comes behind it
	}
	r.busy--
	r.came, r.left = nil, chunksOf(int64(len(r.b.Data)))
	s.tell(l)
}

// over says whether a receive ends, be it whole or not. Nobody writes into it then.
func (r *receive) over() bool { return r.busy == 0 && (r.left == 0 || r.err != nil) }

// tell ends receives in their order, unless somebody is at it, who then goes on. It is called with mu held
// and lets go of it.
func (s *source) tell(l *lane) {
	defer s.mu.Unlock()
	if l.telling {
		return
	}
	l.telling = true
	for len(l.queue) > 0 && l.queue[0].over() {
		r := l.queue[0]
		l.queue = behindFirst(l.queue)
		l.first++
		err := r.err
		if r.left == 0 {
			err = nil
		}
		s.mu.Unlock()
		r.done(err)
		s.mu.Lock()
	}
	l.telling = false
}

// behindFirst is a queue without its first, and with its memory where that was the last.
func behindFirst[T any](queue []T) []T {
	var none T
	queue[0] = none
	if len(queue) == 1 {
		return queue[:0]
	}
	return queue[1:]
}

// end ends every receive, posted or to come.
func (s *source) end(err error) {
	s.mu.Lock()
	if s.err != nil {
		s.mu.Unlock()
		return
	}
	s.err = err
	var lanes []*lane
	for _, l := range s.lanes {
		lanes = append(lanes, l)
		for _, r := range l.queue {
			if r.err == nil {
				r.err = err
			}
		}
	}
	streams := s.streams
	s.posted.Broadcast()
	s.mu.Unlock()
	for _, c := range streams {
		c.leave()
	}
	for _, l := range lanes {
		s.mu.Lock()
		s.tell(l)
	}
}

// ways are the connections that there are, and whether the sender's memory is read.
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
