package control

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/millrace-ml/millrace/internal/crash"
)

// ErrClosed is how a Link ends whose other end was closed.
var ErrClosed = errors.New("control: the link is closed")

// Link carries Messages between a process and the leader. Its methods may be called from any goroutine.
type Link interface {
	// Start has every Message that comes delivered, in order, one at a time, on any goroutine; an error is the
	// last. deliver does not block. Start is called once; what came before it waits.
	Start(deliver func(Message, error))
	// Send hands a Message over and does not wait for who gets it.
	Send(Message) error
	// Close ends the Link. What was sent before still comes, unless the other end takes nothing, and then
	// ErrClosed.
	Close() error
}

// Pair is the two ends of a Link within a process. A Message is delivered on its sender's goroutine.
func Pair() (a, b Link) {
	one, other := &end{}, &end{}
	one.other, other.other = other, one
	return one, other
}

// end is one end of a Pair.
type end struct {
	other *end

	mu         sync.Mutex
	waiting    []Message
	closed     bool // nothing more will come
	deliver    func(Message, error)
	delivering bool
}

func (e *end) Start(deliver func(Message, error)) {
	e.mu.Lock()
	e.deliver = deliver
	e.drain()
}

func (e *end) Send(m Message) error {
	o := e.other
	o.mu.Lock()
	if o.closed {
		o.mu.Unlock()
		return ErrClosed
	}
	o.waiting = append(o.waiting, m)
	o.drain()
	return nil
}

func (e *end) Close() error {
	for _, end := range []*end{e, e.other} {
		end.mu.Lock()
		if end.closed {
			end.mu.Unlock()
			continue
		}
		end.closed = true
		end.drain()
	}
	return nil
}

// drain delivers what waits, unless somebody is at it, who then goes on with it. It is called with mu held
// and lets go of it.
func (e *end) drain() {
	defer e.mu.Unlock()
	if e.deliver == nil || e.delivering {
		return
	}
	e.delivering = true
	for e.deliver != nil && (len(e.waiting) > 0 || e.closed) {
		deliver, m, err := e.deliver, Message{}, error(nil)
		if len(e.waiting) > 0 {
			m = e.waiting[0]
			e.waiting = e.waiting[1:]
		} else {
			err, e.deliver = ErrClosed, nil
		}
		e.mu.Unlock()
		deliver(m, err)
		e.mu.Lock()
	}
	e.delivering = false
}

// linger is how long Close waits for the other process to take a message.
const linger = 5 * time.Second

// Over carries Messages as lines of JSON over a connection, which is closed with the Link.
func Over(connection io.ReadWriteCloser) Link {
	s := &stream{connection: connection, linger: linger, more: make(chan struct{}, 1), written: make(chan struct{})}
	crash.Go(s.write)
	return s
}

// stream is a Link over a connection. What is sent waits for a goroutine of its own, so that no sender waits
// for the other process.
type stream struct {
	connection io.ReadWriteCloser
	linger     time.Duration
	more       chan struct{}
	written    chan struct{} // closed when nothing more will be written

	mu      sync.Mutex
	waiting [][]byte
	sent    int // messages that the connection has taken
	closed  bool
	failed  error
}

func (s *stream) Start(deliver func(Message, error)) {
	crash.Go(func() {
		lines := bufio.NewScanner(s.connection)
		lines.Buffer(nil, MaxLine)
		for lines.Scan() {
			m, err := Decode(lines.Bytes())
			if err != nil {
				deliver(Message{}, err)
				return
			}
			deliver(m, nil)
		}
		err := lines.Err()
		if err == nil || s.isClosed() {
			err = ErrClosed
		}
		deliver(Message{}, fmt.Errorf("control: %w", err))
	})
}

func (s *stream) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

func (s *stream) Send(m Message) error {
	text, err := Encode(m)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return ErrClosed
	case s.failed != nil:
		return s.failed
	}
	s.waiting = append(s.waiting, text)
	s.ring()
	return nil
}

// ring has the writer look.
func (s *stream) ring() {
	select {
	case s.more <- struct{}{}:
	default:
	}
}

// write sends off what waits until the Link is closed.
func (s *stream) write() {
	defer close(s.written)
	for {
		s.mu.Lock()
		texts, closed := s.waiting, s.closed
		s.waiting = nil
		s.mu.Unlock()
		for _, text := range texts {
			_, err := s.connection.Write(text)
			s.mu.Lock()
			if s.sent++; err != nil {
				s.failed = fmt.Errorf("control: %w", err)
			}
			s.mu.Unlock()
			if err != nil {
				return
			}
		}
		if closed && len(texts) == 0 {
			return
		}
		if len(texts) == 0 {
			<-s.more
		}
	}
}

// flush waits until all that was sent is written, or the other process has taken nothing for too long.
func (s *stream) flush() {
	for before := -1; ; {
		s.mu.Lock()
		taken := s.sent
		s.mu.Unlock()
		if taken == before {
			return
		}
		before = taken
		select {
		case <-s.written:
			return
		case <-time.After(s.linger):
		}
	}
}

func (s *stream) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	s.ring()
	s.mu.Unlock()
	s.flush()
	err := s.connection.Close() // which ends a write that nobody takes
	<-s.written
	return err
}
