package ref

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/millrace-ml/millrace/engine"
	"pgregory.net/rapid"
)

func open(t interface{ Fatal(...any) }) *Device {
	d, err := New().Open(0, 1)
	if err != nil {
		t.Fatal(err)
	}
	return d.(*Device)
}

// numbers returns a tensor of small random numbers.
func numbers(t *rapid.T, d *Device, name string, shape ...int64) *Tensor {
	x, err := d.Full(engine.Float64, shape, 0)
	if err != nil {
		t.Fatal(err)
	}
	for i := range x.(*Tensor).floats {
		x.(*Tensor).floats[i] = rapid.Float64Range(-2, 2).Draw(t, name)
	}
	return x.(*Tensor)
}

// drawn is a call of an operator. Gradients flow to the tensors in `wrt`. If `args` is set, these tensors replace the
// nil arguments in `args`, in order. Otherwise the tensors in `wrt` are the arguments. For aten::cat the arguments are
// the list of the tensors in `wrt`, and `dim`.
type drawn struct {
	name string
	wrt  []*Tensor
	args []any
	dim  int
}

// drawOperator draws an operator and its inputs.
func drawOperator(t *rapid.T, d *Device) drawn {
	switch rapid.IntRange(0, 11).Draw(t, "op") {
	case 0:
		return drawn{name: "millrace::linear",
			wrt: []*Tensor{numbers(t, d, "x", 2, 3), numbers(t, d, "w", 4, 3), numbers(t, d, "b", 4)}}
	case 1:
		return drawn{name: "aten::tanh", wrt: []*Tensor{numbers(t, d, "x", 3)}}
	case 2:
		return drawn{name: "aten::gelu", wrt: []*Tensor{numbers(t, d, "x", 3)}}
	case 3:
		return drawn{name: "aten::mul.Tensor", wrt: []*Tensor{numbers(t, d, "a", 2, 2), numbers(t, d, "b", 2, 2)}}
	case 4:
		return drawn{name: "aten::add.Tensor", wrt: []*Tensor{numbers(t, d, "a", 2, 2), numbers(t, d, "b", 2, 2)}}
	case 5:
		target, _ := d.Full(engine.Int64, []int64{3}, 2)
		return drawn{name: "aten::cross_entropy_loss", wrt: []*Tensor{numbers(t, d, "x", 3, 4)}, args: []any{nil, target}}
	case 6:
		return drawn{name: "aten::cat", wrt: []*Tensor{numbers(t, d, "a", 2, 2), numbers(t, d, "b", 2, 3)}, dim: 1}
	case 7:
		return drawn{name: "millrace::layer_norm",
			wrt:  []*Tensor{numbers(t, d, "x", 2, 4), numbers(t, d, "gain", 4), numbers(t, d, "shift", 4)},
			args: []any{nil, nil, nil, 0.1}}
	case 8:
		ids, _ := d.FromBytes(engine.Int64, []int64{3},
			slices.Concat([]byte{2, 0, 0, 0, 0, 0, 0, 0}, make([]byte, 8), []byte{2, 0, 0, 0, 0, 0, 0, 0}))
		return drawn{name: "millrace::embedding", wrt: []*Tensor{numbers(t, d, "table", 4, 2)}, args: []any{nil, ids}}
	case 9:
		return drawn{name: "millrace::lstm", wrt: []*Tensor{numbers(t, d, "x", 2, 3, 2), numbers(t, d, "input", 8, 2),
			numbers(t, d, "state", 8, 2), numbers(t, d, "bias", 16)},
			args: []any{nil, nil, nil, nil, rapid.Bool().Draw(t, "reverse")}}
	case 10:
		return drawn{name: "aten::cat", wrt: []*Tensor{numbers(t, d, "a", 2, 2, 1), numbers(t, d, "b", 2, 2, 3)}, dim: 2}
	default:
		return drawn{name: "aten::mul.Tensor", wrt: []*Tensor{numbers(t, d, "a", 2, 3, 2)},
			args: []any{nil, numbers(t, d, "mask", 2, 1, 2)}}
	}
}

// weighted returns the operator's output, and the sum of the output's numbers weighted by 1, 2, 3, ...
func (o drawn) weighted(t *rapid.T, d *Device, leaves []engine.Tensor) (engine.Tensor, float64) {
	given := slices.Clone(o.args)
	if o.name == "aten::cat" {
		given = []any{leaves, o.dim}
	} else if given == nil {
		for _, l := range leaves {
			given = append(given, l)
		}
	} else {
		next := 0
		for i, a := range given {
			if a == nil {
				given[i] = leaves[next]
				next++
			}
		}
	}
	out, err := d.Call(o.name, given...)
	if err != nil {
		t.Fatal(err)
	}
	y, s := out[0].(*Tensor), 0.0
	for i, v := range y.floats {
		s += float64(i+1) * v
	}
	return y, s
}

