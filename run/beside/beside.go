// Package beside is a thread with a device of its own that does what it is given, in order. Whoever gives it
// something never waits.
//
// In: how the device is opened, and work. Out: the work done in the order in which it was given, on a goroutine
// locked to its thread; how many handles were open when the device was closed.
// Refused: work behind Close, which is dropped as is what has not begun by then.
//
// Whoever drives it makes a Thread, gives it work, and closes it in front of what its work uses. What a work does
// where it fails, or panics, is its own to say.
package beside

import (
	"runtime"
	"sync"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/internal/crash"
)

// Work is done on the thread's device; where that could not be opened it gets the error instead.
type Work struct {
	Do   func(dev engine.Device, opened error)
	Drop func() // in place of Do, if the thread is closed before
}

// Thread does work in order.
type Thread struct {
	mu     sync.Mutex
	given  sync.Cond
	queue  []Work
	closed bool
	leave  func() // on the thread, in front of its device's end
	ended  chan struct{}
	leaked int
}

// New starts a thread. open is called on it, once, before the first work, and leave behind the last.
func New(open func() (engine.Device, error), leave func()) *Thread {
	t := &Thread{leave: leave, ended: make(chan struct{})}
	t.given.L = &t.mu
	crash.Go(func() { t.life(open) })
	return t
}

// Give has work done behind all that was given before. It does not wait.
func (t *Thread) Give(w Work) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		w.Drop()
		return
	}
	t.queue = append(t.queue, w)
	t.given.Signal()
}

// Close drops what has not begun, waits for what has, and returns how many handles were open then.
func (t *Thread) Close() (leaked int) {
	t.mu.Lock()
	t.closed = true
	t.given.Signal()
	t.mu.Unlock()
	<-t.ended
	return t.leaked
}

func (t *Thread) life(open func() (engine.Device, error)) {
	defer close(t.ended)
	runtime.LockOSThread() // never to unlock it: what an engine keeps by thread ends with the thread
	dev, err := open()
	for {
		w, more := t.next()
		if !more {
			break
		}
		w.Do(dev, err)
	}
	t.leave()
	if dev != nil {
		t.leaked = dev.Close()
	}
}

// next waits for work; false once the thread is closed.
func (t *Thread) next() (Work, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.queue) == 0 && !t.closed {
		t.given.Wait()
	}
	if t.closed {
		for _, w := range t.queue {
			w.Drop()
		}
		t.queue = nil
		return Work{}, false
	}
	w := t.queue[0]
	t.queue = t.queue[1:]
	return w, true
}
