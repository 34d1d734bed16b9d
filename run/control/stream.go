package control

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/millrace-ml/millrace/internal/crash"
)

// pace holds the times of a Link over a connection.
type pace struct {
	beat    time.Duration // an end without other output writes beatLine at this interval
	silence time.Duration // an end is lost after this time without input from it
}

// usual finds a lost end after 6 s, so that a run can end within 10 s of the loss.
var usual = pace{beat: time.Second, silence: 6 * time.Second}

// These lines are not Messages.
var (
	beatLine = []byte("\n")  // a sign of life
	endLine  = []byte(".\n") // the last line of an end; the other end answers with the same line
)

// pieceBytes is the most bytes of a line that are written at once. When an end has sent its last line, it counts as
// alive as long as it accepts pieces.
const pieceBytes = 64 << 10

// mostCame is how many bytes of lines may wait for delivery before reading stops.
const mostCame = 256 << 10

// Over returns a Link that carries Messages as lines of JSON over a connection. The connection is closed with the Link.
//
// After Start, an end that sends nothing for some seconds is lost. Each end therefore writes something every second,
// from Over on. An end stops reading while too many received lines wait for delivery. It is not lost as long as it
// sends. Both ends must be the same build, because the protocol has no version.
func Over(connection io.ReadWriteCloser) Link { return over(connection, usual) }

func over(connection io.ReadWriteCloser, p pace) *stream {
	s := &stream{connection: connection, pace: p, more: make(chan struct{}, 1), written: make(chan struct{}),
		read: make(chan struct{})}
	s.inbox.room = sync.NewCond(&s.mu)
	crash.Go(s.write)
	return s
}

// stream is a Link over a connection. One goroutine sends, so that senders do not wait for the other process.
// Another one delivers, so that a slow receiver does not stop the reading.
type stream struct {
	connection io.ReadWriteCloser
	pace
	more    chan struct{} // holds one value if the writer may have something to do
	written chan struct{} // closed when nothing more will be written
	read    chan struct{} // closed when nothing more will be read

	deliver func(Message, error)

	mu      sync.Mutex
	waiting [][]byte // lines to send
	inbox   inbox
	started bool
	closed  bool        // this end has closed the Link
	ended   bool        // the other end has sent its last line
	done    bool        // everything is written
	failed  error       // why the Link has ended; ErrClosed if it was closed
	heard   time.Time   // when the other end last sent something; after its last line: when it last accepted something
	due     time.Time   // when watch has to check next
	watched *time.Timer // calls watch at that time
}

// inbox holds the lines that wait for delivery. One goroutine delivers them. Beyond mostCame bytes reading stops.
type inbox struct {
	lines   []incoming
	bytes   int        // in the lines, and in the line that is being delivered
	room    *sync.Cond // signalled when bytes decreases or the Link ends
	full    bool       // there are too many bytes, and reading has stopped
	telling bool       // a goroutine is delivering; stays true after an error
}

// incoming is a received line, or the error after the last one.
type incoming struct {
	line []byte
	over error
}

func (s *stream) Start(deliver func(Message, error)) {
	s.deliver = deliver
	s.mu.Lock()
	s.started, s.heard = true, time.Now()
	s.due = s.heard.Add(s.silence)
	s.watched = time.AfterFunc(s.silence, crash.Caught(s.watch))
	s.mu.Unlock()
	crash.Go(s.listen)
}

// come queues a line for delivery. The caller holds mu.
func (s *stream) come(c incoming) {
	s.inbox.lines = append(s.inbox.lines, c)
	s.inbox.bytes += len(c.line)
	if !s.inbox.telling {
		s.inbox.telling = true
		crash.Go(s.tell)
	}
}

// tell delivers lines until none waits, or until an error. Lines after an error are ignored.
func (s *stream) tell() {
	for {
		s.mu.Lock()
		if len(s.inbox.lines) == 0 {
			s.inbox.lines, s.inbox.telling = nil, false
			s.mu.Unlock()
			return
		}
		c := s.inbox.lines[0]
		s.inbox.lines[0], s.inbox.lines = incoming{}, s.inbox.lines[1:]
		s.mu.Unlock()
		m, err := Message{}, c.over
		if err == nil {
			if m, err = Decode(c.line); err != nil {
				s.fail(err)
			}
		}
		if s.deliver(m, err); err != nil {
			return
		}
		s.mu.Lock()
		s.inbox.bytes -= len(c.line)
		s.inbox.room.Signal()
		s.mu.Unlock()
	}
}

// listen reads lines until the end.
func (s *stream) listen() {
	defer close(s.read)
	lines := bufio.NewReaderSize(hearing{s}, 16<<10)
	for {
		text, err := lineOf(lines)
		if err != nil {
			s.fail(err)
			return
		}
		s.mu.Lock()
		switch string(text) {
		case "": // a sign of life
		case ".":
			s.ended = true
			s.ring()
			s.come(incoming{over: ErrClosed})
			s.mu.Unlock()
			return
		default:
			s.come(incoming{line: text})
			s.makeRoom()
		}
		s.mu.Unlock()
	}
}

