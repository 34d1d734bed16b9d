package torch_test

import (
	"math"
	"slices"
	"testing"

	"github.com/millrace-ml/millrace/engine"
)

// word computes the function mix in engine.Mask's formula. It is the finalizer of SplitMix64.
func word(z uint64) uint64 {
	z ^= z >> 30
	z *= 0xbf58476d1ce4e5b9
	z ^= z >> 27
	z *= 0x94d049bb133111eb
	return z ^ z>>31
}

// A mask equals its formula bit by bit. It is tested with several first rows, and with shapes that do not fill a word.
// With kernels it is made in one pass, and otherwise it is composed of whole-number operators.
func TestMaskIsItsFormula(t *testing.T) {
	d := device(t, 0)
	m := d.Begin()
	defer d.End(m)
	const g = 0x9e3779b97f4a7c15
	for _, dtype := range []engine.DType{engine.Float32, engine.Float64} {
		like := must(d.Full(dtype, []int64{1}, 0))
		for _, c := range []struct {
			shape     []int64
			key       uint64
			first     int64
			threshold uint16
			keep      float64
		}{
			{[]int64{3, 8}, 7, 0, 1 << 14, 4.0 / 3}, {[]int64{2, 5, 3}, 1 << 63, 11, 1 << 15, 2},
			{[]int64{5, 1}, math.MaxUint64, 1 << 40, 0xffff, 1.1},
			{[]int64{4}, 3, 2, 100, 3}, {[]int64{0, 4}, 3, 2, 100, 3}, {[]int64{70, 1030}, 99, 5, 6554, 1 / 0.9},
		} {
			got := must(engine.Mask(d, like, c.shape, c.key, c.first, c.threshold, c.keep))
			if got.DType() != dtype || !slices.Equal(got.Shape(), c.shape) {
				t.Fatalf("it is %v%v, wanted %v%v", got.DType(), got.Shape(), dtype, c.shape)
			}
			wide := must(viewOf(d, call(d, "aten::to.dtype", got, engine.Float64)))
			values := engine.Numbers[float64](wide)
			perRow := 1
			for _, n := range c.shape[1:] {
				perRow *= int(n)
			}
			keep := c.keep
			if dtype == engine.Float32 {
				keep = float64(float32(keep))
			}
			for i, v := range values {
				r, at := i/perRow, i%perRow
				w := word(word(c.key+g*uint64(int(c.first)+r+1)) + g*uint64(at/4+1))
				want := 0.0
				if uint16(w>>(16*(at%4))) >= c.threshold {
					want = keep
				}
				if v != want {
					t.Fatalf("%v of %v: element %d is %v; it must be %v", c.shape, dtype, i, v, want)
				}
			}
		}
	}
	for what, f := range map[string]func() error{
		"a mask without rows": func() error { _, err := engine.Mask(d, f32(d, []int64{1}, 0), nil, 0, 0, 0, 1); return err },
		"a mask like whole numbers": func() error {
			_, err := engine.Mask(d, must(d.Full(engine.Int64, []int64{1}, 0)), []int64{2}, 0, 0, 0, 1)
			return err
		},
		"squares of whole numbers": func() error {
			_,
				err := engine.SquareSum(d, must(d.Full(engine.Int64, []int64{1}, 0)))
			return err
		},
	} {
		if f() == nil {
			t.Errorf("%s is taken", what)
		}
	}
}

// Squares are added in float64, in the order that engine.SquareSum documents.
func TestSquareSumHasItsOrder(t *testing.T) {
	d := device(t, 0)
	m := d.Begin()
	defer d.End(m)
	for _, n := range []int64{0, 1, 7, 8, 1003} {
		x := must(d.Full(engine.Float32, []int64{n}, 0))
		if n > 0 {
			x = wave(d, []int64{n}, 3)
		}
		var part [8]float64
		for i, v := range engine.Numbers[float32](must(viewOf(d, x))) {
			part[i%8] += float64(v) * float64(v)
		}
		want := ((part[0] + part[1]) + (part[2] + part[3])) + ((part[4] + part[5]) + (part[6] + part[7]))
		s := must(engine.SquareSum(d, x))
		if got := must(d.Item(s)); got != want || s.DType() != engine.Float64 || len(s.Shape()) != 0 {
			t.Errorf("of %d numbers: %v, %v%v; it must be %v", n, got, s.DType(), s.Shape(), want)
		}
		y := must(engine.SquareSum(d, call(d, "aten::to.dtype", x, engine.Float64)))
		if got := must(d.Item(y)); got != want {
			t.Errorf("of %d numbers in float64: %v; it must be %v", n, got, want)
		}
	}
}

