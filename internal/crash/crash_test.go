package crash

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
)

func TestGuardMakesAnErrorOfAPanic(t *testing.T) {
	err := Guard(func() error { panic("first line\nsecond line") })
	var p *Panic
	if !errors.As(err, &p) || err.Error() != "panic: first line second line" ||
		!strings.Contains(string(p.Stack), "crash_test.go") {
		t.Errorf("%v, stack\n%s", err, p.Stack)
	}
	if err := Guard(func() error { return io.EOF }); err != io.EOF {
		t.Errorf("io.EOF became %v", err)
	}
	if err := Guard(func() error { return nil }); err != nil {
		t.Errorf("nothing became %v", err)
	}
}

// TestTheHandlerHearsOfGoroutines: the handler gets the panic of a function that Go or Caught runs.
func TestTheHandlerHearsOfGoroutines(t *testing.T) {
	defer Handle(nil)
	heard := make(chan string, 1)
	Handle(func(p *Panic) { heard <- fmt.Sprint(p.Value) })
	Go(func() { panic("on a goroutine") })
	if got := <-heard; got != "on a goroutine" {
		t.Errorf("heard %q", got)
	}
	Caught(func() { panic("started by another") })()
	if got := <-heard; got != "started by another" {
		t.Errorf("heard %q", got)
	}
}

func TestWithoutAHandlerThePanicGoesOn(t *testing.T) {
	defer func() {
		if p := fmt.Sprint(recover()); !strings.HasPrefix(p, "lost\n") || !strings.Contains(p, "crash_test.go") {
			t.Errorf("it panicked with %s", p)
		}
	}()
	Caught(func() { panic("lost") })()
}
