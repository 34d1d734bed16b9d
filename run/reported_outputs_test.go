package run

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"testing"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/nn"
	"github.com/millrace-ml/millrace/trace"
)

func init() {
	nn.Register("reporting", func(model.Layer) (nn.Layer, error) { return nn.Func(reporting), nil })
}

// reporting returns the loss, the mean target of the micro-batch, and a number that is not finite if the micro-batch
// has four rows.
func reporting(ctx *nn.Context, in nn.Bundle) (out nn.Bundle, err error) {
	call := func(op string, args ...any) {
		if err == nil {
			var made []engine.Tensor
			if made, err = ctx.Device.Call(op, args...); err == nil {
				out = append(out, nn.Named{Tensor: made[0]})
			}
		}
	}
	none := 1.0
	if in[1].Tensor.Shape()[0] == 4 {
		none = math.NaN()
	}
	call("aten::cross_entropy_loss", in[0].Tensor, in[1].Tensor)
	call("aten::mean", in[1].Tensor, engine.Float32)
	call("aten::full", []int64{}, none)
	return out, err
}

// A model's outputs after its loss are reported as means over the rows of an evaluation, wherever the stages are
// cut. The model does not count right answers, so no count is reported.
func TestAModelsOwnNumbersAreReported(t *testing.T) {
	e := torchEngine(t)
	m := build(t, "mlp", map[string]any{"inputs": 6, "hidden": []int{8, 8}, "classes": 4})
	last := &m.Layers[len(m.Layers)-1]
	last.Kind = "reporting"
	for _, name := range []string{"mean_target", "odd"} {
		last.Outputs = append(last.Outputs, model.Tensor{Name: name, Shape: []int{}, DType: model.Float})
	}
	const rows = 11
	test := noise{model: m, classes: 4, rows: rows, seed: 3}
	all, err := test.Batch(0, rows, 0, rows)
	if err != nil {
		t.Fatal(err)
	}
	want := 0.0
	for _, class := range all["target"].Ints {
		want += float64(class) / rows
	}
	var first []trace.Evaluation
	for _, c := range []struct {
		cuts  []int
		micro int
	}{{nil, 3}, {[]int{0}, 3}, {[]int{0, 1}, 4}} {
		config := basic(t, e, m, planOf(m, c.cuts, c.micro, 4, "1f1b"), 4, 4)
		config.Data.Test, config.Train.EvalEvery = test, 2
		var heard []trace.Evaluation
		config.Hooks.OnEvaluation = func(e trace.Evaluation) { heard = append(heard, e) }
		var mu sync.Mutex
		var done []string
		config.Hooks.OnTested = func(n, of int) {
			mu.Lock()
			defer mu.Unlock()
			done = append(done, fmt.Sprintf("%d/%d", n, of))
		}
		seen := train(t, config).Timeline.Evaluations
		each := map[int][]string{3: {"1/4", "2/4", "3/4", "4/4"}, 4: {"1/3", "2/3", "3/3"}}[c.micro] // of 11 rows
		if want := append(slices.Clone(each), each...); !slices.Equal(done, want) {
			t.Errorf("cut at %v: two evaluations did %v, want %v", c.cuts, done, want)
		}
		if len(seen) != 2 || len(heard) != 2 ||
			fmt.Sprint(slices.Sorted(maps.Keys(seen[1].Reported))) != "[mean_target odd]" {
			t.Fatalf("cut at %v: %v, %v", c.cuts, seen, heard)
		}
		for _, e := range seen {
			if got := e.Reported["mean_target"]; got == nil || math.Abs(*got-want) > 1e-6 || e.Samples != 0 ||
				e.Correct != 0 {
				t.Errorf("cut at %v: %+v%s; want a mean target of %v and nothing counted", c.cuts, e, e.Said(), want)
			}
			if odd := e.Reported["odd"]; (odd == nil) != (c.micro == 4) || odd != nil && *odd != 1 {
				t.Errorf("micro-batches of %d: %s", c.micro, e.Said())
			}
		}
		if first == nil {
			first = seen
		}
		if c.micro == 3 && (seen[1].Said() != first[1].Said() || seen[1].Loss != first[1].Loss) {
			t.Errorf("cut at %v: loss %v%s; uncut %v%s", c.cuts, seen[1].Loss, seen[1].Said(), first[1].Loss,
				first[1].Said())
		}
	}
	if text := first[1].Said(); text != fmt.Sprintf(", mean_target %.6g, odd 1", want) {
		t.Errorf("readers see %q", text)
	}
}
