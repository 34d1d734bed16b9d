package control

import (
	"errors"
	"sync"
)

// ErrClosed is how a Link ends whose other end was closed.
var ErrClosed = errors.New("control: the link is closed")

// Link carries Messages between a process and the leader. Its methods may be called from any goroutine.
type Link interface {
	// Start has every Message that comes delivered, in order, one at a time, on any goroutine; an error is the
	// last. deliver does not call Close. Start is called once; what came before it waits.
	Start(deliver func(Message, error))
	// Send hands a Message over and does not wait for who gets it; that nobody does is delivered. An error is the
	// Message's own, which has no text that can be sent: nothing is lost, and it was handed to nobody.
	Send(Message) error
	// Close ends the Link. What was sent before still comes, and then ErrClosed, unless the other end is lost; Close
	// waits for that, however slowly it comes. A second call has the first one wait no longer.
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
