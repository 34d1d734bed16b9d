package wire

import (
	"context"
	"fmt"
	"sync"
)

// Local is a mesh within one process: a mailbox for each rank, where messages wait by
// sender and tag. Send appends and never blocks.
type Local struct {
	boxes []*mailbox
	done  chan struct{} // closed by the first failure or by Close

	mu  sync.Mutex
	err error // why done is closed
}

// NewLocal makes a mesh of size ranks, at least 1.
func NewLocal(size int) (*Local, error) {
	if size < 1 {
		return nil, fmt.Errorf("wire: a mesh of %d ranks; it needs at least 1", size)
	}
	l := &Local{boxes: make([]*mailbox, size), done: make(chan struct{})}
	for r := range l.boxes {
		l.boxes[r] = &mailbox{mesh: l, rank: r, slots: map[address]*slot{}}
	}
	return l, nil
}

// Size is the number of ranks.
func (l *Local) Size() int { return len(l.boxes) }

// Endpoint is a rank's mailbox; a rank outside the mesh is a mistake in the program.
func (l *Local) Endpoint(rank int) Endpoint { return l.boxes[rank] }

// Close ends the mesh.
func (l *Local) Close() error {
	l.stop(ErrClosed)
	for _, b := range l.boxes {
		b.empty()
	}
	return nil
}

// stop closes done with a reason, the first one given.
func (l *Local) stop(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.err = err
		close(l.done)
	}
}

func (l *Local) reason() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// address is where a message waits in a mailbox.
type address struct {
	from int
	tag  Tag
}

// slot is the messages of one address, and the receivers that wait for one.
type slot struct {
	queue   []Message
	waiters []chan struct{} // each is closed by one arrival
}

// mailbox is one rank of a Local mesh.
type mailbox struct {
	mesh *Local
	rank int

	mu     sync.Mutex
	slots  map[address]*slot
	notify func(from int, tag Tag)
	closed bool
}

func (b *mailbox) Rank() int { return b.rank }
func (b *mailbox) Size() int { return len(b.mesh.boxes) }

func (b *mailbox) Send(to int, tag Tag, m Message) error {
	if to < 0 || to >= len(b.mesh.boxes) {
		m.Release()
		return fmt.Errorf("wire: rank %d sends to rank %d; the mesh has ranks 0..%d", b.rank, to, len(b.mesh.boxes)-1)
	}
	return b.mesh.boxes[to].deliver(b.rank, tag, m)
}

// deliver puts a message into the mailbox and wakes one waiting receiver.
func (b *mailbox) deliver(from int, tag Tag, m Message) error {
	if err := b.mesh.reason(); err != nil {
		m.Release()
		return err
	}
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		m.Release()
		return ErrClosed
	}
	s := b.slot(address{from, tag})
	s.queue = append(s.queue, m)
	if len(s.waiters) > 0 {
		close(s.waiters[0])
		s.waiters = s.waiters[1:]
	}
	notify := b.notify
	b.mu.Unlock()
	if notify != nil && tag.Phase == 0 {
		notify(from, tag)
	}
	return nil
}

func (b *mailbox) slot(at address) *slot {
	s := b.slots[at]
	if s == nil {
		s = &slot{}
		b.slots[at] = s
	}
	return s
}

// take removes the oldest message of an address. The caller holds b.mu.
func (b *mailbox) take(at address) (Message, bool) {
	s := b.slots[at]
	if s == nil || len(s.queue) == 0 {
		return nil, false
	}
	m := s.queue[0]
	s.queue = s.queue[1:]
	if len(s.queue) == 0 && len(s.waiters) == 0 {
		delete(b.slots, at)
	}
	return m, true
}

func (b *mailbox) Take(from int, tag Tag) (Message, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.take(address{from, tag})
}

func (b *mailbox) Receive(ctx context.Context, from int, tag Tag) (Message, error) {
	if from < 0 || from >= len(b.mesh.boxes) {
		return nil, fmt.Errorf("wire: rank %d receives from rank %d; the mesh has ranks 0..%d", b.rank, from, len(b.mesh.boxes)-1)
	}
	at := address{from, tag}
	for {
		if err := b.mesh.reason(); err != nil {
			return nil, err
		}
		b.mu.Lock()
		if m, ok := b.take(at); ok {
			b.mu.Unlock()
			return m, nil
		}
		s := b.slot(at)
		here := make(chan struct{})
		s.waiters = append(s.waiters, here)
		b.mu.Unlock()
		select {
		case <-here:
		case <-b.mesh.done:
			b.leave(at, here)
			return nil, b.mesh.reason()
		case <-ctx.Done():
			b.leave(at, here)
			return nil, fmt.Errorf("wire: rank %d waits for rank %d: %w", b.rank, from, context.Cause(ctx))
		}
	}
}

// leave ends a wait. An arrival that was meant for it is passed on to the next.
func (b *mailbox) leave(at address, here chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.slots[at]
	if s == nil {
		return
	}
	for i, w := range s.waiters {
		if w == here {
			s.waiters = append(s.waiters[:i], s.waiters[i+1:]...)
			break
		}
	}
	select {
	case <-here: // woken and leaving all the same
		if len(s.waiters) > 0 && len(s.queue) > 0 {
			close(s.waiters[0])
			s.waiters = s.waiters[1:]
		}
	default:
	}
	if len(s.queue) == 0 && len(s.waiters) == 0 {
		delete(b.slots, at)
	}
}

func (b *mailbox) Notify(f func(from int, tag Tag)) {
	b.mu.Lock()
	b.notify = f
	var here []address
	if f != nil {
		for at, s := range b.slots {
			for range s.queue {
				if at.tag.Phase == 0 {
					here = append(here, at)
				}
			}
		}
	}
	b.mu.Unlock()
	for _, at := range here {
		f(at.from, at.tag)
	}
}

func (b *mailbox) Fail(err error) { b.mesh.stop(&PeerError{Rank: b.rank, Err: err}) }

// empty releases what nobody received; nothing arrives afterwards.
func (b *mailbox) empty() {
	b.mu.Lock()
	slots := b.slots
	b.slots, b.closed = map[address]*slot{}, true
	b.mu.Unlock()
	for _, s := range slots {
		for _, m := range s.queue {
			m.Release()
		}
	}
}
