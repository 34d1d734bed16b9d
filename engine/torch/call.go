//go:build cgo

package torch

/*
#include "door.h"

#cgo noescape door_call
#cgo nocallback door_call
*/
import "C"

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"unsafe"

	"github.com/millrace-ml/millrace/engine"
)

// Call runs an operator of the dispatcher. Where the schema says int[n], a single int means n equal ints. Where the
// schema says float, an int is accepted too.
func (d *Device) Call(name string, args ...any) ([]engine.Tensor, error) {
	op := d.ops[name]
	if op == nil {
		found, err := d.engine.op(name)
		if err != nil {
			return nil, err
		}
		op = found
		d.ops[name] = op
	}
	d.args = d.args[:0]
	for i, a := range args {
		if err := d.pack(a); err != nil {
			return nil, fmt.Errorf("engine torch: %s: argument %d: %w", describe(name, args), i, err)
		}
	}
	words := C.door_call(op, (*C.int64_t)(unsafe.Pointer(unsafe.SliceData(d.args))), C.int64_t(len(d.args)))
	if words == nil {
		return nil, failure(name, args)
	}
	return d.results(words), nil
}

// pack appends one argument: its tag and its payload.
func (d *Device) pack(a any) error {
	switch v := a.(type) {
	case nil:
		d.args = append(d.args, C.MR_NONE)
	case *tensor:
		h, err := handleOf(v)
		if err != nil {
			return err
		}
		d.args = append(d.args, C.MR_TENSOR, h)
	case bool:
		d.args = append(d.args, C.MR_BOOLEAN, bit(v))
	case int:
		d.args = append(d.args, C.MR_INT, int64(v))
	case int64:
		d.args = append(d.args, C.MR_INT, v)
	case float64:
		d.args = append(d.args, C.MR_DOUBLE, int64(math.Float64bits(v)))
	case string:
		d.packString(v)
	case engine.Here:
		d.packString(d.engine.DeviceType())
	case []int64:
		d.args = append(d.args, C.MR_INTS, int64(len(v)))
		d.args = append(d.args, v...)
	case []bool:
		d.args = append(d.args, C.MR_BOOLEANS, int64(len(v)))
		for _, b := range v {
			d.args = append(d.args, bit(b))
		}
	case []float64:
		d.args = append(d.args, C.MR_DOUBLES, int64(len(v)))
		for _, f := range v {
			d.args = append(d.args, int64(math.Float64bits(f)))
		}
	case []engine.Tensor:
		d.args = append(d.args, C.MR_TENSORS, int64(len(v)))
		for i, t := range v {
			h, err := handleOrNone(t)
			if err != nil {
				return fmt.Errorf("tensor %d: %w", i, err)
			}
			d.args = append(d.args, h)
		}
	case engine.DType:
		if v.Size() == 0 {
			return fmt.Errorf("there is no element type %v", v)
		}
		d.args = append(d.args, C.MR_DTYPE, int64(v))
	default:
		return fmt.Errorf("a %T cannot be passed; see engine.Device.Call for what can", a)
	}
	return nil
}

// packString appends a string's length and its bytes, padded to whole words.
func (d *Device) packString(s string) {
	d.args = append(d.args, C.MR_STRING, int64(len(s)))
	start := len(d.args)
	for range (len(s) + 7) / 8 {
		d.args = append(d.args, 0)
	}
	if s != "" {
		copy(unsafe.Slice((*byte)(unsafe.Pointer(&d.args[start])), len(s)), s)
	}
}

func bit(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

var errFreed = errors.New("the tensor is freed")

// handleOf returns the handle of t, or an error if t is nil, freed or of another engine.
func handleOf(t engine.Tensor) (int64, error) {
	v, ok := t.(*tensor)
	switch {
	case t == nil || ok && v == nil:
		return 0, errors.New("the tensor is nil")
	case !ok:
		return 0, fmt.Errorf("a %T belongs to another engine", t)
	}
	if h := v.handle.Load(); h != 0 {
		return h, nil
	}
	return 0, errFreed
}

// handleOrNone is like handleOf, but returns 0 for nil.
func handleOrNone(t engine.Tensor) (int64, error) {
	if t == nil {
		return 0, nil
	}
	return handleOf(t)
}

// failure returns the calling thread's last error, with the operator and its arguments.
func failure(name string, args []any) error {
	return fmt.Errorf("engine torch: %s: %w", describe(name, args), lastError())
}

// describe returns a call as text: aten::linear(F32[2 3], F32[4 3], nil).
func describe(name string, args []any) string {
	var b strings.Builder
	b.WriteString(name)
	b.WriteByte('(')
	for i, a := range args {
		if i > 0 {
			b.WriteString(", ")
		}
		switch v := a.(type) {
		case nil:
			b.WriteString("nil")
		case engine.Tensor:
			b.WriteString(describeTensor(v))
		case []engine.Tensor:
			b.WriteByte('[')
			for j, t := range v {
				if j > 0 {
					b.WriteString(", ")
				}
				b.WriteString(describeTensor(t))
			}
			b.WriteByte(']')
		case string:
			fmt.Fprintf(&b, "%q", v)
		default:
			fmt.Fprintf(&b, "%v", v)
		}
	}
	b.WriteByte(')')
	return b.String()
}

func describeTensor(t engine.Tensor) string {
	if v, ok := t.(*tensor); t == nil || ok && v == nil {
		return "nil"
	}
	return fmt.Sprintf("%v%v", t.DType(), t.Shape())
}
