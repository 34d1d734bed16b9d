package nn_test

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"testing"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/nn"
)

// libtorchs is a device that computes millrace's operators with operators of libtorch. Autograd computes their
// backward.
type libtorchs struct {
	engine.Device
	t testing.TB
}

func (d libtorchs) one(op string, args ...any) engine.Tensor {
	d.t.Helper()
	out, err := d.Device.Call(op, args...)
	if err != nil {
		d.t.Fatal(err)
	}
	return out[0]
}

func (d libtorchs) Call(op string, args ...any) ([]engine.Tensor, error) {
	switch op {
	case "millrace::linear", "millrace::conv2d", "millrace::embedding":
		return d.Device.Call("aten::"+op[len("millrace::"):], args...)
	case "millrace::layer_norm":
		return d.Device.Call("aten::layer_norm", args[0], args[1].(engine.Tensor).Shape(), args[1], args[2], args[3])
	case "millrace::lstm":
		return []engine.Tensor{d.lstm(args[0].(engine.Tensor), args[1], args[2].(engine.Tensor), args[3], args[4] == true)},
			nil
	case "millrace::causal_attention":
		return []engine.Tensor{d.attention(args[0].(engine.Tensor), args[1].(int64), args[2])}, nil
	}
	return d.Device.Call(op, args...)
}

func (d libtorchs) lstm(x engine.Tensor, input any, state engine.Tensor, bias any, reverse bool) engine.Tensor {
	units := state.Shape()[1]
	if reverse {
		x = d.one("aten::flip", x, []int64{1})
	}
	zero := d.one("aten::full", []int64{1, x.Shape()[0], units}, 0.0)
	half := func(from int64) engine.Tensor { return d.one("aten::narrow", bias, 0, from*units, 4*units) }
	y := d.one("aten::lstm.input", x, []engine.Tensor{zero, zero},
		[]engine.Tensor{input.(engine.Tensor), state, half(0), half(4)}, true, 1, 0.0, true, false, true)
	if reverse {
		y = d.one("aten::flip", y, []int64{1})
	}
	return y
}

// attention computes softmax(q k^T / sqrt d) v of qkv [rows, positions, 3 x heads x d]. No position attends to a later
// one.
func (d libtorchs) attention(qkv engine.Tensor, heads int64, mask any) engine.Tensor {
	rows, t, width := qkv.Shape()[0], qkv.Shape()[1], qkv.Shape()[2]/3
	apart := d.one("aten::permute", d.one("aten::view", qkv, []int64{rows, t, 3, heads, width / heads}),
		[]int64{2, 0, 3, 1, 4})
	part := func(i int) engine.Tensor { return d.one("aten::select.int", apart, 0, i) }
	scores := d.one("aten::matmul", part(0), d.one("aten::transpose.int", part(1), -2, -1))
	scores = d.one("aten::mul.Scalar", scores, 1/math.Sqrt(float64(width/heads)))
	future := d.one("aten::triu", d.one("aten::full", []int64{t, t}, math.Inf(-1)), 1)
	p := d.one("aten::softmax.int", d.one("aten::add.Tensor", scores, future), -1)
	if mask != nil {
		p = d.one("aten::mul.Tensor", p, mask)
	}
	y := d.one("aten::matmul", p, part(2))
	return d.one("aten::reshape", d.one("aten::transpose.int", y, 1, 2), []int64{rows, t, width})
}

// layerCase is a layer given by its kind and settings, and the shape of its input for one row.
type layerCase struct {
	kind     string
	settings map[string]any
	reads    []int // shape for a row; nil: eight tokens
	splits   int   // number of operators whose weights' gradients can be computed later
}

