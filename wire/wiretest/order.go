package wiretest

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/wire"
)

// orderDuty describes the duty that receivesAreDoneInOrder tests, for its error messages.
const orderDuty = "duty 4 of a carrier (go doc wire): the done functions of an edge's receives are called in " +
	"ascending order of their numbers, each after the one before it has returned"

// receivesAreDoneInOrder checks that a carrier calls `done` of an edge's receives in order, one at a time. A port
// relies on it: otherwise a message may be reported before an earlier one.
func receivesAreDoneInOrder(t *testing.T, open Maker) {
	for _, first := range []string{"sends", "receives"} {
		all := carriers(t, open, 2)
		if err := disorder(t, all, first == "sends"); err != nil {
			t.Errorf("%s are posted first: %v; %s", first, err, orderDuty)
		}
		closeAll(t, all)
	}
}

// watched watches when `done` of an edge's receives is called, and when it returns.
type watched struct {
	mu      sync.Mutex
	next    int // number of the receive whose `done` is due
	running int // number of the receive whose `done` has not returned; -1: none
	wrong   error
	left    sync.WaitGroup
}

// done is called when receive n is done. It takes some time, in which no other `done` may be called.
func (w *watched) done(n int, err error) {
	defer w.left.Done()
	w.mu.Lock()
	switch {
	case w.wrong != nil:
	case err != nil:
		w.wrong = fmt.Errorf("receive %d: %w", n, err)
	case w.running >= 0:
		w.wrong = fmt.Errorf("the done of receive %d is called before that of receive %d has returned", n, w.running)
	case n != w.next:
		w.wrong = fmt.Errorf("the done of receive %d is called where that of receive %d is due", n, w.next)
	}
	w.next, w.running = n+1, n
	w.mu.Unlock()
	time.Sleep(200 * time.Microsecond)
	w.mu.Lock()
	w.running = -1
	w.mu.Unlock()
}

// disorder moves frames from worker 0 to worker 1. It returns an error if the receives are not done in order.
func disorder(t *testing.T, all []wire.Carrier, sendsFirst bool) error {
	const frames = 50
	w := &watched{running: -1}
	w.left.Add(frames)
	send := func() {
		for n := range frames {
			b := bufferOf(random(uint64(n), 8))
			all[0].Send(1, edge, uint32(n), []*wire.Buffer{&b}, func(error) {})
		}
	}
	if sendsFirst {
		send()
	}
	for n := range frames {
		b := bufferOf(make([]byte, 8))
		if all[1].HandsOver(0) {
			b.Data = nil
		}
		all[1].Recv(edge, uint32(n), &b, func(err error) { w.done(n, err) })
	}
	if !sendsFirst {
		send()
	}
	wait(t, signal(w.left.Wait), "the receives")
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.wrong
}