// LARS's direction is coefficient * w / (g + decay * w) * (grad + decay * weight). Here w is the norm of the weight,
// and g that of the gradient. If either norm is 0, the factor before the sum is 1.
func TestLARSDirection(t *testing.T) {
	d := device(t, 0)
	m := d.Begin()
	defer d.End(m)
	for _, c := range []struct{ weight, grad, want []float32 }{
		{[]float32{3, 4}, []float32{0, 12}, []float32{0.06, 2.48}}, // norms 5 and 12: 0.5 x 5 / (12 + 0.1 x 5) is 0.2
		{[]float32{0, 0}, []float32{1, -2}, []float32{1, -2}},
		{[]float32{3, 4}, []float32{0, 0}, []float32{0.3, 0.4}},
	} {
		weight, grad := f32(d, []int64{2}, c.weight...), f32(d, []int64{2}, c.grad...)
		call(d, "millrace::lars_", grad, weight, 0.5, 0.1)
		for i, got := range engine.Numbers[float32](must(viewOf(d, grad))) {
			if math.Abs(float64(got-c.want[i])) > 1e-6 {
				t.Errorf("weight %v, gradient %v: element %d is %v; it must be %v", c.weight, c.grad, i, got, c.want[i])
			}
		}
	}
}

// The functions of package engine that work on tensors make no graph. Copies share no memory with their source;
// narrowed tensors do.
func TestVerbs(t *testing.T) {
	d := device(t, 0)
	m := d.Begin()
	defer d.End(m)
	leaf := must(d.Leaf(f32(d, []int64{3, 2}, 1, 2, 3, 4, 5, 6), true))
	x := call(d, "aten::relu", leaf)
	c := must(engine.Copy(d, x))
	rows := must(engine.Narrow(d, c, 0, 1, 2))
	if err := engine.Scale(d, rows, 10); err != nil {
		t.Fatal(err)
	}
	same(t, d, "a copy, of which rows are scaled", c, 1, 2, 30, 40, 50, 60)
	same(t, d, "what was copied", x, 1, 2, 3, 4, 5, 6)
	columns := must(engine.Copy(d, must(engine.Narrow(d, c, 1, 1, 1))))
	same(t, d, "a column", columns, 2, 40, 60)
	same(t, d, "joined", must(engine.Cat(d, []engine.Tensor{rows, x}, 0)), 30, 40, 50, 60, 1, 2, 3, 4, 5, 6)
	if err := engine.AddInto(d, columns, columns, 0.5); err != nil {
		t.Fatal(err)
	}
	if err := engine.Divide(d, columns, 3); err != nil {
		t.Fatal(err)
	}
	same(t, d, "added and divided", columns, 1, 20, 30)
	if err := engine.CopyInto(d, c, x); err != nil {
		t.Fatal(err)
	}
	same(t, d, "overwritten", c, 1, 2, 3, 4, 5, 6)
	if err := d.Backward([]engine.Tensor{call(d, "aten::sum", c)}, nil); err == nil {
		t.Error("a copy has a graph")
	}
	if err := engine.CopyInto(d, c, f32(d, []int64{4}, 1, 2, 3, 4)); err == nil {
		t.Error("a tensor of another shape is copied into one")
	}
}

// On a CPU, host memory is the tensor's own memory. It outlives the tensor's handle, and writes to it change the
// tensor.
func TestHostMemory(t *testing.T) {
	d := device(t, 0)
	m := d.Begin()
	x := f32(d, []int64{2}, 1, 2)
	h := must(d.ToHost(x))
	if e := h.Ready(); !e.Done() || e.Wait() != nil || e.At().IsZero() {
		t.Error("on a CPU host memory is ready at once")
	}
	engine.Numbers[float32](h.Bytes())[1] = 7
	if err := d.FromHost(x, h); err != nil {
		t.Fatal(err)
	}
	same(t, d, "written by the host", x, 1, 7)
	other := f32(d, []int64{2}, 1, 2)
	if err := d.FromHost(other, h); err == nil {
		t.Error("host memory of another tensor is taken")
	}
	if _, err := d.ToHost(call(d, "aten::t", f32(d, []int64{2, 2}, 1, 2, 3, 4))); err == nil {
		t.Error("a transpose is host memory")
	}
	d.End(m)
	if got := engine.Numbers[float32](h.Bytes()); got[0] != 1 || got[1] != 7 {
		t.Errorf("after its tensor is freed host memory holds %v", got)
	}
	h.Free()
	h.Free()
}
