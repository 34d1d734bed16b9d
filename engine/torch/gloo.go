//go:build cgo

package torch

/*
#include <stdlib.h>
#include "door.h"
*/
import "C"

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"unsafe"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/internal/crash"
)

// Gloo is a member of a group of processes whose vectors the Gloo library sums. Gloo adds in an order of its own, so
// sums are exact only up to SumTolerance. Its connections are neither encrypted nor authenticated, and listen at the
// given host.
type Gloo struct {
	group *C.mr_gloo

	calls sync.WaitGroup // calls into the library that have not returned
	mu    sync.Mutex
	ended error
}

// CanGloo returns why Gloo cannot be used here, or nil if it can.
func (e *Engine) CanGloo() error {
	if C.door_has_gloo() == 0 {
		return errors.New("engine torch: this native library was built without Gloo, which it takes from a libtorch that " +
			"has it in a library of its own; on Debian: apt-get install libtorch-dev libgloo-dev, unset TORCH_DIR, then: " +
			"millrace doctor --build")
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	here := C.CString("127.0.0.1")
	defer C.free(unsafe.Pointer(here))
	g := C.door_gloo_new(0, 1, here)
	if g == nil {
		return fmt.Errorf("engine torch: %w", lastError())
	}
	C.door_gloo_free(g)
	return nil
}

// SumTolerance returns the largest relative error of a float32 sum of n terms in any order. The error is relative to
// the sum of the terms' magnitudes. A sum has n - 1 additions, each rounded by half a unit in the last place.
func SumTolerance(n int) float64 { return float64(n-1) * 0x1p-24 }

// NewGloo makes a process a member of a group; every member of the group must call it. The function `exchange` sends
// bytes to all other members, over the caller's own connections, and returns the bytes that each of them sent. If ctx
// ends before all members are connected, NewGloo returns an error.
func (e *Engine) NewGloo(ctx context.Context, host string, rank, size int,
	exchange func(ctx context.Context, own []byte) (others [][]byte, err error)) (*Gloo, error) {
	if err := e.CanGloo(); err != nil {
		return nil, err
	}
	name := C.CString(host)
	defer C.free(unsafe.Pointer(name))
	g := &Gloo{}
	if err := g.call(func() bool {
		g.group = C.door_gloo_new(C.int(rank), C.int(size), name)
		return g.group != nil
	}); err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, crash.Caught(func() { g.End(context.Cause(ctx)) }))()
	connected := make(chan error, 1)
	crash.Go(func() {
		err := g.call(func() bool { return C.door_gloo_connect(g.group) == 0 })
		if err != nil {
			g.End(err)
		}
		connected <- err
	})
	err := g.meet(ctx, exchange)
	if err != nil {
		g.End(err)
	}
	if failed := <-connected; err == nil {
		err = failed
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("engine torch: Gloo at %s: %w", host, err), g.Close())
	}
	return g, nil
}

// meet exchanges Gloo's own messages with the other members, until Gloo is connected. All members call exchange the
// same number of times.
func (g *Gloo) meet(ctx context.Context, exchange func(context.Context, []byte) ([][]byte, error)) error {
	for {
		var own []byte
		if err := g.call(func() bool {
			var n C.int64_t
			said := C.door_gloo_said(g.group, &n)
			if said != nil {
				own = C.GoBytes(said, C.int(n))
			}
			return said != nil
		}); err != nil || len(own) == 0 {
			return err
		}
		others, err := exchange(ctx, own)
		if err != nil {
			return err
		}
		for _, other := range others {
			if err := g.call(func() bool {
				return C.door_gloo_told(g.group, unsafe.Pointer(unsafe.SliceData(other)), C.int64_t(len(other))) == 0
			}); err != nil {
				return err
			}
		}
	}
}

// call runs f on one thread, since errors belong to a thread. If the group has ended, it returns the reason.
func (g *Gloo) call(f func() bool) error {
	g.mu.Lock()
	if err := g.ended; err != nil {
		g.mu.Unlock()
		return err
	}
	g.calls.Add(1)
	g.mu.Unlock()
	defer g.calls.Done()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if f() {
		return nil
	}
	failed := lastError()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended != nil {
		return g.ended
	}
	return failed
}

// Sum replaces vectors of one type by their sums over the group. All members make the same calls, one at a time.
// After an error the group has ended.
func (g *Gloo) Sum(vectors [][]byte, dtype engine.DType) error {
	if len(vectors) == 0 {
		return nil
	}
	var pin runtime.Pinner
	defer pin.Unpin()
	data, sizes := make([]unsafe.Pointer, len(vectors)), make([]C.int64_t, len(vectors))
	for i, v := range vectors {
		data[i], sizes[i] = unsafe.Pointer(unsafe.SliceData(v)), C.int64_t(len(v))
		if len(v) > 0 {
			pin.Pin(data[i])
		}
	}
	err := g.call(func() bool {
		return C.door_gloo_sum(g.group, &data[0], &sizes[0], C.int64_t(len(vectors)), C.int(dtype)) == 0
	})
	if err != nil {
		g.End(err)
		return fmt.Errorf("engine torch: Gloo: %w", err)
	}
	return nil
}

// End ends the group with an error, which waiting and later calls return. Any goroutine may call it. If it is called
// more than once, the first error counts.
func (g *Gloo) End(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended == nil {
		g.ended = err
		C.door_gloo_end(g.group)
	}
}

var errGlooClosed = errors.New("the group is closed")

// Close ends the group and waits until no call is in progress.
func (g *Gloo) Close() error {
	g.End(errGlooClosed)
	g.calls.Wait()
	C.door_gloo_free(g.group)
	return nil
}
