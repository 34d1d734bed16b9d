//go:build cgo

package torch

/*
#include "door.h"

#cgo noescape door_data
#cgo nocallback door_data
#cgo noescape door_item
#cgo nocallback door_item
#cgo noescape door_memory
#cgo nocallback door_memory
#cgo noescape door_from_bytes
#cgo nocallback door_from_bytes
#cgo noescape door_full
#cgo nocallback door_full
#cgo nocallback door_leaf
#cgo nocallback door_contiguous
#cgo nocallback door_grad_mode
*/
import "C"

import (
	"fmt"
	"sync"
	"time"
	"unsafe"

	"github.com/millrace-ml/millrace/engine"
)

// Device is one worker's access to libtorch, on the thread that opened it. Its methods are those of engine.Device.
type Device struct {
	engine *Engine
	worker int
	ops    map[string]*C.mr_op // a cache for this device, so that a call takes no lock
	args   []int64             // packed arguments of the call being made

	open  []*tensor // made in a scope that is still open, in order
	marks []int     // where in `open` each scope starts

	mu    sync.Mutex
	owned map[*tensor]struct{} // handles of the caller: disowned, kept by the outermost scope, or made without a scope
}

var _ engine.Device = (*Device)(nil)

// Open makes the device of a worker on the calling goroutine, which must be locked to its thread. The number `worker`
// is at least 0, and `threads` is the number of threads an operator may use. torch keeps this number separately for
// each calling thread. But OpenBLAS, BLIS and MKL keep a single number for the process, so all workers of a process
// should use the same number.
func (e *Engine) Open(worker, threads int) (engine.Device, error) {
	// Worker w is owner w+1. Owner 0 is for threads that never opened a device.
	if limit := int(C.door_owners()) - 1; worker < 0 || worker >= limit {
		return nil, fmt.Errorf("engine torch: open: worker %d is outside 0..%d", worker, limit-1)
	}
	if threads < 1 {
		return nil, fmt.Errorf("engine torch: open worker %d: %d threads; at least 1 is needed", worker, threads)
	}
	if C.door_set_owner(C.int(worker+1)) != 0 || C.door_set_threads(C.int(threads)) != 0 {
		return nil, fmt.Errorf("engine torch: open worker %d: %w", worker, lastError())
	}
	C.door_reset_peak(C.int(worker + 1))
	return newDevice(e, worker), nil
}

func newDevice(e *Engine, worker int) *Device {
	return &Device{engine: e, worker: worker, ops: map[string]*C.mr_op{}, owned: map[*tensor]struct{}{}}
}

// Beside opens another device of the same worker, on the calling goroutine's thread.
func (d *Device) Beside(threads int) (engine.Device, error) {
	if threads < 1 {
		return nil, fmt.Errorf("engine torch: open beside worker %d: %d threads; at least 1 is needed", d.worker, threads)
	}
	if C.door_set_owner(C.int(d.worker+1)) != 0 || C.door_set_threads(C.int(threads)) != 0 {
		return nil, fmt.Errorf("engine torch: open beside worker %d: %w", d.worker, lastError())
	}
	return newDevice(d.engine, d.worker), nil
}

// shapePointer passes a shape to C. The shape of a scalar has no first element.
func shapePointer(shape []int64) *C.int64_t {
	return (*C.int64_t)(unsafe.Pointer(unsafe.SliceData(shape)))
}

// made returns the tensor that a call of the shim has returned, or the call's error. The arguments `what` and `about`
// describe the call in the error.
func (d *Device) made(words *C.int64_t, what string, about ...any) (engine.Tensor, error) {
	if words == nil {
		return nil, failure(what, about)
	}
	if ts := d.results(words); ts[0] != nil {
		return ts[0], nil
	}
	return nil, nil
}

// Full makes a tensor in which every element is `value`.
func (d *Device) Full(dtype engine.DType, shape []int64, value float64) (engine.Tensor, error) {
	return d.made(C.door_full(C.int(dtype), shapePointer(shape), C.int64_t(len(shape)), C.double(value)), "full", dtype,
		shape, value)
}

// FromBytes makes a tensor from a copy of `data`, which holds elements in the machine's byte order.
func (d *Device) FromBytes(dtype engine.DType, shape []int64, data []byte) (engine.Tensor, error) {
	words := C.door_from_bytes(C.int(dtype), shapePointer(shape), C.int64_t(len(shape)),
		unsafe.Pointer(unsafe.SliceData(data)), C.int64_t(len(data)))
	return d.made(words, "from bytes", dtype, shape)
}

