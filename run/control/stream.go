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

// pace is the times of a Link over a connection.
type pace struct {
	beat    time.Duration // an end that has nothing else to say writes beatLine so often
	silence time.Duration // an end of which so long nothing is heard is lost
}

// usual leaves some seconds of ten for the end of a run.
var usual = pace{beat: time.Second, silence: 6 * time.Second}

// Lines that are no Messages.
var (
	beatLine = []byte("\n")  // there is nothing else to say
	endLine  = []byte(".\n") // there is nothing more to say, ever; the other end answers it with the same
)

// pieceBytes is how much of a line is written at once: that an end which says no more takes a long one shows by its
// pieces.
const pieceBytes = 64 << 10

// mostCame is how many bytes of lines may wait to be delivered before nothing more is read.
const mostCame = 256 << 10

// Over carries Messages as lines of JSON over a connection, which is closed with the Link.
//
// From Start on an end of which nothing comes for some seconds is lost; each therefore says something every second,
// from Over on. That an end takes nothing is no loss while it is heard of: one to which more has come than it can
// deliver reads nothing for a while. Both are of one build: there is no version in what they say.
func Over(connection io.ReadWriteCloser) Link { return over(connection, usual) }

func over(connection io.ReadWriteCloser, p pace) *stream {
	s := &stream{connection: connection, pace: p, more: make(chan struct{}, 1), written: make(chan struct{}),
		read: make(chan struct{})}
	s.inbox.room = sync.NewCond(&s.mu)
	crash.Go(s.write)
	return s
}

// stream is a Link over a connection. What is sent waits for a goroutine of its own, so that no sender waits
// for the other process; and so does what has come, so that whoever takes long over it goes on hearing.
type stream struct {
	connection io.ReadWriteCloser
	pace
	more    chan struct{} // has one where the writer may have something to do
	written chan struct{} // closed when nothing more will be written
	read    chan struct{} // closed when nothing more will be read

	deliver func(Message, error)

	mu      sync.Mutex
	waiting [][]byte // to be sent
	inbox   inbox
	started bool
	closed  bool        // by this end
	ended   bool        // by the other
	done    bool        // everything is written
	failed  error       // why nothing goes on; ErrClosed where it was closed
	heard   time.Time   // when something last came; of an end that says no more, when it last took something
	due     time.Time   // when watch is to look
	watched *time.Timer // until then
}

// inbox is the lines that have come and wait to be delivered. One goroutine delivers while there are some, and beyond
// mostCame bytes of them nothing more is read.
type inbox struct {
	lines   []incoming
	bytes   int        // of these, and of the one that is being delivered
	room    *sync.Cond // is told when they get fewer, and when nothing goes on
	full    bool       // they are too many, and nothing is read
	telling bool       // somebody delivers; for ever behind an error
}

// incoming is a line that has come, or why none does any more.
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

// come has something delivered behind what came before it. The caller holds mu.
func (s *stream) come(c incoming) {
	s.inbox.lines = append(s.inbox.lines, c)
	s.inbox.bytes += len(c.line)
	if !s.inbox.telling {
		s.inbox.telling = true
		crash.Go(s.tell)
	}
}

// tell delivers until nothing waits, or it was an error. What stands behind one means nothing.
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

// listen reads lines until there are no more.
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
		case "": // the other end is there
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

// makeRoom waits while too much waits to be delivered. The caller holds mu.
func (s *stream) makeRoom() {
	for s.inbox.bytes > mostCame && s.failed == nil {
		s.inbox.full = true
		s.inbox.room.Wait()
	}
	if s.inbox.full {
		s.inbox.full, s.heard = false, time.Now()
	}
}

// hearing reads a stream's connection and notes that something came.
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

// lineOf is the next line without its end.
func lineOf(r *bufio.Reader) ([]byte, error) {
	text, err := r.ReadSlice('\n')
	if err == nil {
		return bytes.Clone(text[:len(text)-1]), nil
	}
	var long []byte // is freed with the line: few are, and there may be many Links
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
	case s.inbox.full: // what this end does not read the other one may have said
		s.heard = now
	case now.Sub(s.due) > s.beat: // this process has not run itself: what has come meanwhile may not be read yet
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

// fail ends the Link for a reason, unless it has ended.
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
	_ = s.connection.Close() // whose end is for a reason already
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

// ring has the writer look.
func (s *stream) ring() {
	select {
	case s.more <- struct{}{}:
	default:
	}
}

// write sends off what waits, and something every beat, until the Link is closed or has failed.
func (s *stream) write() {
	defer close(s.written)
	beat := time.NewTicker(s.beat)
	defer beat.Stop()
	said := false // something, since the last beat
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

// put writes a line, and says whether it could. Why it could not is for the reader to say, behind what the other
// end has said before.
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
	// A connection that is closed while something comes may lose what is on its way. Where nothing does watch knows.
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
		return nil // it was closed when it failed
	}
	return s.connection.Close()
}
