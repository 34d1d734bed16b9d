package setup

import (
	"sync"

	"github.com/millrace-ml/millrace/run/control"
)

// ofSetup is the number of every message of a setup. The numbers of a run begin with 1.
const ofSetup = 0

// relay is a Link that serves the setup first and the run afterwards.
type relay struct {
	control.Link
	begin func(control.Message, error) // handles messages of the setup; may call handOver

	mu      sync.Mutex
	handed  bool // handOver was called: the run gets the messages
	deliver func(control.Message, error)
	waiting []heard
	busy    bool // a goroutine is delivering
}

// heard is a message or error that has come on a Link.
type heard struct {
	m   control.Message
	err error
}

// listen starts receiving messages.
func (r *relay) listen() { r.Link.Start(r.take) }

// handOver gives all later messages to the run, except messages of the setup.
func (r *relay) handOver() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.handed = true
}

// take passes a message to the setup or to the run.
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

// drain delivers the waiting messages, unless another goroutine is doing so. The caller holds mu; drain releases it.
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
