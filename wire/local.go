package wire

import (
	"crypto/rand"
	"fmt"
	"sync"
	"sync/atomic"
)

// Refusals holds the reasons why a carrier refuses calls: because a worker has failed, or because the carrier is
// closed. The zero value refuses nothing. A carrier first records a refusal and then ends what it has posted. It
// checks for a refusal under the lock under which it posts, so that nothing is posted after the end.
type Refusals struct {
	mu     sync.Mutex
	failed map[int]error
	closed bool
}

// Refusal returns why nothing may be posted with a worker, or nil if it may.
func (r *Refusals) Refusal(rank int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return ErrClosed
	}
	return r.failed[rank]
}

// Refuse refuses every later post with a worker. The first reason stays.
func (r *Refusals) Refuse(rank int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failed == nil {
		r.failed = map[int]error{}
	}
	if r.failed[rank] == nil {
		r.failed[rank] = err
	}
}

// RefuseAll refuses every later post with any worker.
func (r *Refusals) RefuseAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
}

// Local implements the methods that carriers between workers of one process share. Such a carrier embeds it, and
// implements Send, Recv, Fail and Close itself. Takes and HandsOver are right for a carrier that copies bytes in host
// memory.
type Local struct {
	Refusals
	moved   atomic.Int64 // sum of the bytes passed to Count
	rank    int
	address Address
	how     string
}

// Locals makes the carriers of the workers of one process, which reach only each other. The text `how` describes in a
// few words how frames are moved.
func Locals(engine, how string, workers int, carrier func(*Local) Carrier) ([]Carrier, error) {
	if workers < 1 {
		return nil, fmt.Errorf("wire: %s carriers of %d workers; there must be at least 1", engine, workers)
	}
	address := Address{Engine: engine, Version: "1", Data: []byte(rand.Text())} // unique among all processes
	all := make([]Carrier, workers)
	for rank := range all {
		all[rank] = carrier(&Local{rank: rank, address: address, how: how})
	}
	return all, nil
}

// Once returns a function to be passed as `done` with each of several frames that are posted together. After the last
// frame it calls the given `done`, with the first error.
func Once(frames int, done func(error)) func(error) {
	if frames == 1 {
		return done
	}
	var mu sync.Mutex
	var first error
	return func(err error) {
		mu.Lock()
		frames--
		if first == nil {
			first = err
		}
		last, why := frames == 0, first
		mu.Unlock()
		if last {
			done(why)
		}
	}
}

// Rank implements Carrier.
func (l *Local) Rank() int { return l.rank }

// Takes implements Carrier.
func (l *Local) Takes(_ int, p Place) bool { return p.Memory != Device }

// HandsOver implements Carrier.
func (l *Local) HandsOver(int) bool { return false }

// Count adds bytes to Moved. A carrier whose frames arrive whole, instead of in parts, counts none.
func (l *Local) Count(bytes int) { l.moved.Add(int64(bytes)) }

// Moved implements Carrier. It returns the sum of the bytes passed to Count.
func (l *Local) Moved() int64 { return l.moved.Load() }

// Address implements Carrier. Its Data identifies the carriers that were made together.
func (l *Local) Address() Address { return l.address }

// Connect implements Carrier.
func (l *Local) Connect(rank int, a Address) error {
	if err := a.Check(l.address); err != nil {
		return err
	}
	if string(a.Data) != string(l.address.Data) {
		return fmt.Errorf("wire: worker %d is not of this process", rank)
	}
	return nil
}

// Describe implements Carrier.
func (l *Local) Describe(e Edge) string {
	return fmt.Sprintf("worker %d to %d: %s", e.From, e.To, l.how)
}
