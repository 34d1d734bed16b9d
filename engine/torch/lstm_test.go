package torch_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/millrace-ml/millrace/engine"
)

// recurrence holds the sizes of an lstm and the direction in which it reads.
type recurrence struct {
	rows, length, width, units int64
	reverse                    bool
	apart                      bool // there are two tensors of biases, not one
}

// forward returns the states for x. If `theirs` is true, it uses libtorch's own operator.
func (r recurrence) forward(d engine.Device, theirs bool, x engine.Tensor, of []engine.Tensor) engine.Tensor {
	if !theirs {
		args := []any{x, of[0], of[1], of[2], r.reverse}
		if r.apart {
			args = append(args, of[3])
		}
		return call(d, "millrace::lstm", args...)
	}
	if !r.apart {
		half := func(from int64) engine.Tensor { return call(d, "aten::narrow", of[2], 0, from*r.units, 4*r.units) }
		of = []engine.Tensor{of[0], of[1], half(0), half(4)}
	}
	if r.reverse {
		x = call(d, "aten::flip", x, []int64{1})
	}
	state := must(d.Full(engine.Float32, []int64{1, r.rows, r.units}, 0))
	y := call(d, "aten::lstm.input", x, []engine.Tensor{state, state}, of, true, 1, 0.0, true, false, true)
	if r.reverse {
		y = call(d, "aten::flip", y, []int64{1})
	}
	return y
}

// leaves returns the weights of the input and of the state, and the biases.
func (r recurrence) leaves(d engine.Device) []engine.Tensor {
	leaf := func(seed int, shape ...int64) engine.Tensor { return must(d.Leaf(wave(d, shape, seed), true)) }
	of := []engine.Tensor{leaf(1, 4*r.units, r.width), leaf(2, 4*r.units, r.units)}
	if r.apart {
		return append(of, leaf(3, 4*r.units), leaf(4, 4*r.units))
	}
	return append(of, leaf(3, 8*r.units))
}

// gradients returns, for each of two micro-batches, the outputs and the gradient of x. The gradients of the weights
// follow.
func (r recurrence) gradients(d engine.Device, theirs bool, back func(outputs, grads []engine.Tensor) error,
	last ...func()) [][]float32 {
	of := r.leaves(d)
	var all [][]float32
	for micro := range 2 {
		x := must(d.Leaf(wave(d, []int64{r.rows, r.length, r.width}, 10+micro), true))
		y := r.forward(d, theirs, x, of)
		all = append(all, values(d, y))
		must(0, back([]engine.Tensor{y}, []engine.Tensor{wave(d, y.Shape(), 20+micro)}))
		all = append(all, values(d, must(d.Grad(x))))
	}
	for _, f := range last {
		f()
	}
	for _, p := range of {
		all = append(all, values(d, must(d.Grad(p))))
	}
	return all
}

// An lstm's backward gives the same bits in one call and in two halves. The weight halves may also run at the end,
// after both micro-batches. The results agree with libtorch's own lstm within a millionth.
func TestLSTMInHalvesAndAgainstLibtorch(t *testing.T) {
	for _, r := range []recurrence{{3, 5, 4, 6, false, false}, {3, 5, 4, 6, true, false}, {1, 1, 2, 3, false, true},
		{8, 20, 32, 48, false, false}, {8, 20, 32, 48, true, true}} {
		t.Run(fmt.Sprintf("%+v", r), func(t *testing.T) {
			d := device(t, 0)
			m := d.Begin()
			defer d.End(m)
			whole := r.gradients(d, false, d.Backward)
			halves := r.gradients(d, false, func(outputs, grads []engine.Tensor) error {
				w, err := d.BackwardInput(outputs, grads)
				if err != nil {
					return err
				}
				if w.Size() != 1 {
					t.Errorf("%d operators left a half, not 1", w.Size())
				}
				return w.Run()
			})
			var later []engine.Work
			atTheEnd := r.gradients(d, false, func(outputs, grads []engine.Tensor) error {
				w, err := d.BackwardInput(outputs, grads)
				later = append(later, w)
				return err
			}, func() {
				for _, w := range later {
					must(0, w.Run())
				}
			})
			alone := r.gradients(d, true, d.Backward)
			names := []string{"y", "x", "y of the second", "x of the second", "input", "state", "bias", "second bias"}
			for i, g := range whole {
				if !slices.Equal(g, halves[i]) || !slices.Equal(g, atTheEnd[i]) {
					t.Errorf("%s: whole, in halves and with the weights at the end differ", names[i])
				}
				// `far` is NaN if both gradients are zero.
				if far := distance(g, alone[i]); !(far <= 1e-6) && !slices.Equal(g, alone[i]) {
					t.Errorf("%s is %.2g away from aten::lstm's", names[i], far)
				}
			}
		})
	}
}

// Invalid arguments are refused, and so are weights that were computed by an operator.
func TestLSTMRefusals(t *testing.T) {
	d := device(t, 0)
	m := d.Begin()
	defer d.End(m)
	x, w, u, b := wave(d, []int64{2, 3, 4}, 1), wave(d, []int64{8, 4}, 2), wave(d, []int64{8, 2}, 3),
		wave(d, []int64{16}, 4)
	computed := call(d, "aten::tanh", must(d.Leaf(w, true)))
	for _, args := range [][]any{
		{wave(d, []int64{2, 4}, 1), w, u, b}, {x, u, u, b}, {x, w, w, b}, {x, w, u, wave(d, []int64{8}, 1)},
		{must(d.Full(engine.Float32, []int64{2, 0, 4}, 0)), w, u, b}, {x, computed, u, b},
		{x, w, u, b, false, b}, {x, w, u, wave(d, []int64{8}, 1), false, wave(d, []int64{16}, 1)},
		{x, w, u, wave(d, []int64{8}, 1), false, call(d, "aten::tanh", must(d.Leaf(wave(d, []int64{8}, 1), true)))},
	} {
		if _, err := d.Call("millrace::lstm", args...); err == nil {
			t.Errorf("%v was computed", args)
		}
	}
}

// BenchmarkLSTM measures forward and backward of a layer of the language model: 16 rows of 128 positions, 256 units.
func BenchmarkLSTM(b *testing.B) {
	for _, theirs := range []bool{false, true} {
		b.Run(map[bool]string{false: "ours", true: "libtorch's"}[theirs], func(b *testing.B) {
			d := device(b, 0)
			r := recurrence{rows: 16, length: 128, width: 256, units: 256}
			whole := d.Begin()
			defer d.End(whole)
			of := r.leaves(d)
			x := must(d.Leaf(wave(d, []int64{r.rows, r.length, r.width}, 10), true))
			seed := wave(d, []int64{r.rows, r.length, r.units}, 20)
			for b.Loop() {
				m := d.Begin()
				must(0, d.Backward([]engine.Tensor{r.forward(d, theirs, x, of)}, []engine.Tensor{seed}))
				d.End(m)
			}
		})
	}
}
