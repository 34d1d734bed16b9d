package torch_test

import (
	"math"
	"slices"
	"testing"

	"github.com/millrace-ml/millrace/engine"
)

// If the mean is about a thousand times the spread, the result is still within 1e-4 of a float64 evaluation.
func TestLayerNormFarFromZero(t *testing.T) {
	d := device(t, 0)
	m := d.Begin()
	defer d.End(m)
	const n = 256
	xs := make([]float32, n)
	for i := range xs {
		xs[i] = 1000 + float32(i%16)/8
	}
	var sum, squares float64
	for _, x := range xs {
		sum += float64(x)
	}
	for _, x := range xs {
		squares += math.Pow(float64(x)-sum/n, 2)
	}
	ones, zeros := must(d.Full(engine.Float32, []int64{n}, 1)), must(d.Full(engine.Float32, []int64{n}, 0))
	got := values(d, call(d, "millrace::layer_norm", f32(d, []int64{1, n}, xs...), ones, zeros, 1e-5))
	for i, x := range xs {
		want := (float64(x) - sum/n) / math.Sqrt(squares/n+1e-5)
		if math.Abs(float64(got[i])-want) > 1e-4 {
			t.Fatalf("element %d is %v, want %v", i, got[i], want)
		}
	}
}

// A row gets the same bits alone as among other rows.
func TestLayerNormOfASliceHasTheSameBits(t *testing.T) {
	d := device(t, 0)
	m := d.Begin()
	defer d.End(m)
	const rows, width = 150, 37
	gain, shift := wave(d, []int64{width}, 1), wave(d, []int64{width}, 2)
	all := wave(d, []int64{rows, width}, 3)
	whole := values(d, call(d, "millrace::layer_norm", all, gain, shift, 1e-5))
	for _, from := range []int64{0, 63, 64, 149} {
		part := values(d, call(d, "millrace::layer_norm", call(d, "aten::narrow", all, 0, from, 1), gain, shift, 1e-5))
		if !slices.Equal(part, whole[from*width:][:width]) {
			t.Errorf("row %d alone has other bits", from)
		}
	}
	if _, err := d.Call("millrace::layer_norm", all, shift, wave(d, []int64{width + 1}, 1), 1e-5); err == nil {
		t.Error("a shift of another width was taken")
	}
}

// BenchmarkLayerNorm measures a layer norm of gpt for a micro-batch of two rows, forward and backward.
func BenchmarkLayerNorm(b *testing.B) {
	for _, c := range []struct {
		op   string
		args func(x, gain, shift engine.Tensor) []any
	}{
		{"aten::layer_norm", func(x, gain, shift engine.Tensor) []any { return []any{x, []int64{256}, gain, shift, 1e-5} }},
		{"millrace::layer_norm", func(x, gain, shift engine.Tensor) []any { return []any{x, gain, shift, 1e-5} }},
	} {
		b.Run(c.op, func(b *testing.B) {
			d := device(b, 0)
			all := d.Begin()
			defer d.End(all)
			x, seed := wave(d, []int64{2, 128, 256}, 1), wave(d, []int64{2, 128, 256}, 2)
			gain, shift := must(d.Leaf(wave(d, []int64{256}, 3), true)), must(d.Leaf(wave(d, []int64{256}, 4), true))
			for b.Loop() {
				m := d.Begin()
				y := call(d, c.op, c.args(must(d.Leaf(x, true)), gain, shift)...)
				must(0, d.Backward([]engine.Tensor{y}, []engine.Tensor{seed}))
				d.End(m)
			}
		})
	}
}
