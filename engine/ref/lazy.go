package ref

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/internal/crash"
)

// Lateness says how late a lazy device is. With the same seed, a stream of a worker has the same delays every time.
type Lateness struct {
	Seed  uint64
	OneIn int           // on average, one of this many pieces of work is delayed; 1: every piece
	Most  time.Duration // longest delay
}

// Lazy makes an engine whose devices do their work late.
func Lazy(l Lateness) *Engine {
	l.OneIn = max(l.OneIn, 1)
	return &Engine{lateness: &l}
}

// queue is a stream of work. Its own goroutine does the work in order, with delays.
type queue struct {
	mu     sync.Mutex
	more   sync.Cond
	work   []piece
	closed bool
	ended  chan struct{}
	err    error // the first error; after it, the queue does no work
}

// piece is work to do, or an event to set.
type piece struct {
	do  func() error
	set *event
}

func newQueue(l Lateness, worker, stream int) *queue {
	q := &queue{ended: make(chan struct{})}
	q.more.L = &q.mu
	random := rand.New(rand.NewPCG(l.Seed, uint64(worker)<<1|uint64(stream)))
	crash.Go(func() {
		defer close(q.ended)
		for {
			p, some := q.next()
			if !some {
				return
			}
			if l.Most > 0 && random.IntN(l.OneIn) == 0 {
				time.Sleep(time.Duration(random.Int64N(int64(l.Most)) + 1))
			}
			q.finish(p)
		}
	})
	return q
}

// next waits for the oldest piece of work. It returns false if the queue is closed and empty.
func (q *queue) next() (p piece, some bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.work) == 0 {
		if q.closed {
			return piece{}, false
		}
		q.more.Wait()
	}
	p = q.work[0]
	q.work[0] = piece{} // drops the references that the piece holds
	q.work = q.work[1:]
	return p, true
}

// finish does a piece of work, unless earlier work has failed.
func (q *queue) finish(p piece) {
	if p.set != nil {
		p.set.now(q.failed())
		return
	}
	if q.failed() != nil {
		return
	}
	if err := crash.Guard(p.do); err != nil {
		q.mu.Lock()
		q.err = err
		q.mu.Unlock()
	}
}

func (q *queue) failed() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.err
}

// add puts a piece after all other work. It returns false if the queue is closed.
func (q *queue) add(p piece) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.closed {
		q.work = append(q.work, p)
		q.more.Signal()
	}
	return !q.closed
}

// do queues f to run after all work queued so far. If earlier work has failed, f is skipped. If the queue is closed, do
// does nothing.
func (q *queue) do(f func() error) { q.add(piece{do: f}) }

// record marks the point after all work issued so far.
func (q *queue) record() *event {
	e := &event{set: make(chan struct{})}
	if !q.add(piece{set: e}) {
		e.now(q.failed())
	}
	return e
}

// close waits until all work is done.
func (q *queue) close() {
	q.mu.Lock()
	q.closed = true
	q.more.Signal()
	q.mu.Unlock()
	<-q.ended
}

// event is a point in a queue.
type event struct {
	set chan struct{}
	at  time.Time
	err error
}

// now sets the event, once.
func (e *event) now(err error) {
	e.at, e.err = time.Now(), err
	close(e.set)
}

// Done implements engine.Point.
func (e *event) Done() bool {
	select {
	case <-e.set:
		return true
	default:
		return false
	}
}

// Wait implements engine.Point.
func (e *event) Wait() error {
	<-e.set
	return e.err
}

// At implements engine.Event.
func (e *event) At() time.Time {
	<-e.set
	return e.at
}

var _ engine.Event = (*event)(nil)
