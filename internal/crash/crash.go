// Package crash catches the panics of every goroutine that millrace starts.
//
// In go functions; out comes an error with the stack where somebody waits for one (Guard), or
// a call of the process's handler, which ends it (Go, Caught). A test in internal/check holds all
// rooms to it. Not caught, because Go lets nobody: what the runtime calls fatal (no memory, concurrent map
// writes, a stack overflow, no thread to be had), what C code does, and goroutines of other modules.
package crash

import (
	"fmt"
	"runtime/debug"
	"strings"
	"sync"
)

// Panic is an error made of a panic: a mistake of ours.
type Panic struct {
	Value any
	Stack []byte // of the goroutine that panicked
}

// Error says in one line what the panic said.
func (p *Panic) Error() string {
	return "panic: " + strings.Join(strings.Fields(fmt.Sprint(p.Value)), " ")
}

// Guard calls f, and turns a panic in it into a *Panic.
func Guard(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &Panic{p, debug.Stack()}
		}
	}()
	return f()
}

// Go runs f on a goroutine of its own. A panic in it ends the process.
func Go(f func()) { go Caught(f)() }

// Caught is f for another to start on a goroutine. A panic in it ends the process.
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

// Handle has end called for a panic that nobody waits for; it must end the process. Without a
// handler the goroutine panics again.
func Handle(end func(*Panic)) {
	handler.Lock()
	defer handler.Unlock()
	handler.end = end
}

// end calls the handler, for the first panic of several.
func end(p *Panic) {
	handler.Lock()
	defer handler.Unlock()
	if handler.end == nil {
		panic(fmt.Sprintf("%v\n%s", p.Value, p.Stack))
	}
	handler.end(p)
}

// Settle waits for a handler that is at work, which ends the process: whoever is about to end
// it otherwise asks first.
func Settle() {
	handler.Lock()
	defer handler.Unlock()
}
