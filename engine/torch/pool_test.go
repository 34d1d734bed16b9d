package torch_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/millrace-ml/millrace/engine"
)

// Values and gradients equal libtorch's. The cases include windows that leave rows and columns over, equal elements,
// and NaN.
func TestMaxPoolIsLibtorchs(t *testing.T) {
	d := device(t, 0)
	for _, c := range []struct {
		shape []int64
		size  int64
	}{
		{[]int64{1, 1, 2, 2}, 2}, {[]int64{2, 3, 28, 28}, 2}, {[]int64{2, 3, 7, 9}, 2}, {[]int64{1, 2, 8, 67}, 2},
		{[]int64{2, 3, 7, 9}, 3}, {[]int64{2, 2, 3, 3}, 3}, {[]int64{1, 2, 4, 5}, 1}, {[]int64{1, 1, 40, 33}, 16},
	} {
		for _, what := range []string{"unlike", "equal", "no number"} {
			t.Run(fmt.Sprintf("%v %d %s", c.shape, c.size, what), func(t *testing.T) {
				m := d.Begin()
				defer d.End(m)
				xs := values(d, wave(d, c.shape, 4))
				for i := range xs {
					if what == "equal" {
						xs[i] = float32(math.Round(float64(xs[i])))
					}
					if what == "no number" && i%11 == 3 {
						xs[i] = float32(math.NaN())
					}
				}
				both := func(op string, args ...any) [2][]float32 {
					x := must(d.Leaf(f32(d, c.shape, xs...), true))
					y := call(d, op, append([]any{x}, args...)...)
					must(0, d.Backward([]engine.Tensor{y}, []engine.Tensor{wave(d, y.Shape(), 9)}))
					return [2][]float32{values(d, y), values(d, must(d.Grad(x)))}
				}
				window := []int64{c.size, c.size}
				got, want := both("millrace::max_pool", c.size), both("aten::max_pool2d", window, window)
				for i, name := range []string{"values", "gradients"} {
					same := func(a, b float32) bool { return a == b || a != a && b != b }
					if !slices.EqualFunc(got[i], want[i], same) {
						t.Errorf("%s %v, want %v", name, got[i], want[i])
					}
				}
			})
		}
	}
}

func TestMaxPoolRefuses(t *testing.T) {
	d := device(t, 0)
	m := d.Begin()
	defer d.End(m)
	for _, args := range [][]any{{wave(d, []int64{2, 4, 4}, 1), 2}, {wave(d, []int64{1, 1, 4, 4}, 1), 0},
		{wave(d, []int64{1, 1, 4, 3}, 1), 4}} {
		if _, err := d.Call("millrace::max_pool", args...); err == nil {
			t.Errorf("%v was taken", args)
		}
	}
}

// BenchmarkMaxPool measures the first pool of convnet for a micro-batch of 16, forward and backward.
func BenchmarkMaxPool(b *testing.B) {
	for _, c := range []struct {
		op   string
		args []any
	}{{"aten::max_pool2d", []any{[]int64{2, 2}, []int64{2, 2}}}, {"millrace::max_pool", []any{2}}} {
		b.Run(c.op, func(b *testing.B) {
			d := device(b, 0)
			all := d.Begin()
			defer d.End(all)
			x, seed := wave(d, []int64{16, 32, 28, 28}, 1), wave(d, []int64{16, 32, 14, 14}, 2)
			for b.Loop() {
				m := d.Begin()
				y := call(d, c.op, append([]any{must(d.Leaf(x, true))}, c.args...)...)
				must(0, d.Backward([]engine.Tensor{y}, []engine.Tensor{seed}))
				d.End(m)
			}
		})
	}
}
