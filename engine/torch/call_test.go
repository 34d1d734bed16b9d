package torch_test

import (
	"math"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/millrace-ml/millrace/engine"
)

// call returns the single result of an operator that must not fail.
func call(d engine.Device, op string, args ...any) engine.Tensor {
	return must(d.Call(op, args...))[0]
}

// f32 makes a tensor of the values.
func f32(d engine.Device, shape []int64, values ...float32) engine.Tensor {
	return must(d.FromBytes(engine.Float32, shape, unsafe.Slice((*byte)(unsafe.Pointer(&values[0])), 4*len(values))))
}

func i64(d engine.Device, shape []int64, values ...int64) engine.Tensor {
	return must(d.FromBytes(engine.Int64, shape, unsafe.Slice((*byte)(unsafe.Pointer(&values[0])), 8*len(values))))
}

// values reads a float tensor, contiguous or not, row by row.
func values(d engine.Device, t engine.Tensor) []float32 {
	b := slices.Clone(must(viewOf(d, must(d.Contiguous(t)))))
	return unsafe.Slice((*float32)(unsafe.Pointer(&b[0])), len(b)/4)
}

func same(t *testing.T, d engine.Device, what string, got engine.Tensor, want ...float32) {
	t.Helper()
	if v := values(d, got); !slices.Equal(v, want) {
		t.Errorf("%s: got %v, want %v", what, v, want)
	}
}

func TestCallTakesEveryKindOfArgument(t *testing.T) {
	d := device(t, 0)
	m := d.Begin()
	defer d.End(m)
	x := f32(d, []int64{2, 2}, 1, 2, 3, 4)

	same(t, d, "tensor and a default (alpha 1)", call(d, "aten::add.Tensor", x, x), 2, 4, 6, 8)
	same(t, d, "an overload with a number", call(d, "aten::add.Scalar", x, 10, 2.0), 21, 22, 23, 24)
	same(t, d, "float64 for a number", call(d, "aten::mul.Scalar", x, 0.5), 0.5, 1, 1.5, 2)
	same(t, d, "int64 for a number", call(d, "aten::mul.Scalar", x, int64(3)), 3, 6, 9, 12)
	same(t, d, "ints", call(d, "aten::permute", x, []int64{1, 0}), 1, 3, 2, 4)
	same(t, d, "ints, bool", call(d, "aten::sum.dim_IntList", x, []int64{1}, true), 3, 7)
	same(t, d, "nil for optional ints", call(d, "aten::sum.dim_IntList", x, nil, false), 10)
	same(t, d, "tensors and a plain int", call(d, "aten::cat", []engine.Tensor{x, x}, 1), 1, 2, 1, 2, 3, 4, 3, 4)
	same(t, d, "nil for an optional tensor", call(d, "aten::linear", x, x, nil), 5, 11, 11, 25)
	same(t, d, "a string", call(d, "aten::div.Tensor_mode", f32(d, []int64{2}, 7, -7), f32(d, []int64{2}, 2, 2), "floor"),
		3, -4)
	same(t, d, "nil for an optional string", call(d, "aten::div.Tensor_mode", x, x, nil), 1, 1, 1, 1)
	same(t, d, "a string of more than a word", call(d, "aten::einsum", "ij,jk->ik", []engine.Tensor{x, x}), 7, 10, 15, 22)
	same(t, d, "a device by name", call(d, "aten::zeros", []int64{2}, engine.Float32, nil, "cpu"), 0, 0)
	same(t, d, "tensors with holes", call(d, "aten::index.Tensor", x, []engine.Tensor{nil, i64(d, []int64{1}, 1)}), 2, 4)

	long := call(d, "aten::to.dtype", x, engine.Int64)
	if long.DType() != engine.Int64 || long.Bytes() != 32 {
		t.Errorf("an element type: got %v of %d bytes", long.DType(), long.Bytes())
	}
	if sum := must(d.Item(call(d, "aten::sum", x, engine.Float64))); sum != 10 {
		t.Errorf("an element type for an optional one: got %v", sum)
	}

	image := must(d.Full(engine.Float32, []int64{1, 1, 4, 4}, 1))
	kernel := must(d.Full(engine.Float32, []int64{1, 1, 3, 3}, 1))
	if got := call(d, "aten::conv2d", image, kernel, nil, 1, 1); !slices.Equal(got.Shape(), []int64{1, 1, 4, 4}) {
		t.Errorf("an int for int[2]: got shape %v", got.Shape())
	}
	up := call(d, "aten::upsample_nearest2d.vec", image, nil, []float64{2, 3})
	if !slices.Equal(up.Shape(), []int64{1, 1, 8, 12}) {
		t.Errorf("floats: got shape %v", up.Shape())
	}
	grads := must(d.Call("aten::convolution_backward", image, image, kernel, nil, []int64{1, 1}, []int64{1, 1},
		[]int64{1, 1}, false, []int64{0, 0}, 1, []bool{true, true, false}))
	if len(grads) != 3 || grads[0] == nil || grads[1] == nil || grads[2] != nil {
		t.Errorf("bools and an undefined result: got %v", grads)
	}
}

