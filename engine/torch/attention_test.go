package torch_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/millrace-ml/millrace/engine"
)

// attentionOf computes causal attention with libtorch's own operators.
func attentionOf(d engine.Device, qkv engine.Tensor, heads int64, mask engine.Tensor) engine.Tensor {
	b, t, c := qkv.Shape()[0], qkv.Shape()[1], qkv.Shape()[2]/3
	x := call(d, "aten::permute", call(d, "aten::view", qkv, []int64{b, t, 3, heads, c / heads}), []int64{2, 0, 3, 1, 4})
	x = call(d, "aten::reshape", x, []int64{3, b * heads, t, c / heads})
	part := func(i int) engine.Tensor { return call(d, "aten::select.int", x, 0, i) }
	future := call(d, "aten::triu", call(d, "aten::full", []int64{t, t}, math.Inf(-1)), 1)
	p := call(d, "aten::baddbmm", future, part(0), call(d, "aten::transpose.int", part(1), 1, 2), 1.0,
		1/math.Sqrt(float64(c/heads)))
	p = call(d, "aten::softmax.int", p, -1)
	if mask != nil {
		p = call(d, "aten::mul.Tensor", p, call(d, "aten::view", mask, p.Shape()))
	}
	y := call(d, "aten::view", call(d, "aten::bmm", p, part(2)), []int64{b, heads, t, c / heads})
	return call(d, "aten::reshape", call(d, "aten::transpose.int", y, 1, 2), []int64{b, t, c})
}

// attentionMask returns a dropout mask in which some elements are 0 and the others are 1.25.
func attentionMask(d engine.Device, rows, heads, t int64) engine.Tensor {
	xs := make([]float32, rows*heads*t*t)
	for i := range xs {
		if i%7 != 3 && i%5 != 1 {
			xs[i] = 1.25
		}
	}
	return f32(d, []int64{rows, heads, t, t}, xs...)
}

// Millrace's causal attention agrees with libtorch's own operators, forward and backward. Its blocks have 32 positions,
// and the tested lengths are below, equal to and above multiples of 32. Some cases have scores up to 1,000, some have
// dropout.
func TestCausalAttentionIsLibtorchs(t *testing.T) {
	d := device(t, 0)
	for _, c := range []struct {
		rows, t, heads, width int64
		large                 float64
		dropout               bool
	}{
		{1, 1, 1, 1, 1, false},
		{2, 5, 2, 6, 1, false},
		{1, 31, 1, 8, 3, true},
		{2, 32, 4, 32, 1, false},
		{1, 33, 2, 8, 30, true},
		{2, 128, 2, 64, 1, false},
		{1, 200, 1, 16, 1, true},
	} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			m := d.Begin()
			defer d.End(m)
			var mask engine.Tensor
			if c.dropout {
				mask = attentionMask(d, c.rows, c.heads, c.t)
			}
			both := func(how func(x engine.Tensor) engine.Tensor) [2][]float32 {
				x := call(d, "aten::mul.Scalar", wave(d, []int64{c.rows, c.t, 3 * c.width}, 3), c.large)
				x = must(d.Leaf(x, true))
				y := how(x)
				must(0, d.Backward([]engine.Tensor{y}, []engine.Tensor{wave(d, y.Shape(), 5)}))
				return [2][]float32{values(d, y), values(d, must(d.Grad(x)))}
			}
			got := both(func(x engine.Tensor) engine.Tensor {
				return call(d, "millrace::causal_attention", x, c.heads, orNil(mask))
			})
			want := both(func(x engine.Tensor) engine.Tensor { return attentionOf(d, x, c.heads, mask) })
			for i, what := range []string{"output", "gradient"} {
				if c.t == 1 && i == 1 {
					continue // with one position, the gradients of q and k are zero up to rounding
				}
				if far := distance(got[i], want[i]); !(far <= 1e-6*math.Max(1, c.large)) {
					t.Errorf("the %s is %.2g away", what, far)
				}
			}
		})
	}
}

