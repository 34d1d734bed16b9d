package engine

import (
	"fmt"

	"github.com/millrace-ml/millrace/internal/packing"
)

// The functions below work on tensors outside of a model's formula. Each calls an operator that every engine has, so
// its work is issued on the device's stream. None of them makes a graph.

// first calls an operator that returns one tensor, with autograd off.
func first(d Device, op string, args ...any) (t Tensor, err error) {
	err = d.NoGrad(func() error {
		out, err := d.Call(op, args...)
		if err == nil && (len(out) != 1 || out[0] == nil) {
			err = fmt.Errorf("engine: %s yields %d tensors; it must be one", op, len(out))
		}
		if err == nil {
			t = out[0]
		}
		return err
	})
	return t, err
}

// inPlace calls an operator that changes its first argument, and drops the result.
func inPlace(d Device, op string, args ...any) error {
	m := d.Begin()
	_, err := first(d, op, args...)
	d.End(m)
	return err
}

const contiguousFormat = 0 // the number of libtorch's memory format contiguous_format

// Unseen returns a tensor that shares t's memory and that autograd does not watch. A graph that saved t does not notice
// writes through this tensor, and the graph's backward reads the new values.
func Unseen(d Device, t Tensor) (Tensor, error) { return first(d, "aten::data", t) }

// Copy returns a contiguous copy of t, in the innermost scope.
func Copy(d Device, t Tensor) (Tensor, error) { return first(d, "aten::clone", t, contiguousFormat) }

// Narrow returns `length` elements of t along dimension dim, from element `start` on. The result shares t's memory.
func Narrow(d Device, t Tensor, dim int, start, length int64) (Tensor, error) {
	return first(d, "aten::narrow", t, dim, start, length)
}

// Cat joins tensors along a dimension; the result is a copy.
func Cat(d Device, ts []Tensor, dim int) (Tensor, error) { return first(d, "aten::cat", ts, dim) }

// Stack joins tensors of one shape along a new first dimension; the result is a copy.
func Stack(d Device, ts []Tensor) (Tensor, error) { return first(d, "aten::stack", ts, 0) }

// CopyInto copies the elements of `from` into `to`, which has the same shape and type.
func CopyInto(d Device, to, from Tensor) error { return inPlace(d, "aten::copy_", to, from) }

// AddInto adds `scale` * `from` to the tensor `to`.
func AddInto(d Device, to, from Tensor, scale float64) error {
	return inPlace(d, "aten::add_.Tensor", to, from, scale)
}

// Scale multiplies t by a number.
func Scale(d Device, t Tensor, by float64) error { return inPlace(d, "aten::mul_.Scalar", t, by) }

// Divide divides t by a number. The bits may differ from those of Scale by the number's inverse.
func Divide(d Device, t Tensor, by float64) error { return inPlace(d, "aten::div_.Scalar", t, by) }

// SquareSum returns the sum of squares of a tensor of floats, as a Float64 scalar. Every element is squared in float64.
// On CPUs the squares are added in eight partial sums, element i to sum i mod 8. The partial sums are added as
// ((0+1)+(2+3)) + ((4+5)+(6+7)).
func SquareSum(d Device, t Tensor) (Tensor, error) { return first(d, "millrace::square_sum", t) }

// Mask returns a dropout mask of a shape, with the type and device of the tensor `like`. The shape's first dimension
// counts rows. Row r depends only on the key and the row's number firstRow+r, not on the other rows.
//
// Each row is made of 64-bit words, numbered from 1. Let mix be the finalizer of SplitMix64, g = 0x9e3779b97f4a7c15,
// and k = mix(key + g*(firstRow+r+1)). Then word n of row r is mix(k + g*n). Each word provides 16 bits for each of
// four elements, the lowest bits first. If an element's bits are below `threshold`, the element is 0. Otherwise it is
// `keep`.
func Mask(d Device, like Tensor, shape []int64, key uint64, firstRow int64, threshold uint16, keep float64) (Tensor,
	error) {
	return first(d, "millrace::mask", like, shape, int64(key), firstRow, int64(threshold), keep)
}

// Pack returns the rows of a tensor of floats in a packed format. The result `packed` has the tensor's dimensions and
// one more, of size f.ElementBytes. For formats with scales, the result `scales` has the shape [rows,
// packing.ScaleBytes]. Rounding errors are recorded in the argument `seen`, a Float64 tensor that holds the
// packing.Numbers values of a packing.Seen.
func Pack(d Device, t Tensor, f packing.Format, seen Tensor) (packed, scales Tensor, err error) {
	err = d.NoGrad(func() error {
		out, err := d.Call("millrace::pack", t, f.String(), seen)
		if err == nil && (len(out) != 2 || out[0] == nil || out[1] == nil) {
			err = fmt.Errorf("engine: millrace::pack yields %d tensors; it must be two", len(out))
		}
		if err == nil {
			packed, scales = out[0], out[1]
		}
		return err
	})
	return packed, scales, err
}

// Unpack returns the floats that Pack has encoded, as elements of dtype.
func Unpack(d Device, packed, scales Tensor, f packing.Format, dtype DType) (Tensor, error) {
	return first(d, "millrace::unpack", packed, scales, f.String(), dtype)
}