func TestCallGivesEveryKindOfResult(t *testing.T) {
	d := device(t, 0)
	m := d.Begin()
	defer d.End(m)
	x := f32(d, []int64{4}, 4, 1, 3, 2)

	parts := must(d.Call("aten::chunk", x, 2))
	if len(parts) != 2 {
		t.Fatalf("a list of tensors: got %d", len(parts))
	}
	same(t, d, "second of a list", parts[1], 3, 2)
	sorted := must(d.Call("aten::sort", x))
	if len(sorted) != 2 || sorted[1].DType() != engine.Int64 {
		t.Fatalf("two results: got %v", sorted)
	}
	same(t, d, "first of two", sorted[0], 1, 2, 3, 4)
	if got := must(d.Item(call(d, "aten::size.int", x, 0))); got != 4 {
		t.Errorf("an int result: got %v", got)
	}
	if got := call(d, "aten::is_floating_point", x); got.DType() != engine.Bool {
		t.Errorf("a bool result: got %v", got.DType())
	}
	if got := must(d.Item(call(d, "aten::item", call(d, "aten::max", x)))); got != 4 {
		t.Errorf("a number result: got %v", got)
	}
	five := must(d.Full(engine.Float32, []int64{1, 2, 1, 2, 3}, 0))
	if !slices.Equal(five.Shape(), []int64{1, 2, 1, 2, 3}) || five.Bytes() != 48 {
		t.Errorf("rank 5: got %v, %d bytes", five.Shape(), five.Bytes())
	}
	if half := call(d, "aten::to.dtype", x, 5); half.Bytes() != 0 || half.DType().IsFloat() {
		t.Errorf("a type millrace does not carry: got %v, %d bytes", half.DType(), half.Bytes())
	}
}

func TestErrorsNameOperatorAndShapes(t *testing.T) {
	d := device(t, 0)
	m := d.Begin()
	defer d.End(m)
	x := must(d.Full(engine.Float32, []int64{2, 3}, 1))
	gone := must(d.Full(engine.Float32, []int64{1}, 1))
	gone.Free()
	gone.Free() // twice is harmless

	for _, c := range []struct {
		op   string
		args []any
		want []string
	}{
		{"aten::mm", []any{x, x}, []string{"engine torch: aten::mm(F32[2 3], F32[2 3]): ", "(2x3 and 2x3)"}},
		{"aten::no_such_thing", []any{x}, []string{"aten::no_such_thing: ", "no such operator"}},
		{"aten::add.NoSuchOverload", []any{x}, []string{"no such operator"}},
		{"nonsense", nil, []string{"no such operator"}},
		{"aten::relu", nil, []string{"argument self is missing"}},
		{"aten::relu", []any{x, x}, []string{"too many arguments; it takes 1"}},
		{"aten::relu", []any{nil}, []string{"argument self is nothing; it takes a tensor"}},
		{"aten::relu", []any{3}, []string{"argument self is an int"}},
		{"aten::relu", []any{"x"}, []string{"argument self is a string"}},
		{"aten::relu", []any{float32(1)}, []string{"argument 0: a float32 cannot be passed"}},
		{"aten::relu", []any{gone}, []string{"argument 0: the tensor is freed"}},
		{"aten::cat", []any{[]engine.Tensor{x, nil}}, []string{"freed or undefined"}},
		{"aten::sum.dim_IntList", []any{x, []float64{1}}, []string{"argument dim is floats"}},
		{"aten::permute", []any{x, 1}, []string{"argument dims is an int"}},
		{"aten::dropout", []any{x, true, false}, []string{"argument p is a bool"}},
		{"aten::permute", []any{x, []bool{true}}, []string{"argument dims is bools"}},
		{"aten::zeros", []any{[]int64{1}, engine.DType(77)}, []string{"no element type DType(77)"}},
		{"aten::zeros", []any{[]int64{1}, nil, nil, "moon"}, []string{"moon"}},
		{"aten::embedding", []any{x, i64(d, []int64{1}, 9)}, []string{"I64[1]", "out of range"}},
	} {
		_, err := d.Call(c.op, c.args...)
		if err == nil {
			t.Errorf("%s%v: no error", c.op, c.args)
			continue
		}
		for _, w := range c.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %q lacks %q", c.op, err, w)
			}
		}
		if strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: error of several lines: %q", c.op, err)
		}
	}
	same(t, d, "after errors", call(d, "aten::sum", x), 6)
}

func TestMakingAndReadingRefuse(t *testing.T) {
	d := device(t, 0)
	m := d.Begin()
	defer d.End(m)
	x := must(d.Full(engine.Float32, []int64{2, 3}, 1))
	refused := func(what string, err error, want string) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", what, err, want)
		}
	}
	_, err := d.FromBytes(engine.Float32, []int64{2}, make([]byte, 7))
	refused("seven bytes for two floats", err, "needs 8 bytes, 7 were given")
	_, err = d.Full(engine.Float32, []int64{-1}, 0)
	refused("a negative size", err, "full(F32, [-1], 0)")
	_, err = d.Full(engine.Float32, []int64{1 << 45}, 0)
	refused("more than any memory", err, "more than any host has")
	_, err = d.FromBytes(engine.Float32, []int64{1 << 32, 1 << 32}, nil)
	refused("a size that overflows", err, "engine torch: ")
	_, err = viewOf(d, call(d, "aten::t", x))
	refused("a view of a transpose", err, "not contiguous")
	_, err = d.Item(x)
	refused("an item of six", err, "item(F32[2 3])")
	_, err = d.Leaf(must(d.Full(engine.Int64, nil, 1)), true)
	refused("a gradient of integers", err, "leaf(I64[], true)")
	_, err = d.Leaf(nil, true)
	refused("a leaf of nothing", err, "nil")

	if b := must(viewOf(d, must(d.Full(engine.Float32, []int64{0, 3}, 0)))); len(b) != 0 {
		t.Errorf("an empty tensor has %d bytes", len(b))
	}
	if v := must(d.Item(must(d.Full(engine.Float32, nil, math.Inf(1))))); !math.IsInf(v, 1) {
		t.Errorf("infinity came back as %v", v)
	}
	if v := must(viewOf(d, must(d.FromBytes(engine.Bool, []int64{3}, []byte{1, 0, 1})))); !slices.Equal(v,
		[]byte{1, 0, 1}) {
		t.Errorf("bools came back as %v", v)
	}
}
