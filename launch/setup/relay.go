package setup

import (
	"sync"

	"github.com/millrace-ml/millrace/run/control"
)

// ofSetup is the number of every message of a setup; a run's begin with 1.
const ofSetup = 0

// relay is a Link that serves setup first and then the run.
type relay struct {
	control.Link
	begin func(control.Message, error) // takes what is setup's; it may call handOver

	mu      sync.Mutex
	handed  bool // to the run
	deliver func(control.Message, error)
	waiting []heard
	busy    bool // somebody delivers
}

// heard is what has come on a Link.
type heard struct {
	m   control.Message
	err error
}

// listen begins to hear what comes.
func (r *relay) listen() { r.Link.Start(r.take) }

// handOver has all that comes from now on be the run's.
func (r *relay) handOver() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.handed = true
}

// take gives what has come to whom it is for.
func (r *relay) take(m control.Message, err error) {
	r.mu.Lock()
	if !r.handed || err == nil && m.N == ofSetup {
		r.mu.Unlock()
		r.begin(m, err)
		return
	}
	r.waiting = append(r.waiting, heard{m, err})
	r.drain()
}

// Start implements control.Link, for the run.
func (r *relay) Start(deliver func(control.Message, error)) {
	r.mu.Lock()
	r.deliver = deliver
	r.drain()
}

// drain delivers what waits, unless somebody is at it, who then goes on with it. It is called with mu held and
// lets go of it.
func (r *relay) drain() {
	defer r.mu.Unlock()
	if r.deliver == nil || r.busy {
		return
	}
	r.busy = true
	for len(r.waiting) > 0 {
		next := r.waiting[0]
		r.waiting = r.waiting[1:]
		r.mu.Unlock()
		r.deliver(next.m, next.err)
		r.mu.Lock()
	}
	r.busy = false
}
