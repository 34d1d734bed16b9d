// Package beside runs work in order on an OS thread of its own, which has a device of its own. Giving it work never
// waits.
//
// In: how the device is opened, and work. Out: the work done in the order in which it was given; at the end, how many
// handles the device had open, which are leaks. Refused: work given after Close; it is dropped, as is work that has
// not begun by then.
//
// # What whoever drives a Thread must do
//
//  1. Close it before anything that its work uses ends; no work runs after Close has returned.
//  2. Report the failures of its work from within the work: the Thread takes no error and recovers no panic.
//  3. Free in Drop what Do would have freed: exactly one of the two is called for each Work.
package beside

import (
	"runtime"
	"sync"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/internal/crash"
)

// Work is one job for the thread. Both functions are needed. They may give further work, and must not call Close.
type Work struct {
	// Do does the job on the thread. opened is the error of opening the device, which is nil then.
	Do func(dev engine.Device, opened error)
	// Drop is called instead of Do where the thread is closed first, on either side's goroutine.
	Drop func()
}

// Thread does work in order. Its methods may be called from many goroutines.
type Thread struct {
	mu      sync.Mutex
	changed sync.Cond // queue or closed has changed
	queue   []Work
	closed  bool
	leave   func()
	ended   chan struct{} // closed once the device is
	leaked  int           // valid once ended is closed
}

// New starts a thread. On it open is called once before the first work, and leave once after the last, while the device
// is still open.
func New(open func() (engine.Device, error), leave func()) *Thread {
	t := &Thread{leave: leave, ended: make(chan struct{})}
	t.changed.L = &t.mu
	crash.Go(func() { t.run(open) })
	return t
}

// Give has work done after all that was given before. It does not wait.
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

// Close drops the work that has not begun, waits for the one that has, and closes the device. It returns how many
// handles the device had open. A second Close returns the same.
func (t *Thread) Close() (leaked int) {
	t.mu.Lock()
	t.closed = true
	t.changed.Signal()
	t.mu.Unlock()
	<-t.ended
	return t.leaked
}

// run is the thread's life.
func (t *Thread) run(open func() (engine.Device, error)) {
	defer close(t.ended)
	runtime.LockOSThread() // and never unlock: the engine's thread-local state ends with the thread
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

// next waits for work. more is false once the thread is closed.
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
	t.queue[0] = Work{} // what it holds on to is the collector's once it is done
	t.queue = t.queue[1:]
	return w, true
}

// drop drops the work that is left. Nobody gives more: the thread is closed.
func (t *Thread) drop() {
	t.mu.Lock()
	left := t.queue
	t.queue = nil
	t.mu.Unlock()
	for _, w := range left {
		w.Drop()
	}
}
