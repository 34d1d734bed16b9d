// Package crash catches the panics of every goroutine that millrace starts.
//
// Input: functions. Output: an error with the stack for a caller that waits (Guard), or a call of the process's
// handler, which ends the process (Go, Caught). A test in internal/check requires this package for all goroutines. The
// language does not allow catching fatal errors (no memory, concurrent map writes, a stack overflow, no thread).
// Crashes in C code and in goroutines of other modules are not caught either.
package crash

import (
	"fmt"
	"runtime/debug"
	"strings"
	"sync"
)

// Panic is an error made from a panic, which is a bug in millrace.
type Panic struct {
	Value any
	Stack []byte // of the goroutine that panicked
}

// Error returns the panic's message in one line.
func (p *Panic) Error() string {
	return "panic: " + strings.Join(strings.Fields(fmt.Sprint(p.Value)), " ")
}

// Guard calls f and returns its error. If f panics, the error is a *Panic.
func Guard(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &Panic{p, debug.Stack()}
		}
	}()
	return f()
}

// Go runs f on a new goroutine. A panic in it ends the process.
func Go(f func()) { go Caught(f)() }

// Caught returns a function that calls f, for use on a goroutine. A panic in f ends the process.
func Caught(f func()) func() {
	return func() {
		if err := Guard(func() error { f(); return nil }); err != nil {
			end(err.(*Panic))
		}
	}
}

var handler struct {
	sync.Mutex
	end func(*Panic)
}

// Handle sets the function that is called for a panic in Go or Caught; it must end the process. Without a handler
// the goroutine panics again.
func Handle(end func(*Panic)) {
	handler.Lock()
	defer handler.Unlock()
	handler.end = end
}

// end calls the handler, which ends the process. It holds the lock during the call, so further panics wait.
func end(p *Panic) {
	handler.Lock()
	defer handler.Unlock()
	if handler.end == nil {
		panic(fmt.Sprintf("%v\n%s", p.Value, p.Stack))
	}
	handler.end(p)
}

// Settle waits if a handler is running, which then ends the process. Call Settle before ending the process in another
// way.
func Settle() {
	handler.Lock()
	defer handler.Unlock()
}
