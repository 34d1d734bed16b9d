package torch_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/millrace-ml/millrace/engine"
)

// productSizes lists m, n and k. The factor x is m by k, and the factor w is n by k. The kernels divide a product into
// tiles, panels and passes. A tile has a limited number of rows and columns, a panel a limited number of terms, and a
// pass a limited number of rows. The sizes are below, at and above these limits.
var productSizes = [][3]int64{
	{1, 1, 1}, {11, 31, 15}, {12, 32, 16}, {13, 33, 17}, {5, 70, 256}, {25, 64, 257}, {385, 40, 20}, {30, 20, 1024},
	{7, 512, 600},
}

// The test compares three products of a linear layer with sums in float64: the output, the gradient of x, and the
// gradient of w. The three products transpose different factors. Some sizes fill tiles, panels and passes exactly;
// others do not.
func TestProducts(t *testing.T) {
	d := device(t, 0)
	for _, size := range productSizes {
		m, n, k := size[0], size[1], size[2]
		t.Run(fmt.Sprintf("%dx%dx%d", m, n, k), func(t *testing.T) {
			scope := d.Begin()
			defer d.End(scope)
			x, w := must(d.Leaf(wave(d, []int64{m, k}, 1), true)), must(d.Leaf(wave(d, []int64{n, k}, 2), true))
			y := call(d, "millrace::linear", x, w, nil)
			g := wave(d, []int64{m, n}, 3)
			must(0, d.Backward([]engine.Tensor{y}, []engine.Tensor{g}))
			xs, ws, gs := values(d, x), values(d, w), values(d, g)
			near(t, "y", values(d, y), m, n, k, func(i, j, p int64) (float32, float32) { return xs[i*k+p], ws[j*k+p] })
			near(t, "x's gradient", values(d, must(d.Grad(x))), m, k, n,
				func(i, j, p int64) (float32, float32) { return gs[i*n+p], ws[p*k+j] })
			near(t, "w's gradient", values(d, must(d.Grad(w))), n, k, m,
				func(i, j, p int64) (float32, float32) { return gs[p*n+i], xs[p*k+j] })
		})
	}
}

// near fails the test if a product differs from sums in float64 by more than the rounding errors allow.
func near(t *testing.T, what string, got []float32, rows, columns, terms int64,
	term func(i, j, p int64) (float32, float32)) {
	t.Helper()
	for i := range rows {
		for j := range columns {
			var sum, size float64
			for p := range terms {
				a, b := term(i, j, p)
				sum += float64(a) * float64(b)
				size += math.Abs(float64(a) * float64(b))
			}
			if off := math.Abs(float64(got[i*columns+j]) - sum); off > size*float64(terms+2)*0x1p-24 {
				t.Fatalf("%s at %d, %d is %g; it is %g, off by %g", what, i, j, got[i*columns+j], sum, off)
			}
		}
	}
}

// With AVX-512 the bits of a row do not depend on other rows. So replicas that share a micro-batch's rows compute the
// same bits as a single worker.
func TestProductRowsStandAlone(t *testing.T) {
	needsProducts(t)
	d := device(t, 0)
	scope := d.Begin()
	defer d.End(scope)
	const rows, in, out = 40, 300, 70
	x, w, b := wave(d, []int64{rows, in}, 1), wave(d, []int64{out, in}, 2), wave(d, []int64{out}, 3)
	whole := values(d, call(d, "millrace::linear", x, w, b))
	for _, part := range [][2]int64{{0, 12}, {1, 13}, {3, 40}} {
		slice := call(d, "aten::slice.Tensor", x, 0, part[0], part[1])
		got := values(d, call(d, "millrace::linear", slice, w, b))
		if !slices.Equal(got, whole[part[0]*out:part[1]*out]) {
			t.Errorf("rows %d to %d have other bits than in the whole", part[0], part[1])
		}
	}
}
