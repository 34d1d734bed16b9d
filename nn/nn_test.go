package nn_test

import (
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/engine/torch"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/nn"
)

// device opens a libtorch device on the test's own locked thread.
func device(t testing.TB) engine.Device {
	t.Helper()
	e, err := torch.Open()
	if errors.Is(err, torch.ErrNotFound) || errors.Is(err, torch.ErrNoCgo) {
		t.Skip("libtorch is not installed: ", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	runtime.LockOSThread()
	d, err := e.Open(0, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if n := d.Close(); n != 0 {
			t.Errorf("%d tensors were never freed", n)
		}
	})
	return d
}

// pass runs a whole model layer by layer on one micro-batch and returns the bundle with the loss.
func pass(t testing.TB, d engine.Device, m *model.Model, rows int, training bool) nn.Bundle {
	t.Helper()
	layers, err := nn.Build(m)
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]nn.Bundle{}
	for _, in := range m.Inputs {
		shape := []int64{int64(rows)}
		for _, n := range in.Shape {
			shape = append(shape, int64(n))
		}
		dtype := engine.Float32
		if in.DType == model.Int {
			dtype = engine.Int64
		}
		x, err := d.Full(dtype, shape, 1)
		if err != nil {
			t.Fatal(err)
		}
		have[in.Name] = nn.Bundle{{Name: in.Name, Tensor: x}}
	}
	for i, l := range m.Layers {
		ctx := &nn.Context{Device: d, Training: training, Seed: 7, Layer: i, Rows: rows}
		for j, p := range l.Params {
			ctx.Params = append(ctx.Params, leaf(t, d, p, i, j))
		}
		var in nn.Bundle
		for _, from := range l.From {
			in = append(in, have[from]...)
		}
		out, err := layers[i].Forward(ctx, in)
		if err != nil {
			t.Fatalf("layer %s: %v", l.Name, err)
		}
		for j, want := range l.Outputs {
			shape := []int64{}
			if want.Name != "loss" {
				shape = append(shape, int64(rows))
			}
			for _, n := range want.Shape {
				shape = append(shape, int64(n))
			}
			if !slices.Equal(out[j].Tensor.Shape(), shape) {
				t.Fatalf("layer %s yields shape %v, its description says %v", l.Name, out[j].Tensor.Shape(), shape)
			}
		}
		have[l.Name] = out
	}
	return have[m.Layers[len(m.Layers)-1].Name]
}

func leaf(t testing.TB, d engine.Device, p model.Param, layer, index int) engine.Tensor {
	t.Helper()
	shape := make([]int64, len(p.Shape))
	for i, n := range p.Shape {
		shape[i] = int64(n)
	}
	values := nn.InitialValues(p, layer, index, 7)
	data := make([]float32, len(values))
	for i, v := range values {
		data[i] = float32(v)
	}
	x, err := d.FromBytes(engine.Float32, shape, engine.Bytes(data))
	if err != nil {
		t.Fatal(err)
	}
	if x, err = d.Leaf(x, !p.Buffer); err != nil {
		t.Fatal(err)
	}
	return x
}

func TestShapesAreAsDescribed(t *testing.T) {
	for _, c := range []struct {
		name     string
		settings map[string]any
	}{
		{"mlp", map[string]any{"dropout": 0.5}},
		{"convnet", map[string]any{"widths": []int{4, 8}, "batch_norm": true, "dropout": 0.1}},
		{"convnet", map[string]any{"widths": []int{4}}},
		{"gpt", map[string]any{"layers": 2, "width": 32, "heads": 4, "context": 16, "dropout": 0.1, "tied": true}},
		{"gpt", map[string]any{"layers": 1, "width": 32, "heads": 4, "context": 16, "activation": "gelu_tanh"}},
		{"llama", map[string]any{"layers": 2, "width": 32, "heads": 4, "kv_heads": 2, "hidden": 40, "context": 16,
			"tied": true}},
		{"llama", map[string]any{"layers": 1, "width": 16, "heads": 2, "kv_heads": 2, "hidden": 24, "context": 9}},
		{"lstm", map[string]any{"width": 24, "embedding": 12, "context": 9, "dropout": 0.1}},
		{"lstm", map[string]any{"layers": 1, "embedding": 12, "context": 9, "tied": true}},
	} {
		m, err := model.Build(c.name, c.settings)
		if err != nil {
			t.Fatal(err)
		}
		for _, training := range []bool{true, false} {
			d := device(t)
			scope := d.Begin()
			out := pass(t, d, m, 3, training)
			loss, err := d.Item(out[0].Tensor)
			if err != nil || loss < 0.5 || loss > 20 {
				t.Errorf("%s: loss %v, %v", c.name, loss, err)
			}
			if !training && len(out) != 2 {
				t.Errorf("%s: evaluation yields %d tensors", c.name, len(out))
			}
			d.End(scope)
			runtime.UnlockOSThread()
		}
	}
}

func TestInitialValuesDependOnTheirPlaceAlone(t *testing.T) {
	p := model.Param{Shape: []int{64, 64}, Init: model.Init{Kind: "normal", Std: 2}}
	a, b, c := nn.InitialValues(p, 3, 1, 9), nn.InitialValues(p, 3, 1, 9), nn.InitialValues(p, 4, 1, 9)
	if !slices.Equal(a, b) || slices.Equal(a, c) {
		t.Error("the same place must give the same values, another other values")
	}
	var sum, squares float64
	for _, v := range a {
		sum += v
		squares += v * v
	}
	n := float64(len(a))
	if mean, variance := sum/n, squares/n; mean < -0.15 || mean > 0.15 || variance < 3.6 || variance > 4.4 {
		t.Errorf("mean %v, variance %v; want about 0 and 4", mean, variance)
	}
}

// TestLayersRefuseOtherNumbersOfInputs: a layer that gets no tensors returns an error, and does not use the device.
func TestLayersRefuseOtherNumbersOfInputs(t *testing.T) {
	m, err := model.Parse(strings.NewReader(every))
	if err != nil {
		t.Fatal(err)
	}
	layers, err := nn.Build(m)
	if err != nil {
		t.Fatal(err)
	}
	for i, l := range m.Layers {
		if _, err := layers[i].Forward(&nn.Context{}, nil); err == nil || !strings.Contains(err.Error(), "got 0") &&
			!strings.Contains(err.Error(), "got none") {
			t.Errorf("%s of no inputs: %v", l.Kind, err)
		}
	}
}
