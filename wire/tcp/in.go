package tcp

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/millrace-ml/millrace/wire"
)

// readBytes is what a connection is read through. What is longer is read past it.
const readBytes = 16 << 10

// errEnded ends a reader whose source has ended.
var errEnded = errors.New("tcp: ended")

// source is what comes from one worker.
type source struct {
	mu      sync.Mutex
	posted  *sync.Cond // a receive was, or err was set
	waiting int        // readers that wait for one
	lanes   map[uint32]*lane
	streams map[uint16]*Conn
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
	came []uint64 // chunks that are here or under way, a bit each; nil where there is one
	busy int      // readers that write into it
	err  error
}

func newSource() *source {
	s := &source{lanes: map[uint32]*lane{}, streams: map[uint16]*Conn{}}
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

// read takes chunk after chunk; nil is that the sender leaves in good order. What answers the sender at once
// goes to back.
func (s *source) read(from io.Reader, back *target) error {
	in := bufio.NewReaderSize(from, readBytes)
	prefix := make([]byte, prefixBytes)
	for {
		if _, err := io.ReadFull(in, prefix); err != nil {
			return err
		}
		c, leaves, err := readPrefix(prefix)
		if err != nil || leaves {
			return err
		}
		l, r, err := s.claim(c)
		if err != nil {
			return err
		}
		begin, end := c.span()
		_, err = io.ReadFull(in, r.b.Data[begin:end])
		back.hold()
		s.landed(l, r, err)
		back.release()
		if err != nil {
			return err
		}
	}
}

// claim waits for the receive that a chunk belongs to. The caller writes into it until landed.
func (s *source) claim(c chunk) (*lane, *receive, error) {
	s.mu.Lock()
	l := s.lane(c.edge())
	for s.err == nil && int32(c.number()-l.first) >= int32(len(l.queue)) {
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
	default:
		r := l.queue[at]
		if err = r.claim(l.edge, c); err == nil {
			s.mu.Unlock()
			return l, r, nil
		}
	}
	s.tell(l)
	return nil, nil, err
}

// claim takes a chunk for its reader, or says why it is none of this frame.
func (r *receive) claim(e wire.Edge, c chunk) error {
	if room := int64(len(r.b.Data)); c.total != room {
		r.err = &wire.LengthError{Edge: e, N: c.number(), Sent: c.total, Room: room}
		return r.err
	}
	if n := chunksOf(c.total); n > 1 {
		if r.came == nil {
			r.came = make([]uint64, (n+63)/64)
		}
		word, bit := c.index/64, uint64(1)<<(c.index%64)
		if r.came[word]&bit != 0 {
			return fmt.Errorf("chunk %d of frame %d of edge %d comes twice", c.index, c.number(), c.edge())
		}
		r.came[word] |= bit
	} else if r.busy > 0 || r.left == 0 {
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
func behindFirst(queue []*receive) []*receive {
	queue[0] = nil
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

// ways are the connections that there are, by stream.
func (s *source) ways() []*Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*Conn
	for _, c := range s.streams {
		all = append(all, c)
	}
	return all
}

func (s *source) has(number uint16) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.streams[number] != nil
}