// makeRoom waits while too many bytes wait for delivery. The caller holds mu.
func (s *stream) makeRoom() {
	for s.inbox.bytes > mostCame && s.failed == nil {
		s.inbox.full = true
		s.inbox.room.Wait()
	}
	if s.inbox.full {
		s.inbox.full, s.heard = false, time.Now()
	}
}

// hearing reads from a stream's connection and records that something came.
type hearing struct{ s *stream }

func (h hearing) Read(b []byte) (int, error) {
	n, err := h.s.connection.Read(b)
	if n > 0 {
		h.s.mu.Lock()
		h.s.heard = time.Now()
		h.s.mu.Unlock()
	}
	return n, err
}

// lineOf returns the next line without its newline.
func lineOf(r *bufio.Reader) ([]byte, error) {
	text, err := r.ReadSlice('\n')
	if err == nil {
		return bytes.Clone(text[:len(text)-1]), nil
	}
	var long []byte // not reused: long lines are rare, and there may be many Links
	for errors.Is(err, bufio.ErrBufferFull) {
		if long = append(long, text...); len(long) >= MaxLine {
			return nil, fmt.Errorf("control: a line of more than %d bytes", MaxLine)
		}
		text, err = r.ReadSlice('\n')
	}
	switch {
	case err == nil:
		long = append(long, text...)
		return long[:len(long)-1], nil
	case errors.Is(err, io.EOF) && len(long)+len(text) > 0:
		return nil, fmt.Errorf("control: the connection to it has ended in the middle of a message: %w", io.ErrUnexpectedEOF)
	}
	return nil, fmt.Errorf("control: the connection to it has ended: %w", err)
}

// watch is called when the other end may have been silent for too long.
func (s *stream) watch() {
	s.mu.Lock()
	if s.failed != nil || s.ended && s.done {
		s.mu.Unlock()
		return
	}
	now := time.Now()
	switch {
	case s.inbox.full: // the other end may have sent something that was not read
		s.heard = now
	case now.Sub(s.due) > s.beat: // this process was suspended, and input may wait to be read
		s.heard = latest(s.heard, now.Add(s.beat-s.silence))
	}
	quiet := now.Sub(s.heard)
	if quiet < s.silence {
		s.due = now.Add(s.silence - quiet)
		s.watched.Reset(s.silence - quiet)
		s.mu.Unlock()
		return
	}
	s.mu.Unlock()
	s.fail(fmt.Errorf("control: nothing was heard of it for %v", quiet.Round(s.beat/10)))
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// fail ends the Link with an error, unless it has ended.
func (s *stream) fail(err error) {
	s.mu.Lock()
	if s.failed != nil {
		s.mu.Unlock()
		return
	}
	if s.closed {
		err = ErrClosed
	}
	s.failed, s.waiting = err, nil
	s.ring()
	s.inbox.room.Signal()
	s.come(incoming{over: err})
	s.mu.Unlock()
	_ = s.connection.Close() // the Link has an error already
}

func (s *stream) Send(m Message) error {
	text, err := m.encoded()
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed == nil && !s.closed && !s.ended {
		s.waiting = append(s.waiting, text)
		s.ring()
	}
	return nil
}

// ring wakes the writer.
func (s *stream) ring() {
	select {
	case s.more <- struct{}{}:
	default:
	}
}

// write sends the waiting lines, and something at every beat, until the Link is closed or has failed.
func (s *stream) write() {
	defer close(s.written)
	beat := time.NewTicker(s.beat)
	defer beat.Stop()
	said := false // something was sent since the last beat
	for {
		s.mu.Lock()
		texts, last, failed := s.waiting, s.closed || s.ended, s.failed != nil
		s.waiting = nil
		s.mu.Unlock()
		if failed {
			return
		}
		if last {
			texts = append(texts, endLine)
		}
		for _, text := range texts {
			if !s.put(text) {
				return
			}
			said = true
		}
		if last {
			s.mu.Lock()
			s.done = true
			s.mu.Unlock()
			return
		}
		select {
		case <-s.more:
		case <-beat.C:
			if !said && !s.put(beatLine) {
				return
			}
			said = false
		}
	}
}

// put writes a line and reports whether it succeeded. The reader reports the reason of a failure, after the lines that
// the other end sent before.
func (s *stream) put(text []byte) bool {
	for len(text) > 0 {
		n := min(len(text), pieceBytes)
		if _, err := s.connection.Write(text[:n]); err != nil {
			return false
		}
		text = text[n:]
		s.mu.Lock()
		if s.ended {
			s.heard = time.Now()
		}
		s.mu.Unlock()
	}
	return true
}

func (s *stream) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		s.fail(ErrClosed)
		return nil
	}
	s.closed = true
	s.ring()
	started := s.started
	s.mu.Unlock()
	if !started {
		s.Start(func(Message, error) {})
	}
	// Closing a connection while data arrives may lose data that was sent. So Close waits for the other end's last
	// line. If nothing more arrives, watch ends the Link.
	<-s.written
	<-s.read
	s.mu.Lock()
	gone := s.failed != nil
	if !gone {
		s.failed = ErrClosed
	}
	s.watched.Stop()
	s.mu.Unlock()
	if gone {
		return nil // the connection was closed when the Link failed
	}
	return s.connection.Close()
}
