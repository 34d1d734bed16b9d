package nn_test

import (
	"math"
	"runtime"
	"slices"
	"testing"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/nn"
)

// recur runs a bidirectional lstm over two joined inputs and returns [rows, positions, 6]. Both inputs have two rows of
// different numbers. The argument `moved` is added to the last position of row 0 in the second input.
func recur(t *testing.T, d engine.Device, dropout float64, training bool, moved float64, firstRow int) []float64 {
	t.Helper()
	inputs := []model.Tensor{{Shape: []int{4, 2}, DType: model.Float}, {Shape: []int{4, 3}, DType: model.Float}}
	l := model.Layer{Name: "h", Kind: "lstm", Attr: map[string]any{"width": 3, "bidirectional": true, "dropout": dropout}}
	for _, k := range model.Kinds() {
		if k.Name == l.Kind {
			if err := k.Infer(&l, inputs); err != nil {
				t.Fatal(err)
			}
		}
	}
	layers, err := nn.Build(&model.Model{Layers: []model.Layer{l}})
	if err != nil {
		t.Fatal(err)
	}
	var in nn.Bundle
	for i, x := range inputs {
		values := make([]float64, 2*4*x.Shape[1])
		for k := range values {
			values[k] = math.Sin(float64(3*k + i))
		}
		if i == 1 {
			values[3*3] += moved // row 0, last position
		}
		in = append(in, nn.Named{Name: x.Name, Tensor: numbers(t, d, engine.Float32, []int{2, 4, x.Shape[1]}, values)})
	}
	ctx := &nn.Context{Device: d, Training: training, Seed: 3, Rows: 2, FirstRow: firstRow}
	for j, p := range l.Params {
		ctx.Params = append(ctx.Params, leaf(t, d, p, 0, j))
	}
	out, err := layers[0].Forward(ctx, in)
	if err != nil {
		t.Fatal(err)
	}
	return read(t, d, out[0].Tensor)
}

// TestLSTMReadsEachWay: the forward state at a position depends only on that position and earlier ones. The backward
// state depends only on that position and later ones. Rows are independent of each other.
func TestLSTMReadsEachWay(t *testing.T) {
	d := device(t)
	defer runtime.UnlockOSThread()
	mark := d.Begin()
	defer d.End(mark)
	before, after := recur(t, d, 0, true, 0, 0), recur(t, d, 0, true, 0.5, 0)
	for i := range before {
		row, position, backward := i/24, i/6%4, i%6 >= 3
		reached := row == 0 && (position == 3 || backward)
		if same := before[i] == after[i]; same == reached {
			t.Errorf("row %d, position %d, unit %d: %v became %v", row, position, i%6, before[i], after[i])
		}
	}
}

// TestLSTMDropoutIsLocked: a unit is dropped at all positions of a sequence or at none, and scaled if it is kept. A
// slice of a micro-batch gets the masks of its rows.
func TestLSTMDropoutIsLocked(t *testing.T) {
	d := device(t)
	defer runtime.UnlockOSThread()
	mark := d.Begin()
	defer d.End(mark)
	plain, dropped := recur(t, d, 0.5, false, 0, 0), recur(t, d, 0.5, true, 0, 0)
	kept := map[float64]int{}
	for i := range plain {
		ratio := dropped[i] / plain[i]
		kept[ratio]++
		if first := i - 6*(i/6%4); dropped[first]/plain[first] != ratio {
			t.Errorf("row %d, unit %d: %v at the first position, %v at position %d", i/24, i%6, dropped[first]/plain[first],
				ratio, i/6%4)
		}
	}
	if len(kept) != 2 || kept[0] == 0 || kept[2] == 0 {
		t.Errorf("units are scaled by %v", kept)
	}
	zeros := func(values []float64) (at []bool) {
		for _, v := range values {
			at = append(at, v == 0)
		}
		return at
	}
	if later := recur(t, d, 0.5, true, 0, 1); !slices.Equal(zeros(later[:24]), zeros(dropped[24:])) {
		t.Error("row 1 of the micro-batch is dropped otherwise when a slice begins with it")
	}
}

// TestLSTMHoldsWhatItsDescriptionSays: until its backward, a layer holds as many bytes as its description says.
func TestLSTMHoldsWhatItsDescriptionSays(t *testing.T) {
	for _, c := range []struct {
		inputs        []int
		bidirectional bool
		dropout       float64
	}{{[]int{32}, false, 0}, {[]int{32}, true, 0}, {[]int{16, 48}, false, 0}, {[]int{16, 48}, true, 0.5}} {
		const rows, positions, units = 4, 16, 64
		l := model.Layer{Name: "h", Kind: "lstm",
			Attr: map[string]any{"width": units, "bidirectional": c.bidirectional, "dropout": c.dropout}}
		var described []model.Tensor
		for _, w := range c.inputs {
			described = append(described, model.Tensor{Shape: []int{positions, w}, DType: model.Float})
		}
		for _, k := range model.Kinds() {
			if k.Name == l.Kind {
				if err := k.Infer(&l, described); err != nil {
					t.Fatal(err)
				}
			}
		}
		layers, err := nn.Build(&model.Model{Layers: []model.Layer{l}})
		if err != nil {
			t.Fatal(err)
		}
		d := device(t)
		outer := d.Begin()
		ctx := &nn.Context{Device: d, Training: true, Seed: 3, Rows: rows}
		for j, p := range l.Params {
			ctx.Params = append(ctx.Params, leaf(t, d, p, 0, j))
		}
		var in nn.Bundle
		for _, w := range c.inputs {
			x, err := d.Leaf(waves(t, d, []int64{rows, positions, int64(w)}, w), true)
			if err != nil {
				t.Fatal(err)
			}
			in = append(in, nn.Named{Name: "x", Tensor: x})
		}
		before := d.Memory().LiveBytes
		inner := d.Begin()
		out, err := layers[0].Forward(ctx, in)
		if err != nil {
			t.Fatal(err)
		}
		d.End(inner, out[0].Tensor)
		want := rows * l.SavedBytes
		if c.dropout > 0 {
			want += rows * int64(l.Outputs[0].Shape[1]) * 4 // the layer's mask, which is the same at all positions
		}
		// The allocator rounds each tensor up to a multiple of 64 bytes.
		if got := d.Memory().LiveBytes - before; got < want || got > want+1024 {
			t.Errorf("%+v: %d bytes held, the description says %d", c, got, want)
		}
		d.End(outer)
		runtime.UnlockOSThread()
	}
}