var layerCases = []layerCase{
	{"dense", map[string]any{"width": 7, "activation": "gelu"}, []int{5, 6}, 1},
	{"dense", map[string]any{"width": 7, "bias": false}, []int{6}, 1},
	{"conv2d", map[string]any{"channels": 4, "stride": 2, "activation": "relu"}, []int{3, 6, 6}, 1},
	{"conv2d", map[string]any{"channels": 4, "batch_norm": true}, []int{3, 6, 6}, 1},
	{"embedding", map[string]any{"vocabulary": 11, "width": 6, "dropout": 0.2}, nil, 1},
	{"layer_norm", nil, []int{5, 6}, 1},
	{"lstm", map[string]any{"width": 5, "dropout": 0.2}, []int{8, 6}, 1},
	{"lstm", map[string]any{"width": 5, "bidirectional": true}, []int{8, 6}, 2},
	{"attention", map[string]any{"heads": 2}, []int{8, 6}, 3},
	{"attention", map[string]any{"heads": 3, "dropout": 0.2}, []int{8, 6}, 3},
	{"mlp", map[string]any{"dropout": 0.2}, []int{8, 6}, 3},
	{"mlp", map[string]any{"activation": "gelu_tanh"}, []int{8, 6}, 3},
	{"rotary_attention", map[string]any{"heads": 4, "kv_heads": 2}, []int{8, 16}, 4},
	{"rotary_attention", map[string]any{"heads": 2, "kv_heads": 2, "theta": 500.0}, []int{8, 12}, 4},
	{"swiglu", map[string]any{"hidden": 10}, []int{8, 6}, 3},
	{"head", map[string]any{"vocabulary": 9}, []int{8, 6}, 2},
	{"head", map[string]any{"vocabulary": 9, "norm": false}, []int{8, 6}, 1},
}

// describe returns the layer's description. Missing settings have their defaults.
func (c layerCase) describe(t *testing.T) model.Layer {
	t.Helper()
	kinds := model.Kinds()
	k := kinds[slices.IndexFunc(kinds, func(k model.Kind) bool { return k.Name == c.kind })]
	l := model.Layer{Name: "x", Kind: c.kind, Attr: map[string]any{}}
	for _, s := range k.Settings {
		l.Attr[s.Name] = s.Default
	}
	for name, v := range c.settings {
		l.Attr[name] = v
	}
	in := model.Tensor{Shape: c.reads, DType: model.Float}
	if c.reads == nil {
		in = model.Tensor{Shape: []int{8}, DType: model.Int}
	}
	if err := k.Infer(&l, []model.Tensor{in}); err != nil {
		t.Fatal(err)
	}
	return l
}

// gradients runs two micro-batches through the layer. It returns the gradients of both inputs and those accumulated in
// the parameters. If `own` is true, the layer uses libtorch's operators. The function `back` runs one backward. The
// function `last` does the work that remains after both backwards.
func (c layerCase) gradients(t *testing.T, d engine.Device, own bool, back func(outputs, grads []engine.Tensor) error,
	last func()) (names []string, all [][]float64) {
	t.Helper()
	l := c.describe(t)
	layers, err := nn.Build(&model.Model{Layers: []model.Layer{l}})
	if err != nil {
		t.Fatal(err)
	}
	ctx := &nn.Context{Device: d, Training: true, Seed: 3, Rows: 2}
	if own {
		ctx.Device = libtorchs{d, t}
	}
	for j, p := range l.Params {
		if p.Init.Kind == "normal" {
			p.Init.Std = 0.3 // so that gradients are well above rounding errors
		}
		ctx.Params = append(ctx.Params, leaf(t, d, p, 0, j))
	}
	for micro := range 2 {
		ctx.Micro = micro
		x := c.input(t, d, micro)
		out, err := layers[0].Forward(ctx, nn.Bundle{{Name: "x", Tensor: x}})
		if err != nil {
			t.Fatal(err)
		}
		y := out[0].Tensor
		if err := back([]engine.Tensor{y}, []engine.Tensor{waves(t, d, y.Shape(), 20+micro)}); err != nil {
			t.Fatal(err)
		}
		if c.reads != nil {
			names, all = append(names, fmt.Sprintf("x of micro-batch %d", micro)), append(all, gradient(t, d, x))
		}
	}
	last()
	for j, p := range l.Params {
		if !p.Buffer {
			names, all = append(names, p.Name), append(all, gradient(t, d, ctx.Params[j]))
		}
	}
	return names, all
}

