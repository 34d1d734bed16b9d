//go:build cgo

package torch

// #include "door.h"
import "C"

import (
	"fmt"
	"runtime"
	"unsafe"

	"github.com/millrace-ml/millrace/engine"
)

// Room makes a tensor of zeros that belongs to no scope, and charges it to this worker.
func (d *Device) Room(dtype engine.DType, shape []int64) (engine.Tensor, []byte, error) {
	runtime.LockOSThread() // results and errors belong to the thread
	defer runtime.UnlockOSThread()
	words := C.door_full(C.int(dtype), shapePointer(shape), C.int64_t(len(shape)), 0)
	if words == nil {
		return nil, nil, failure("room", []any{dtype, shape})
	}
	// The words describe one tensor: a count, then its handle, type, rank and lengths.
	first := unsafe.Slice((*int64)(unsafe.Pointer(words)), 2)
	t := &tensor{device: d, dtype: dtype, shape: append([]int64{}, shape...)}
	t.handle.Store(first[1])
	t.bytes = dtype.Size()
	for _, n := range shape {
		t.bytes *= n
	}
	if C.door_adopt(C.int64_t(first[1]), C.int(d.worker+1)) != 0 {
		err := fmt.Errorf("engine torch: room for %s: %w", describeTensor(t), lastError())
		t.Free()
		return nil, nil, err
	}
	data, err := d.View(t)
	if err != nil {
		t.Free()
		return nil, nil, err
	}
	return t, data, nil
}