// The gradients of a randomly drawn operator agree with slopes that are measured by changing its inputs slightly.
func TestGradientsAreSlopes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := open(t)
		mark := d.Begin()
		defer d.Close()
		defer d.End(mark)
		op := drawOperator(t, d)
		leaves := make([]engine.Tensor, len(op.wrt))
		for i, x := range op.wrt {
			leaves[i], _ = d.Leaf(x, true)
		}
		y, _ := op.weighted(t, d, leaves)
		g, _ := d.Full(engine.Float64, y.Shape(), 0)
		for i := range g.(*Tensor).floats {
			g.(*Tensor).floats[i] = float64(i + 1)
		}
		if err := d.Backward([]engine.Tensor{y}, []engine.Tensor{g}); err != nil {
			t.Fatal(err)
		}
		const h = 1e-5
		for i, x := range op.wrt {
			grad, err := d.Grad(leaves[i])
			if err != nil || grad == nil {
				t.Fatalf("%s: input %d has no gradient: %v", op.name, i, err)
			}
			for k := range x.floats {
				before := x.floats[k]
				x.floats[k] = before + h
				_, up := op.weighted(t, d, leaves)
				x.floats[k] = before - h
				_, down := op.weighted(t, d, leaves)
				x.floats[k] = before
				want, got := (up-down)/(2*h), grad.(*Tensor).floats[k]
				if math.Abs(got-want) > 1e-4*(1+math.Abs(want)) {
					t.Fatalf("%s: gradient %v of input %d, slope %v", op.name, got, i, want)
				}
			}
		}
	})
}

func TestBytesAreCountedByOwner(t *testing.T) {
	a, b := open(t), open(t)
	mark := a.Begin()
	x, _ := a.Full(engine.Float64, []int64{100}, 1)
	leaf, _ := a.Leaf(x, false) // shares the memory
	if got := a.Memory().LiveBytes; got != 800 {
		t.Errorf("%d bytes live, want 800", got)
	}
	sent := a.Disown(leaf)
	a.End(mark)
	mine, err := b.Adopt(sent)
	if err != nil {
		t.Fatal(err)
	}
	if got, took := a.Memory().LiveBytes, b.Memory().LiveBytes; got != 0 || took != 800 {
		t.Errorf("after the hand-over %d and %d bytes, want 0 and 800", got, took)
	}
	if _, err := b.Adopt(sent); err == nil {
		t.Error("a spent handle was adopted twice")
	}
	mine.Free()
	mine.Free()
	if got := b.Memory(); got.LiveBytes != 0 || got.PeakBytes != 800 {
		t.Errorf("%+v, want 0 live of 800 at most", got)
	}
	if n := a.Close() + b.Close(); n != 0 {
		t.Errorf("%d handles left", n)
	}
}

func TestBackwardFreesItsGraph(t *testing.T) {
	d := open(t)
	mark := d.Begin()
	x, _ := d.Full(engine.Float64, []int64{10}, 0.5)
	leaf, _ := d.Leaf(x, true)
	y, _ := d.Call("aten::tanh", leaf)
	z, _ := d.Call("aten::tanh", y[0])
	g, _ := d.Full(engine.Float64, []int64{10}, 1)
	y[0].Free()
	before := d.Memory().LiveBytes // bytes of x, z, g, and of y, which the graph holds
	if err := d.Backward(z, []engine.Tensor{g}); err != nil {
		t.Fatal(err)
	}
	// The backward has freed y, and has made the leaf's gradient.
	if got := d.Memory().LiveBytes; before != 4*80 || got != 4*80 {
		t.Errorf("%d bytes before and %d after the backward, want 320 both times", before, got)
	}
	if err := d.Backward(z, []engine.Tensor{g}); err == nil {
		t.Error("a freed graph went backward again")
	}
	d.End(mark)
	if d.Memory().LiveBytes != 0 || d.Close() != 0 {
		t.Errorf("%d bytes left", d.Memory().LiveBytes)
	}
}

// A backward that is refused keeps none of the gradients that it was given or has made.
func TestARefusedBackwardKeepsNothing(t *testing.T) {
	d := open(t)
	mark := d.Begin()
	x, _ := d.Full(engine.Float64, []int64{10}, 0.5)
	leaf, _ := d.Leaf(x, true)
	y, _ := d.Call("aten::tanh", leaf)
	z, _ := d.Call("aten::tanh", leaf)
	s, _ := d.Call("aten::sum", z[0])
	g, _ := d.Full(engine.Float64, []int64{10}, 1)
	wrong, _ := d.Full(engine.Float64, []int64{9}, 1)
	if err := d.Backward(y, []engine.Tensor{g}); err != nil {
		t.Fatal(err)
	}
	for _, c := range [][2][]engine.Tensor{
		{{s[0], z[0], z[0]}, {nil, g, wrong}}, // the first gradient is made before the error
		{{z[0], y[0]}, {g, g}},                // the second output no longer has a graph
	} {
		if err := d.Backward(c[0], c[1]); err == nil {
			t.Errorf("a backward of %d outputs was not refused", len(c[0]))
		}
	}
	d.End(mark)
	if got := d.Memory().LiveBytes; got != 0 || d.Close() != 0 {
		t.Errorf("%d bytes left", got)
	}
}

