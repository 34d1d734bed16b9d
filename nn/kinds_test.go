package nn_test

import (
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/nn"
)

// every contains each kind of layer that the other models of these tests do not use.
const every = `
name: every
inputs:
  - {name: input, shape: [2, 8, 8], dtype: float}
  - {name: target, shape: [], dtype: int}
layers:
  - {name: a, kind: conv2d, channels: 4, stride: 2, activation: gelu}
  - {name: b, kind: batch_norm}
  - {name: c, kind: tanh}
  - {name: d, kind: concat, from: [a, c]}
  - {name: e, kind: avg_pool}
  - {name: f, kind: add, from: [e, e]}
  - {name: g, kind: layer_norm}
  - {name: h, kind: gelu}
  - {name: i, kind: global_avg_pool}
  - {name: j, kind: relu}
  - {name: k, kind: dense, width: 5, bias: false}
  - {name: loss, kind: cross_entropy, from: [k, target]}
`

func TestEveryKindYieldsItsShape(t *testing.T) {
	m, err := model.Parse(strings.NewReader(every))
	if err != nil {
		t.Fatal(err)
	}
	d := device(t)
	defer runtime.UnlockOSThread()
	mark := d.Begin()
	defer d.End(mark)
	pass(t, d, m, 3, true)
	used := map[string]bool{}
	for _, family := range model.Families() {
		settings := map[string]any{}
		if slices.ContainsFunc(family.Settings, func(s model.Setting) bool { return s.Name == "dropout" }) {
			settings["dropout"] = 0.1
		}
		f, err := model.Build(family.Name, settings)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range append(f.Layers, m.Layers...) {
			used[l.Kind] = true
		}
	}
	for _, k := range model.Kinds() {
		if !used[k.Name] {
			t.Errorf("no test computes kind %s", k.Name)
		}
	}
}

// TestBatchNormCountsAMicroBatchOnce: running statistics move by a tenth towards those of the micro-batch, once for
// each micro-batch. A recomputed forward gives the same result and does not move the running statistics. An evaluation
// uses the running statistics.
func TestBatchNormCountsAMicroBatchOnce(t *testing.T) {
	d := device(t)
	defer runtime.UnlockOSThread()
	mark := d.Begin()
	defer d.End(mark)
	m, err := model.Parse(strings.NewReader(every))
	if err != nil {
		t.Fatal(err)
	}
	layers, err := nn.Build(m)
	if err != nil {
		t.Fatal(err)
	}
	at := m.Index("b")
	values := make([]float64, 3*4*4*4)
	for i := range values {
		values[i] = float64(i%16) + 1 // every channel has the numbers 1 to 16, whose mean is 8.5, three times
	}
	x := numbers(t, d, engine.Float32, []int{3, 4, 4, 4}, values)
	ctx := &nn.Context{Device: d, Training: true, Layer: at, Rows: 3}
	for j, p := range m.Layers[at].Params {
		ctx.Params = append(ctx.Params, leaf(t, d, p, at, j))
	}
	forward := func() float64 {
		out, err := layers[at].Forward(ctx, nn.Bundle{{Name: "x", Tensor: x}})
		if err != nil {
			t.Fatal(err)
		}
		return read(t, d, out[0].Tensor)[0]
	}
	const mean, squares = 8.5, 85.0 / 4 // squares is the variance of the numbers 1 to 16: (16^2 - 1) / 12
	unbiased := squares * 48 / 47
	first := forward()
	if want := (1 - mean) / math.Sqrt(squares+1e-5); math.Abs(first-want) > 1e-5 {
		t.Errorf("1 becomes %v, want %v", first, want)
	}
	running := func(what string) {
		t.Helper()
		gotMean, gotVariance := read(t, d, ctx.Params[2])[0], read(t, d, ctx.Params[3])[0]
		if math.Abs(gotMean-0.1*mean) > 1e-5 || math.Abs(gotVariance-(0.9+0.1*unbiased)) > 1e-5 {
			t.Errorf("%s: running mean %v and variance %v, want %v and %v", what, gotMean, gotVariance, 0.1*mean,
				0.9+0.1*unbiased)
		}
	}
	running("after a forward")
	ctx.Recomputing = true
	if again := forward(); again != first {
		t.Errorf("recomputed, 1 becomes %v, before %v", again, first)
	}
	running("after recomputing")
	ctx.Recomputing, ctx.Training = false, false
	if got, want := forward(), (1-0.1*mean)/math.Sqrt(0.9+0.1*unbiased+1e-5); math.Abs(got-want) > 1e-5 {
		t.Errorf("in evaluation 1 becomes %v, want %v", got, want)
	}
	running("after evaluation")
}

// TestAttentionIsCausal: changing later positions does not change the outputs of earlier ones.
func TestAttentionIsCausal(t *testing.T) {
	d := device(t)
	defer runtime.UnlockOSThread()
	mark := d.Begin()
	defer d.End(mark)
	m, err := model.Build("gpt", map[string]any{"layers": 1, "width": 8, "heads": 2, "context": 6, "vocabulary": 9})
	if err != nil {
		t.Fatal(err)
	}
	layers, err := nn.Build(m)
	if err != nil {
		t.Fatal(err)
	}
	at := m.Index("block0.attention")
	ctx := &nn.Context{Device: d, Training: true, Layer: at, Rows: 2}
	for j, p := range m.Layers[at].Params {
		p.Init.Std *= 20 // so that attention scores differ
		ctx.Params = append(ctx.Params, leaf(t, d, p, at, j))
	}
	values := make([]float64, 2*6*8)
	for i := range values {
		values[i] = math.Sin(float64(3 * i))
	}
	forward := func() []float64 {
		x := numbers(t, d, engine.Float32, []int{2, 6, 8}, values)
		out, err := layers[at].Forward(ctx, nn.Bundle{{Name: "x", Tensor: x}})
		if err != nil {
			t.Fatal(err)
		}
		return read(t, d, out[0].Tensor)
	}
	before := forward()
	for i := 4 * 8; i < 6*8; i++ { // the last two positions of the first row
		values[i] = math.Cos(float64(5 * i))
	}
	after := forward()
	for i := range after {
		late := i >= 4*8 && i < 6*8
		if same := after[i] == before[i]; same == late {
			t.Errorf("row %d, position %d: %v became %v", i/48, i/8%6, before[i], after[i])
			break
		}
	}
}