// View returns the tensor's own memory. The tensor must be contiguous.
func (d *Device) View(t engine.Tensor) ([]byte, error) {
	h, err := handleOf(t)
	if err != nil {
		return nil, fmt.Errorf("engine torch: view: %w", err)
	}
	var n C.int64_t
	p := C.door_data(C.int64_t(h), &n)
	if p == nil {
		return nil, failure("view", []any{t})
	}
	return unsafe.Slice((*byte)(p), int64(n)), nil
}

// Item returns the only element of t.
func (d *Device) Item(t engine.Tensor) (float64, error) {
	h, err := handleOf(t)
	if err != nil {
		return 0, fmt.Errorf("engine torch: item: %w", err)
	}
	var v C.double
	if C.door_item(C.int64_t(h), &v) != 0 {
		return 0, failure("item", []any{t})
	}
	return float64(v), nil
}

// Leaf returns t detached from its graph, on the same memory. If the program writes through one of the two tensors,
// autograd notes a write to both. So it refuses a backward whose saved values were changed.
func (d *Device) Leaf(t engine.Tensor, requiresGrad bool) (engine.Tensor, error) {
	h, err := handleOf(t)
	if err != nil {
		return nil, fmt.Errorf("engine torch: leaf: %w", err)
	}
	want := C.int(0)
	if requiresGrad {
		want = 1
	}
	return d.made(C.door_leaf(C.int64_t(h), want), "leaf", t, requiresGrad)
}

// Contiguous returns t (as a new handle) or a contiguous copy.
func (d *Device) Contiguous(t engine.Tensor) (engine.Tensor, error) {
	h, err := handleOf(t)
	if err != nil {
		return nil, fmt.Errorf("engine torch: contiguous: %w", err)
	}
	return d.made(C.door_contiguous(C.int64_t(h)), "contiguous", t)
}

// NoGrad runs f with autograd off; calls nest.
func (d *Device) NoGrad(f func() error) error {
	was := C.door_grad_mode(0)
	defer C.door_grad_mode(was)
	return f()
}

// Memory returns what this worker holds.
func (d *Device) Memory() engine.Memory {
	var bytes [3]C.int64_t
	C.door_memory(C.int(d.worker+1), &bytes[0])
	return engine.Memory{LiveBytes: int64(bytes[0]), PeakBytes: int64(bytes[1]), CachedBytes: int64(bytes[2])}
}

// ResetPeak starts a new high-water mark at the bytes that are live now.
func (d *Device) ResetPeak() { C.door_reset_peak(C.int(d.worker + 1)) }

// Record returns an event that is already set, since every call is finished when it returns.
func (d *Device) Record() engine.Event { return engine.Past(time.Now()) }

// Await waits for p itself. There is no queue of work that could wait for p, because every call is finished when it
// returns.
func (d *Device) Await(p engine.Point) error { return p.Wait() }

// host is a tensor's own memory.
type host struct {
	held  engine.Tensor
	bytes []byte
	ready engine.Past
}

func (h *host) Ready() engine.Event { return h.ready }
func (h *host) Bytes() []byte       { return h.bytes }
func (h *host) Free()               { h.held.Free() }

// ToHost returns a contiguous tensor's own memory, without a copy.
func (d *Device) ToHost(t engine.Tensor) (engine.Host, error) {
	bytes, err := d.View(t)
	if err != nil {
		return nil, err
	}
	held, err := d.Contiguous(t)
	if err != nil {
		return nil, err
	}
	return &host{d.Disown(held), bytes, engine.Past(time.Now())}, nil
}

// FromHost has nothing to copy, since h is the memory of t.
func (d *Device) FromHost(t engine.Tensor, h engine.Host) error {
	own, ok := h.(*host)
	if !ok {
		return fmt.Errorf("engine torch: from host: a %T is no memory of this engine's", h)
	}
	bytes, err := d.View(t)
	if err != nil {
		return err
	}
	if unsafe.SliceData(bytes) != unsafe.SliceData(own.bytes) {
		return fmt.Errorf("engine torch: from host: the memory is not that of the tensor %s", describeTensor(t))
	}
	return nil
}