// A forward of a small network holds the expected bytes, and after its backward all are freed.
func TestAStepLeavesNothing(t *testing.T) {
	d := open(t)
	for range 2 {
		mark := d.Begin()
		x, _ := d.Full(engine.Float64, []int64{4, 3}, 0.5)
		w, _ := d.Full(engine.Float64, []int64{5, 3}, 0.1)
		target, _ := d.Full(engine.Int64, []int64{4}, 2)
		leaf, _ := d.Leaf(w, true)
		y, err := d.Call("millrace::linear", x, leaf)
		if err != nil {
			t.Fatal(err)
		}
		loss, err := d.Call("aten::cross_entropy_loss", y[0], target)
		if err != nil {
			t.Fatal(err)
		}
		// The live bytes are those of x, w, targets, y, the loss, and the probabilities that its graph keeps.
		if got, want := d.Memory().LiveBytes, int64(8*(12+15+4+20+1+20)); got != want {
			t.Errorf("%d bytes live, want %d", got, want)
		}
		if err := d.Backward(loss, nil); err != nil {
			t.Fatal(err)
		}
		d.End(mark)
		if got := d.Memory().LiveBytes; got != 0 {
			t.Errorf("%d bytes left", got)
		}
	}
	if n := d.Close(); n != 0 {
		t.Errorf("%d handles left", n)
	}
}

func TestRefusals(t *testing.T) {
	d := open(t)
	defer d.Close()
	x, _ := d.Full(engine.Float64, []int64{2, 3}, 1)
	ids, _ := d.Full(engine.Int64, []int64{2, 3}, 7)
	for _, c := range [][]any{
		{"aten::conv2d", x}, {"aten::relu", ids}, {"aten::add_.Tensor", ids, ids}, {"millrace::embedding", x, ids},
		{"millrace::embedding", x, x},
		{"millrace::layer_norm", x, x, x}, {"aten::cat"}, {"aten::cat", []engine.Tensor{ids, x}, 1},
		{"aten::cat", []engine.Tensor{ids, ids}, -1},
		{"aten::narrow", x, 1, 0, 1}, {"aten::narrow", x, 0, 1, 2}, {"millrace::square_sum", ids},
		{"millrace::mask", x, []int64{}, 1, 0, 1, 2.0}, {"millrace::mask", x, []int64{-2, 3}, 1, 0, 1, 2.0},
		{"aten::view", x, []int64{-1, -1, -1}},
		{"aten::argmax", ids}, {"millrace::linear", x}, {"aten::add.Tensor", x, "y"}, {"aten::view", x, []int64{4}},
	} {
		if _, err := d.Call(c[0].(string), c[1:]...); err == nil {
			t.Errorf("%v was computed", c[0])
		}
	}
	for _, shape := range [][]int64{{-1}, {1 << 33}, {1 << 32, 1 << 32}} {
		if _, err := d.Full(engine.Float64, shape, 1); err == nil {
			t.Errorf("a tensor of shape %v was made", shape)
		}
	}
}

// TestAWeightsHalfLaterIsTheSame runs a backward whole and in halves, and compares the gradients.
func TestAWeightsHalfLaterIsTheSame(t *testing.T) {
	d := open(t)
	gradients := func(back func(outputs, grads []engine.Tensor) error) (x, w []float64) {
		x1, w1 := leafOf(t, d, 1, 2, 3, 4, 5, 6), leafOf(t, d, 1, -1, 2, 0, 3, 1)
		y, err := d.Call("millrace::linear", x1, w1)
		if err == nil {
			y, err = d.Call("aten::sum", y[0])
		}
		if err == nil {
			err = back(y, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
		gx, _ := d.Grad(x1)
		gw, _ := d.Grad(w1)
		return gx.(*Tensor).floats, gw.(*Tensor).floats
	}
	x, w := gradients(d.Backward)
	x2, w2 := gradients(func(outputs, grads []engine.Tensor) error {
		half, err := d.BackwardInput(outputs, grads)
		if err != nil || half.Size() != 1 {
			t.Errorf("%v, %d operators left a half, not 1", err, half.Size())
		}
		return errors.Join(err, half.Run())
	})
	if !slices.Equal(x, x2) || !slices.Equal(w, w2) {
		t.Errorf("whole %v %v, in halves %v %v", x, w, x2, w2)
	}
	if want := []float64{5, 7, 9, 5, 7, 9}; !slices.Equal(w, want) {
		t.Errorf("the weight's gradient is %v, not %v", w, want)
	}
}

// leafOf returns a leaf of shape [2 3].
func leafOf(t *testing.T, d *Device, numbers ...float64) engine.Tensor {
	x, err := d.Full(engine.Float64, []int64{2, 3}, 0)
	if err != nil {
		t.Fatal(err)
	}
	copy(x.(*Tensor).floats, numbers)
	x, err = d.Leaf(x, true)
	if err != nil {
		t.Fatal(err)
	}
	return x
}
