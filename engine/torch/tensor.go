//go:build cgo

package torch

/*
#include "door.h"

#cgo noescape door_free
#cgo nocallback door_free
#cgo nocallback door_adopt
*/
import "C"

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/millrace-ml/millrace/engine"
)

// inlineRank is the largest rank whose shape needs no allocation of its own.
const inlineRank = 4

// tensor is one reference to a libtorch tensor. Its handle becomes 0 when the reference is released. If several threads
// release it at once, only the first of them does so.
type tensor struct {
	handle atomic.Int64
	device *Device
	bytes  int64
	shape  []int64
	dims   [inlineRank]int64
	dtype  engine.DType
	owned  atomic.Bool // device.owned has the tensor; written under device.mu
	kept   bool        // End must not free the tensor; set only inside End
}

func (t *tensor) Shape() []int64      { return t.shape }
func (t *tensor) DType() engine.DType { return t.dtype }
func (t *tensor) Bytes() int64        { return t.bytes }

// Free releases the reference. Any goroutine may call it.
func (t *tensor) Free() {
	if t == nil {
		return
	}
	if h := t.handle.Swap(0); h != 0 {
		C.door_free((*C.int64_t)(unsafe.Pointer(&h)), 1)
		t.device.forget(t)
	}
}

// results makes tensors from the words that a call returned, and puts them into the innermost scope.
func (d *Device) results(words *C.int64_t) []engine.Tensor {
	at := (*int64)(unsafe.Pointer(words))
	next := func() int64 {
		v := *at
		at = (*int64)(unsafe.Add(unsafe.Pointer(at), 8))
		return v
	}
	out := make([]engine.Tensor, next())
	for i := range out {
		handle, dtype, rank := next(), next(), next()
		if handle == 0 {
			continue
		}
		t := &tensor{device: d, dtype: engine.DType(dtype)}
		t.handle.Store(handle)
		if rank <= inlineRank {
			t.shape = t.dims[:rank:rank]
		} else {
			t.shape = make([]int64, rank)
		}
		t.bytes = t.dtype.Size()
		for k := range t.shape {
			t.shape[k] = next()
			t.bytes *= t.shape[k]
		}
		d.file(t)
		out[i] = t
	}
	return out
}

// file puts a new tensor into the innermost scope. Without a scope it belongs to the caller.
func (d *Device) file(t *tensor) {
	if len(d.marks) > 0 {
		d.open = append(d.open, t)
		return
	}
	d.own(t)
}

func (d *Device) own(t *tensor) {
	d.mu.Lock()
	d.owned[t] = struct{}{}
	t.owned.Store(true)
	d.mu.Unlock()
}

// forget removes an invalid handle from the caller's list, if it is there.
func (d *Device) forget(t *tensor) {
	if !t.owned.Load() {
		return
	}
	d.mu.Lock()
	delete(d.owned, t)
	t.owned.Store(false)
	d.mu.Unlock()
}

// Begin opens a scope.
func (d *Device) Begin() engine.Mark {
	d.marks = append(d.marks, len(d.open))
	return engine.Mark(len(d.marks) - 1)
}

// End closes the scope m and every scope opened inside it. It panics if m is not an open scope.
func (d *Device) End(m engine.Mark, keep ...engine.Tensor) {
	if int(m) < 0 || int(m) >= len(d.marks) {
		panic(fmt.Sprintf("engine torch: End(%d) with %d open scopes", m, len(d.marks)))
	}
	start := d.marks[m]
	d.marks = d.marks[:m]
	d.keep(keep, true)
	handles := d.args[:0]
	made := d.open[start:]
	d.open = d.open[:start]
	for _, t := range made {
		switch {
		case t.owned.Load(): // disowned after it was made: not freed here
		case t.kept && t.handle.Load() != 0:
			d.file(t)
		default:
			if h := t.handle.Swap(0); h != 0 {
				handles = append(handles, h)
			}
		}
	}
	clear(made[len(d.open)-start:])
	d.keep(keep, false)
	d.release(handles)
}

// keep marks tensors of this device that End must not free.
func (d *Device) keep(ts []engine.Tensor, kept bool) {
	for _, k := range ts {
		if t, ok := k.(*tensor); ok && t != nil && t.device == d {
			t.kept = kept
		}
	}
}

// release frees many handles in one call.
func (d *Device) release(handles []int64) {
	if len(handles) > 0 {
		C.door_free((*C.int64_t)(unsafe.Pointer(&handles[0])), C.int64_t(len(handles)))
	}
	d.args = handles[:0]
}

// Disown takes t out of every scope.
func (d *Device) Disown(t engine.Tensor) engine.Tensor {
	if v, ok := t.(*tensor); ok && v != nil && v.device == d && v.handle.Load() != 0 {
		d.own(v)
	}
	return t
}

// Adopt takes over t, which another device of this engine made. Its storage is charged to this worker from now on, and
// the old handle becomes invalid. The other device must have disowned t; otherwise that device might free t first.
func (d *Device) Adopt(t engine.Tensor) (engine.Tensor, error) {
	v, ok := t.(*tensor)
	if !ok || v == nil {
		return nil, fmt.Errorf("engine torch: adopt: a %T is no tensor of this engine", t)
	}
	h := v.handle.Swap(0)
	if h == 0 {
		return nil, fmt.Errorf("engine torch: adopt %s: %w", describeTensor(t), errFreed)
	}
	v.device.forget(v)
	if C.door_adopt(C.int64_t(h), C.int(d.worker+1)) != 0 {
		err := lastError()
		C.door_free((*C.int64_t)(unsafe.Pointer(&h)), 1)
		return nil, fmt.Errorf("engine torch: adopt %s: %w", describeTensor(t), err)
	}
	mine := &tensor{device: d, dtype: v.dtype, bytes: v.bytes, shape: v.shape}
	mine.handle.Store(h)
	d.file(mine)
	return mine, nil
}

// Charge implements engine.Device.
func (d *Device) Charge(t engine.Tensor) {
	if v, ok := t.(*tensor); ok && v != nil {
		if h := v.handle.Load(); h != 0 {
			C.door_adopt(C.int64_t(h), C.int(d.worker+1)) // fails only where Adopt will fail
		}
	}
}

// Close frees every open handle, whether in a scope or owned by the caller, and returns their number. A number above 0
// after a finished run is a leak. The worker's cached memory goes back to the system. Tensors disowned for another
// device must have been adopted before.
func (d *Device) Close() int {
	var handles []int64
	for _, t := range d.open {
		if h := t.handle.Swap(0); h != 0 {
			handles = append(handles, h)
			d.forget(t)
		}
	}
	d.mu.Lock()
	for t := range d.owned {
		if h := t.handle.Swap(0); h != 0 {
			handles = append(handles, h)
		}
		t.owned.Store(false)
	}
	clear(d.owned)
	d.mu.Unlock()
	d.open, d.marks = nil, nil
	d.release(handles)
	C.door_set_owner(0)
	C.door_trim(C.int(d.worker + 1))
	return len(handles)
}
