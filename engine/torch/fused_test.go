package torch_test

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/millrace-ml/millrace/engine"
)

// fusedCase is a linear layer and what follows it, computed by one operator and by libtorch's own operators.
type fusedCase struct {
	name        string
	rows        []int64 // shape of the input, without its last dimension
	in, out     int64
	bias        bool
	adds        bool // whether another tensor of the output's shape is added
	whole, ours func(d engine.Device, x, r, w, b engine.Tensor) engine.Tensor
}

func geluOf(d engine.Device, x, _, w, b engine.Tensor) engine.Tensor {
	return call(d, "aten::gelu", call(d, "aten::linear", x, w, orNil(b)))
}

func linearGelu(d engine.Device, x, _, w, b engine.Tensor) engine.Tensor {
	return call(d, "millrace::linear_gelu", x, w, orNil(b))
}

func sumOf(d engine.Device, x, r, w, b engine.Tensor) engine.Tensor {
	return call(d, "aten::add.Tensor", r, call(d, "aten::linear", x, w, orNil(b)))
}

func linearAdd(d engine.Device, x, r, w, b engine.Tensor) engine.Tensor {
	return call(d, "millrace::linear_add", r, x, w, orNil(b))
}

var fusedCases = []fusedCase{
	{name: "gelu", rows: []int64{2, 5}, in: 6, out: 7, bias: true, whole: geluOf, ours: linearGelu},
	{name: "gelu without bias", rows: []int64{3}, in: 4, out: 33, whole: geluOf, ours: linearGelu},
	{name: "gelu of many", rows: []int64{2, 40}, in: 64, out: 130, bias: true, whole: geluOf, ours: linearGelu},
	{name: "sum", rows: []int64{2, 5}, in: 6, out: 7, bias: true, adds: true, whole: sumOf, ours: linearAdd},
	{name: "sum without bias", rows: []int64{3}, in: 4, out: 33, adds: true, whole: sumOf, ours: linearAdd},
	{name: "sum of many", rows: []int64{2, 40}, in: 64, out: 130, bias: true, adds: true, whole: sumOf, ours: linearAdd},
}

// gradients returns the outputs and all gradients of two micro-batches.
func (c fusedCase) gradients(d engine.Device, how func(d engine.Device, x, r, w, b engine.Tensor) engine.Tensor,
	back func(outputs, grads []engine.Tensor) error, last ...func(),
) [][]float32 {
	leaf := func(seed int, shape ...int64) engine.Tensor { return must(d.Leaf(wave(d, shape, seed), true)) }
	w := leaf(1, c.out, c.in)
	weights := []engine.Tensor{w}
	var b, r engine.Tensor
	if c.bias {
		b = leaf(2, c.out)
		weights = append(weights, b)
	}
	var all [][]float32
	for micro := range 2 {
		x := leaf(10+micro, append(slices.Clone(c.rows), c.in)...)
		reads := []engine.Tensor{x}
		if c.adds {
			r = leaf(15+micro, append(slices.Clone(c.rows), c.out)...)
			reads = append(reads, r)
		}
		y := how(d, x, r, w, b)
		all = append(all, values(d, y))
		must(0, back([]engine.Tensor{y}, []engine.Tensor{wave(d, y.Shape(), 20+micro)}))
		for _, t := range reads {
			all = append(all, values(d, must(d.Grad(t))))
		}
	}
	for _, f := range last {
		f()
	}
	for _, p := range weights {
		all = append(all, values(d, must(d.Grad(p))))
	}
	return all
}

// Two micro-batches produce outputs and gradients with the same bits in each of three orders. In the first order each
// backward is whole. In the second it runs in halves. In the third the weight halves of both micro-batches run at the
// end. The outputs and gradients agree with libtorch's within a millionth.
func TestFusedLinearInHalvesAndAgainstLibtorch(t *testing.T) {
	for _, c := range fusedCases {
		t.Run(c.name, func(t *testing.T) {
			d := device(t, 0)
			m := d.Begin()
			defer d.End(m)
			whole := c.gradients(d, c.ours, d.Backward)
			halves := c.gradients(d, c.ours, func(outputs, grads []engine.Tensor) error {
				w, err := d.BackwardInput(outputs, grads)
				return errors.Join(err, w.Run())
			})
			var later []engine.Work
			atTheEnd := c.gradients(d, c.ours, func(outputs, grads []engine.Tensor) error {
				w, err := d.BackwardInput(outputs, grads)
				later = append(later, w)
				return err
			}, func() {
				for _, w := range later {
					must(0, w.Run())
				}
			})
			theirs := c.gradients(d, c.whole, d.Backward)
			for i, g := range whole {
				if !slices.Equal(g, halves[i]) || !slices.Equal(g, atTheEnd[i]) {
					t.Errorf("gradient or output %d differs between whole and halves", i)
				}
				if far := distance(g, theirs[i]); !(far <= 1e-6) {
					t.Errorf("gradient or output %d is %.2g away from libtorch's", i, far)
				}
			}
		})
	}
}

