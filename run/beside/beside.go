// Package beside runs work in order on an OS thread of its own with a device of its own. Giving it work never blocks.
//
// Input: a function that opens the device, and work. Output: the work done, in the order in which it was given; at the
// end, how many handles the device had open, which are leaks. Work given after Close is dropped, as is work that has
// not begun by then.
//
// # Duties of the caller
//
//  1. Close the Thread before ending anything that its work uses; no work runs after Close has returned.
//  2. Report the failures of its work from within the work: the Thread takes no error and recovers no panic.
//  3. Free in Drop what Do would have freed: exactly one of the two is called for each Work.
package beside

import (
	"runtime"
	"sync"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/internal/crash"
)

// Work is one job for the thread. Both functions must be set. They may give further work, and must not call Close.
type Work struct {
	// Do does the job on the thread. `opened` is the error of opening the device; if it is set, dev is nil.
	Do func(dev engine.Device, opened error)
	// Drop is called instead of Do if the thread is closed first. If the thread is already closed when the work is
	// given, Give calls it. Otherwise the thread calls it.
	Drop func()
}

// Thread does work in order. Its methods may be called from many goroutines.
type Thread struct {
	mu      sync.Mutex
	changed sync.Cond // queue or closed has changed
	queue   []Work
	closed  bool
	leave   func()
	ended   chan struct{} // closed once the device is closed
	leaked  int           // valid once ended is closed
}

// New starts a thread. The thread calls open once, before the first work. It calls leave once, after the last work,
// while the device is still open.
func New(open func() (engine.Device, error), leave func()) *Thread {
	t := &Thread{leave: leave, ended: make(chan struct{})}
	t.changed.L = &t.mu
	crash.Go(func() { t.run(open) })
	return t
}

// Give queues work after all earlier work. It does not wait.
func (t *Thread) Give(w Work) {
	t.mu.Lock()
	closed := t.closed
	if !closed {
		t.queue = append(t.queue, w)
		t.changed.Signal()
	}
	t.mu.Unlock()
	if closed {
		w.Drop()
	}
}

// Close drops work that has not begun, waits for the current work, and closes the device. It returns how many
// handles the device had open. A second Close returns the same.
func (t *Thread) Close() (leaked int) {
	t.mu.Lock()
	t.closed = true
	t.changed.Signal()
	t.mu.Unlock()
	<-t.ended
	return t.leaked
}

// run is the function of the thread.
func (t *Thread) run(open func() (engine.Device, error)) {
	defer close(t.ended)
	runtime.LockOSThread() // never unlocked: the engine's thread-local state ends with the thread
	dev, err := open()
	for w, more := t.next(); more; w, more = t.next() {
		w.Do(dev, err)
	}
	t.drop()
	t.leave()
	if dev != nil {
		t.leaked = dev.Close()
	}
}

// next waits for work. `more` is false once the thread is closed.
func (t *Thread) next() (w Work, more bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.queue) == 0 && !t.closed {
		t.changed.Wait()
	}
	if t.closed {
		return Work{}, false
	}
	w = t.queue[0]
	t.queue[0] = Work{} // lets the collector free what the work refers to
	t.queue = t.queue[1:]
	return w, true
}

// drop drops the remaining work. The thread is closed, so no more is queued.
func (t *Thread) drop() {
	t.mu.Lock()
	left := t.queue
	t.queue = nil
	t.mu.Unlock()
	for _, w := range left {
		w.Drop()
	}
}
