package torch_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/millrace-ml/millrace/engine"
)

type splitCase struct {
	name, whole string
	reads       []int64 // shape of the input; nil means an input of whole numbers
	weights     [][]int64
	args        []any // arguments after the tensors
}

// of returns the same case for another operator.
func (c splitCase) of(name string) splitCase {
	c.name = name
	return c
}

// gradients runs an operator forward and backward for two micro-batches, and then calls the functions in `last`. It
// returns the gradient of each micro-batch's input, unless inputs have no gradient, and after them the gradients of the
// weights.
func (c splitCase) gradients(d engine.Device, back func(outputs, grads []engine.Tensor) error,
	last ...func()) [][]float32 {
	var weights []engine.Tensor
	for k, shape := range c.weights {
		weights = append(weights, must(d.Leaf(wave(d, shape, k+1), true)))
	}
	var all [][]float32
	for micro := range 2 {
		var x engine.Tensor
		if c.reads == nil {
			x = must(d.FromBytes(engine.Int64, []int64{3},
				slices.Concat([]byte{byte(micro)}, make([]byte, 7), []byte{3}, make([]byte, 15))))
		} else {
			x = must(d.Leaf(wave(d, c.reads, 10+micro), true))
		}
		args := []any{x}
		if c.reads == nil {
			args = nil
		}
		if c.name == "aten::layer_norm" {
			args = append(args, c.weights[0])
		}
		for _, w := range weights {
			args = append(args, w)
		}
		if c.reads == nil {
			args = append(args, x)
		}
		if c.reads != nil && len(weights) == 1 && len(c.args) > 0 {
			args = append(args, nil)
		}
		y := call(d, c.name, append(args, c.args...)...)
		must(0, back([]engine.Tensor{y}, []engine.Tensor{wave(d, y.Shape(), 20+micro)}))
		if c.reads != nil {
			all = append(all, values(d, must(d.Grad(x))))
		}
	}
	for _, f := range last {
		f()
	}
	for _, w := range weights {
		all = append(all, values(d, must(d.Grad(w))))
	}
	return all
}

// wave returns a tensor of different numbers.
func wave(d engine.Device, shape []int64, seed int) engine.Tensor {
	n := int64(1)
	for _, s := range shape {
		n *= s
	}
	xs := make([]float32, n)
	for i := range xs {
		xs[i] = float32(math.Sin(float64(7*i+13*seed) + 1/float64(i+seed)))
	}
	return f32(d, shape, xs...)
}

// distance is ||a - b|| / ||b||.
func distance(a, b []float32) float64 {
	var diff, norm float64
	for i := range b {
		diff += math.Pow(float64(a[i])-float64(b[i]), 2)
		norm += float64(b[i]) * float64(b[i])
	}
	return math.Sqrt(diff / norm)
}

// splittable lists calls of operators whose backward can be run in halves. Each has the shapes of its input and of its
// weights, and libtorch's own operator that computes the same.
var splittable = []splitCase{
	{name: "millrace::linear", whole: "aten::linear", reads: []int64{2, 5, 6}, weights: [][]int64{{7, 6}, {7}}},
	{name: "millrace::linear", whole: "aten::linear", reads: []int64{5, 6}, weights: [][]int64{{7, 6}}},
	{
		name: "millrace::conv2d", whole: "aten::conv2d", reads: []int64{2, 3, 6, 6}, weights: [][]int64{{4, 3, 3, 3}, {4}},
		args: []any{[]int64{2, 2}, []int64{1, 1}},
	},
	{
		name: "millrace::conv2d", whole: "aten::conv2d", reads: []int64{2, 4, 7, 6}, weights: [][]int64{{6, 2, 3, 2}, {6}},
		args: []any{[]int64{2, 1}, []int64{0, 3}, []int64{1, 2}, 2},
	},
	{ // a convolution of each channel separately
		name: "millrace::conv2d", whole: "aten::conv2d", reads: []int64{3, 4, 5, 6}, weights: [][]int64{{8, 1, 3, 3}},
		args: []any{[]int64{1, 1}, []int64{2, 2}, []int64{2, 2}, 4},
	},
	{name: "millrace::layer_norm", whole: "aten::layer_norm", reads: []int64{3, 8}, weights: [][]int64{{8}, {8}},
		args: []any{1e-5}},
	{name: "millrace::layer_norm", whole: "aten::layer_norm", reads: []int64{2, 70, 33}, weights: [][]int64{{33}, {33}},
		args: []any{1e-5}},
	{name: "millrace::embedding", whole: "aten::embedding", weights: [][]int64{{4, 3}}},
	{name: "millrace::embedding", whole: "aten::embedding", weights: [][]int64{{4, 3}}, args: []any{3}}, // padding index
}

// TestAWeightsHalfLaterHasTheSameBits runs two micro-batches through each operator in three ways: whole, in halves
// directly after each other, and with both weight halves at the end. All three give the same bits, and agree with
// libtorch's own backward up to rounding.
func TestAWeightsHalfLaterHasTheSameBits(t *testing.T) {
	for _, c := range splittable {
		t.Run(fmt.Sprintf("%s %v", c.name, c.reads), func(t *testing.T) {
			d := device(t, 0)
			m := d.Begin()
			defer d.End(m)
			whole := c.gradients(d, d.Backward)
			var later []engine.Work
			halves := c.gradients(d, func(outputs, grads []engine.Tensor) error {
				w, err := d.BackwardInput(outputs, grads)
				if err == nil && w.Size() != 1 {
					t.Errorf("%d operators left a half, not 1", w.Size())
				}
				return errors.Join(err, w.Run())
			})
			atTheEnd := c.gradients(d, func(outputs, grads []engine.Tensor) error {
				w, err := d.BackwardInput(outputs, grads)
				later = append(later, w)
				return err
			}, func() {
				for _, w := range later {
					must(0, w.Run())
				}
			})
			alone := c.of(c.whole).gradients(d, d.Backward)
			for i, g := range whole {
				if !slices.Equal(g, halves[i]) || !slices.Equal(g, atTheEnd[i]) {
					t.Errorf("gradient %d: whole %v, in halves %v, weights at the end %v", i, g, halves[i], atTheEnd[i])
				}
				if c.whole == "aten::conv2d" && !slices.Equal(g, alone[i]) {
					t.Errorf("gradient %d has other bits than that of %s", i, c.whole)
				}
				if d := distance(g, alone[i]); !(d <= 1e-6) {
					t.Errorf("gradient %d is %.2g away from that of %s: %v and %v", i, d, c.whole, g, alone[i])
				}
			}
			if w := later[0]; w.Run() == nil {
				t.Error("a weights' half ran twice")
			}
		})
	}
}