// From -8 to 8 and at ±1e20, gelu differs from a float64 evaluation by at most 3e-7. If the result is above 1, the
// bound is 3e-7 times the result. Its derivative differs by at most 2e-7.
func TestGeluOfTheWholeRange(t *testing.T) {
	needsKernels(t)
	d := device(t, 0)
	m := d.Begin()
	defer d.End(m)
	const n = 1601
	xs := make([]float32, n, n+3)
	for i := range xs {
		xs[i] = float32(i-n/2) / 100
	}
	xs = append(xs, -1e20, 1e20, 0)
	x := must(d.Leaf(f32(d, []int64{int64(len(xs)), 1}, xs...), true))
	y := call(d, "millrace::linear_gelu", x, must(d.Leaf(f32(d, []int64{1, 1}, 1), false)))
	must(0, d.Backward([]engine.Tensor{y}, []engine.Tensor{must(d.Full(engine.Float32, y.Shape(), 1))}))
	got, slope := values(d, y), values(d, must(d.Grad(x)))
	for i, x32 := range xs {
		x := float64(x32)
		below := math.Erfc(-x/math.Sqrt2) / 2
		want, rise := x*below, below+x*math.Exp(-x*x/2)/math.Sqrt(2*math.Pi)
		if far := math.Abs(float64(got[i]) - want); !(far <= 3e-7*math.Max(1, math.Abs(want))) {
			t.Errorf("gelu(%v) is %v, want %v", x, got[i], want)
		}
		if far := math.Abs(float64(slope[i]) - rise); !(far <= 2e-7) {
			t.Errorf("gelu'(%v) is %v, want %v", x, slope[i], rise)
		}
	}
}

func TestFusedLinearRefuses(t *testing.T) {
	d := device(t, 0)
	m := d.Begin()
	defer d.End(m)
	x, w, b := wave(d, []int64{2, 3}, 1), wave(d, []int64{4, 3}, 2), wave(d, []int64{4}, 3)
	computed := call(d, "aten::relu", must(d.Leaf(w, true)))
	for _, c := range []struct {
		op   string
		args []any
	}{
		{"millrace::linear_gelu", []any{x, b}},
		{"millrace::linear_gelu", []any{x, wave(d, []int64{4, 2}, 1)}},
		{"millrace::linear_gelu", []any{x, w, x}},
		{"millrace::linear_gelu", []any{x, computed, b}},
		{"millrace::linear_add", []any{x, x, w, b}},
		{"millrace::linear_add", []any{wave(d, []int64{2, 4}, 1), x, computed, b}},
	} {
		if _, err := d.Call(c.op, c.args...); err == nil {
			t.Errorf("%s took %v", c.op, c.args)
		}
	}
}

// BenchmarkFused measures both halves of the feed-forward network in a block of gpt, forward and backward, for a
// micro-batch of two rows.
func BenchmarkFused(b *testing.B) {
	for _, c := range fusedCases {
		c.rows, c.in, c.out = []int64{2, 128}, 256, 1024
		if c.adds {
			c.in, c.out = 1024, 256
		}
		if !c.bias || c.name == "gelu of many" || c.name == "sum of many" {
			continue
		}
		for name, how := range map[string]func(d engine.Device, x, r, w, b engine.Tensor) engine.Tensor{"composed": c.whole,
			"operator": c.ours} {
			b.Run(c.name+"/"+name, func(b *testing.B) {
				d := device(b, 0)
				all := d.Begin()
				defer d.End(all)
				x, r, seed := wave(d, []int64{2, 128, c.in}, 1), wave(d, []int64{2, 128, c.out}, 3),
					wave(d, []int64{2, 128, c.out}, 2)
				w, bias := must(d.Leaf(wave(d, []int64{c.out, c.in}, 1), true)), must(d.Leaf(wave(d, []int64{c.out}, 1), true))
				for b.Loop() {
					m := d.Begin()
					y := how(d, must(d.Leaf(x, true)), must(d.Leaf(r, true)), w, bias)
					must(0, d.Backward([]engine.Tensor{y}, []engine.Tensor{seed}))
					d.End(m)
				}
			})
		}
	}
}
