package torch_test

import (
	"errors"
	"runtime"
	"testing"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/engine/torch"
)

// load gives the engine, or skips where libtorch or cgo is missing.
func load(t testing.TB) *torch.Engine {
	t.Helper()
	e, err := torch.Open()
	if errors.Is(err, torch.ErrNotFound) || errors.Is(err, torch.ErrNoCgo) {
		t.Skipf("libtorch is not installed: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// device opens a device on the test's own thread and checks at the end that the test
// gave back every handle.
func device(t testing.TB, worker int) engine.Device {
	t.Helper()
	e := load(t)
	runtime.LockOSThread()
	d, err := e.Open(worker, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if n := d.Close(); n != 0 {
			t.Errorf("%d handles were left open", n)
		}
		runtime.UnlockOSThread()
	})
	return d
}

// must is for calls that fail only if the test itself is wrong.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