// A row of a micro-batch gets the same bits alone as among the other rows, forward and backward.
func TestCausalAttentionOfASliceHasTheSameBits(t *testing.T) {
	d := device(t, 0)
	m := d.Begin()
	defer d.End(m)
	const rows, length, width = 3, 70, 12
	run := func(from, n int64) (y, g []float32) {
		all, seed := wave(d, []int64{rows, length, 3 * width}, 1), wave(d, []int64{rows, length, width}, 2)
		mask := call(d, "aten::contiguous", call(d, "aten::narrow", attentionMask(d, rows, 2, length), 0, from, n))
		x := must(d.Leaf(call(d, "aten::narrow", all, 0, from, n), true))
		out := call(d, "millrace::causal_attention", x, 2, mask)
		must(0, d.Backward([]engine.Tensor{out}, []engine.Tensor{call(d, "aten::narrow", seed, 0, from, n)}))
		return values(d, out), values(d, must(d.Contiguous(must(d.Grad(x)))))
	}
	y, g := run(0, rows)
	for row := range int64(rows) {
		py, pg := run(row, 1)
		if !slices.Equal(py, y[row*length*width:][:length*width]) ||
			!slices.Equal(pg, g[row*length*width*3:][:length*width*3]) {
			t.Errorf("row %d alone has other bits than among the others", row)
		}
	}
}

func TestCausalAttentionRefuses(t *testing.T) {
	d := device(t, 0)
	m := d.Begin()
	defer d.End(m)
	x := wave(d, []int64{1, 4, 12}, 1)
	for _, args := range [][]any{
		{x, 3}, {x, 0}, {x, -2}, {wave(d, []int64{4, 12}, 1), 2}, {x, 2, wave(d, []int64{1, 2, 4, 3}, 1)},
		{x, 2, call(d, "aten::to.dtype", wave(d, []int64{1, 2, 4, 4}, 1), engine.Float64)},
	} {
		if _, err := d.Call("millrace::causal_attention", args...); err == nil {
			t.Errorf("%v was taken", args)
		}
	}
}

// In float64, millrace's causal attention is composed of libtorch's operators. Its float64 result agrees with the
// float32 result.
func TestCausalAttentionInDoublePrecision(t *testing.T) {
	d := device(t, 0)
	m := d.Begin()
	defer d.End(m)
	x := call(d, "aten::to.dtype", wave(d, []int64{2, 5, 12}, 1), engine.Float64)
	wide := call(d, "aten::to.dtype", call(d, "millrace::causal_attention", x, 2), engine.Float32)
	if far := distance(values(d, call(d, "millrace::causal_attention", wave(d, []int64{2, 5, 12}, 1), 2)),
		values(d, wide)); !(far < 1e-6) {
		t.Errorf("%.2g away from the float32 result", far)
	}
}

// BenchmarkAttention compares millrace's causal attention with libtorch's own operators, forward and backward, for one
// layer of gpt and a micro-batch of two rows.
func BenchmarkAttention(b *testing.B) {
	for _, c := range []struct {
		name string
		how  func(d engine.Device, x engine.Tensor) engine.Tensor
	}{
		{"composed", func(d engine.Device, x engine.Tensor) engine.Tensor { return attentionOf(d, x, 8, nil) }},
		{"operator", func(d engine.Device, x engine.Tensor) engine.Tensor {
			return call(d, "millrace::causal_attention", x, 8)
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			d := device(b, 0)
			x, seed := wave(d, []int64{2, 128, 768}, 1), wave(d, []int64{2, 128, 256}, 2)
			for b.Loop() {
				m := d.Begin()
				y := c.how(d, must(d.Leaf(x, true)))
				must(0, d.Backward([]engine.Tensor{y}, []engine.Tensor{seed}))
				d.End(m)
			}
			x.Free()
			seed.Free()
		})
	}
}

func orNil(t engine.Tensor) any {
	if t == nil {
		return nil
	}
	return t
}
