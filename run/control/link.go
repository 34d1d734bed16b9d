package control

import (
	"errors"
	"sync"
)

// ErrClosed ends a Link after one of its ends was closed.
var ErrClosed = errors.New("control: the link is closed")

// Link carries Messages between a process and the leader. Its methods may be called from any goroutine.
type Link interface {
	// Start begins to deliver Messages in order, one at a time, on any goroutine. Messages that came before Start wait
	// for it. Start is called once. The last call of deliver passes the error that ended the Link. deliver must not
	// call Close.
	Start(deliver func(Message, error))
	// Send hands a Message over without waiting for the receiver. A later failure of the Link is delivered through
	// Start. Send returns an error only if the Message cannot be encoded; then nothing was sent.
	Send(Message) error
	// Close ends the Link. Unless the other end is lost, it still gets everything that was sent before, and then
	// ErrClosed. Close of a Link between processes waits until the other end has received everything, however long it
	// takes. A second call of Close ends the wait of the first call.
	Close() error
}

// Pair returns the two ends of a Link within a process. A Message is delivered on the goroutine that sends it, or on
// one that is already delivering to that end. What was sent before Start is delivered on the goroutine that calls
// Start.
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
	closed     bool // no more Messages will come
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
		return nil
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

// drain delivers the waiting Messages, unless another goroutine is delivering and will deliver these too. It is
// called with mu held and unlocks it.
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