func (c layerCase) input(t *testing.T, d engine.Device, seed int) engine.Tensor {
	t.Helper()
	if c.reads == nil {
		ids := make([]int64, 2*8)
		for i := range ids {
			ids[i] = int64((5*i + 3*seed) % 11)
		}
		x, err := d.FromBytes(engine.Int64, []int64{2, 8}, engine.Bytes(ids))
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	shape := []int64{2}
	for _, n := range c.reads {
		shape = append(shape, int64(n))
	}
	x, err := d.Leaf(waves(t, d, shape, seed), true)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// waves returns a tensor of different numbers whose sum is far from zero. A sum near zero would consist only of
// rounding errors.
func waves(t *testing.T, d engine.Device, shape []int64, seed int) engine.Tensor {
	t.Helper()
	n, to := 1, []int{}
	for _, s := range shape {
		n, to = n*int(s), append(to, int(s))
	}
	values := make([]float64, n)
	for i := range values {
		values[i] = 0.5 + math.Sin(float64(7*i+13*seed)+1/float64(i+seed+1))
	}
	return numbers(t, d, engine.Float32, to, values)
}

func gradient(t *testing.T, d engine.Device, x engine.Tensor) []float64 {
	t.Helper()
	g, err := d.Grad(x)
	if err == nil && g != nil {
		g, err = d.Contiguous(g)
	}
	if err != nil || g == nil {
		t.Fatalf("no gradient of %v: %v", x.Shape(), err)
	}
	return read(t, d, g)
}

// TestLayersInHalves: every layer with weights runs in three ways. In the first, backwards are whole. In the second,
// each weight half follows directly after the input half. In the third, both weight halves run at the end. All give the
// same bits, and agree with autograd through libtorch's operators within a millionth.
func TestLayersInHalves(t *testing.T) {
	for _, c := range layerCases {
		t.Run(fmt.Sprint(c.kind, c.settings), func(t *testing.T) {
			d := device(t)
			defer runtime.UnlockOSThread()
			mark := d.Begin()
			defer d.End(mark)
			nothing := func() {}
			names, whole := c.gradients(t, d, false, d.Backward, nothing)
			_, halves := c.gradients(t, d, false, func(outputs, grads []engine.Tensor) error {
				w, err := d.BackwardInput(outputs, grads)
				if err != nil {
					return err
				}
				if w.Size() != c.splits {
					t.Errorf("%d operators left a half, not %d", w.Size(), c.splits)
				}
				return w.Run()
			}, nothing)
			var later []engine.Work
			_, atTheEnd := c.gradients(t, d, false, func(outputs, grads []engine.Tensor) error {
				w, err := d.BackwardInput(outputs, grads)
				later = append(later, w)
				return err
			}, func() {
				for _, w := range later {
					if err := w.Run(); err != nil {
						t.Fatal(err)
					}
				}
			})
			_, own := c.gradients(t, d, true, d.Backward, nothing)
			for i, g := range whole {
				if !slices.Equal(g, halves[i]) || !slices.Equal(g, atTheEnd[i]) {
					t.Errorf("%s: whole, in halves and with the weights at the end differ", names[i])
				}
				if far := apart(g, own[i]); !(far <= 1e-6) {
					t.Errorf("%s is %.2g away from autograd's own", names[i], far)
				}
			}
		})
	}
}

// apart is ||a - b|| / ||b||.
func apart(a, b []float64) float64 {
	var diff, norm float64
	for i := range b {
		diff += (a[i] - b[i]) * (a[i] - b[i])
		norm += b[i] * b[i]
	}
	return math.Sqrt(diff / norm)
}
