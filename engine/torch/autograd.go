//go:build cgo

package torch

/*
#include "door.h"

#cgo noescape door_backward
#cgo nocallback door_backward
#cgo noescape door_backward_input
#cgo nocallback door_backward_input
#cgo nocallback door_work_run
#cgo nocallback door_work_free
#cgo nocallback door_grad
#cgo nocallback door_set_grad
*/
import "C"

import (
	"fmt"
	"unsafe"

	"github.com/millrace-ml/millrace/engine"
)

// handles packs the handles of n tensors for one call, after the words already packed. If `none` is true, a nil tensor
// is allowed and packed as 0.
func (d *Device) handles(ts []engine.Tensor, n int, none bool) error {
	for i := range n {
		var t engine.Tensor
		if i < len(ts) {
			t = ts[i]
		}
		h, err := handleOf(t)
		if none {
			h, err = handleOrNone(t)
		}
		if err != nil {
			return fmt.Errorf("tensor %d: %w", i, err)
		}
		d.args = append(d.args, h)
	}
	return nil
}

// differentiate packs the arguments of a backward: the outputs, and then their gradients.
func (d *Device) differentiate(outputs, grads []engine.Tensor) error {
	d.args = d.args[:0]
	if len(outputs) == 0 {
		return fmt.Errorf("there are no outputs to differentiate")
	}
	if grads != nil && len(grads) != len(outputs) {
		return fmt.Errorf("%d gradients for %d outputs", len(grads), len(outputs))
	}
	if err := d.handles(outputs, len(outputs), false); err != nil {
		return fmt.Errorf("outputs: %w", err)
	}
	if err := d.handles(grads, len(outputs), true); err != nil {
		return fmt.Errorf("gradients: %w", err)
	}
	return nil
}

func (d *Device) word(i int) *C.int64_t {
	return (*C.int64_t)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(d.args)), 8*i))
}

// Backward runs autograd from outputs on this thread and frees the graph. The argument grads may be nil if every output
// is a scalar.
func (d *Device) Backward(outputs, grads []engine.Tensor) error {
	if err := d.differentiate(outputs, grads); err != nil {
		return fmt.Errorf("engine torch: %s: %w", describe("backward", []any{outputs, grads}), err)
	}
	n := len(outputs)
	if C.door_backward(d.word(0), d.word(n), C.int64_t(n)) != 0 {
		return failure("backward", []any{outputs, grads})
	}
	return nil
}

// BackwardInput is like Backward, but omits the gradients of the weights of operators that can be split. The Work
// computes them later.
func (d *Device) BackwardInput(outputs, grads []engine.Tensor) (engine.Work, error) {
	if err := d.differentiate(outputs, grads); err != nil {
		return nil, fmt.Errorf("engine torch: %s: %w", describe("backward", []any{outputs, grads}), err)
	}
	n := len(outputs)
	w := C.door_backward_input(d.word(0), d.word(n), C.int64_t(n))
	if w == nil {
		return nil, failure("backward", []any{outputs, grads})
	}
	return &work{handle: w}, nil
}

// work is the second half of a backward: the gradients of the weights.
type work struct{ handle *C.mr_work }

// Size implements engine.Work.
func (w *work) Size() int {
	if w.handle == nil {
		return 0
	}
	return int(C.door_work_size(w.handle))
}

// Run implements engine.Work.
func (w *work) Run() error {
	if w.handle == nil {
		return fmt.Errorf("engine torch: the weights' half of a backward has been run or freed")
	}
	failed := C.door_work_run(w.handle) != 0
	if failed {
		defer w.Free()
		return failure("the weights' half of a backward", nil)
	}
	w.Free()
	return nil
}

// Free implements engine.Work.
func (w *work) Free() {
	if w.handle != nil {
		C.door_work_free(w.handle)
		w.handle = nil
	}
}

// Grad returns the gradient a leaf has accumulated, or nil. It shares memory with the leaf's gradient, so a later
// Backward adds to it.
func (d *Device) Grad(leaf engine.Tensor) (engine.Tensor, error) {
	h, err := handleOf(leaf)
	if err != nil {
		return nil, fmt.Errorf("engine torch: grad: %w", err)
	}
	return d.made(C.door_grad(C.int64_t(h)), "grad", leaf)
}

// SetGrad replaces a leaf's gradient; nil clears it.
func (d *Device) SetGrad(leaf, grad engine.Tensor) error {
	h, err := handleOf(leaf)
	if err != nil {
		return fmt.Errorf("engine torch: set grad: %w", err)
	}
	g, err := handleOrNone(grad)
	if err != nil {
		return fmt.Errorf("engine torch: set grad: gradient: %w", err)
	}
	if C.door_set_grad(C.int64_t(h), C.int64_t(g)) != 0 {
		return failure("set grad", []any{leaf, grad})
	}
	return nil
}
