package update_test

import (
	"errors"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/engine/ref"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/nn"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/stage"
	"github.com/millrace-ml/millrace/stage/optim"
	"github.com/millrace-ml/millrace/stage/update"
)

// small is a model with parameters and buffers. newBench makes two of its layers share a weight.
const small = `
name: small
inputs:
- {name: input, shape: [3, 1, 1], dtype: float}
- {name: target, shape: [], dtype: int}
layers:
- {name: n, kind: batch_norm, from: [input]}
- {name: f, kind: flatten, from: [input]}
- {name: a, kind: dense, from: [f], width: 3, activation: tanh}
- {name: b, kind: dense, from: [a], width: 3, activation: tanh}
- {name: loss, kind: cross_entropy, from: [b, target]}
`

// momentum is the optimizer of all of these tests: v = 0.9 v + g and w = w - rate v, for weights w and gradients g.
var momentum = optim.Settings{Kind: optim.SGD, Momentum: 0.9}

// counts stands in for a batch norm, which engine ref does not have. Its output is not used, and every forward
// changes both buffers.
var counts = nn.Func(func(ctx *nn.Context, in nn.Bundle) (nn.Bundle, error) {
	mean, variance := ctx.Params[2], ctx.Params[3]
	err := ctx.Device.NoGrad(func() error {
		return errors.Join(engine.Scale(ctx.Device, variance, 0.9),
			engine.AddInto(ctx.Device, mean, variance, 0.1*float64(ctx.Seed)))
	})
	if err != nil {
		return nil, err
	}
	out, err := ctx.Device.Call("aten::tanh", in[0].Tensor)
	if err != nil {
		return nil, err
	}
	return nn.Bundle{{Tensor: out[0]}}, nil
})

// bench holds models on one device.
type bench struct {
	*testing.T
	dev    engine.Device
	models []*stage.Stage
	made   []update.Updater
}

// newBench makes models with different initial values, and the Updaters of all of them.
func newBench(t *testing.T, updater string, averaging *plan.Elastic, models int) *bench {
	t.Helper()
	runtime.LockOSThread()
	e := ref.New()
	b := &bench{T: t}
	m, err := model.Parse(strings.NewReader(small))
	if err != nil {
		t.Fatal(err)
	}
	m.Layers[m.Index("b")].Params[0].Tied = "a.weight"
	graph, err := stage.NewGraph(m)
	if err != nil {
		t.Fatal(err)
	}
	layers, err := nn.Build(m)
	if err != nil {
		t.Fatal(err)
	}
	layers[m.Index("n")] = counts
	if b.dev, err = e.Open(0, 1); err != nil {
		t.Fatal(err)
	}
	for i := range models {
		c := stage.Config{
			Device: b.dev, Float: e.Float(), Graph: graph, Last: len(layers) - 1, Layers: layers, Seed: uint64(3 + i),
			States: momentum.States(),
		}
		if models > 1 && i == models-1 {
			c.States = nil
		}
		s, err := stage.New(c)
		if err != nil {
			t.Fatal(err)
		}
		b.models = append(b.models, s)
	}
	if b.made, err = update.New(updater, update.Config{Optimizer: momentum, Averaging: averaging, Stage: 4},
		b.models); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, u := range b.made {
			u.Close()
		}
		for _, s := range b.models {
			s.Close()
		}
		if n := b.dev.Close(); n != 0 {
			t.Errorf("%d handles leaked", n)
		}
		runtime.UnlockOSThread()
	})
	return b
}

// numbers maps names to the numbers of tensors.
type numbers map[string][]float64

func (b *bench) numbers(all []stage.Vector) numbers {
	b.Helper()
	out := numbers{}
	for _, v := range all {
		if !v.Tensor.DType().IsFloat() {
			continue
		}
		x, err := stage.Values(b.dev, v.Tensor)
		if err != nil {
			b.Fatal(err)
		}
		if old := out[v.Name]; old != nil { // another use of a tied parameter
			for i := range x {
				x[i] += old[i]
			}
		}
		out[v.Name] = x
	}
	return out
}

// weights returns the parameters, states and buffers of a model.
func (b *bench) weights(model int) numbers { return b.numbers(b.models[model].Params.Snapshot()) }

// forward passes micro-batch id through a model.
func (b *bench) forward(model, id int) {
	b.Helper()
	s := b.models[model]
	x, y := make([]float64, 12), make([]int64, 4)
	for i := range x {
		x[i] = math.Sin(float64(7*id + 5*i + 3*model))
	}
	for i := range y {
		y[i] = int64((id + i) % 3)
	}
	given := stage.Tensors{}
	m := b.dev.Begin()
	for _, v := range s.Feeds() {
		var err error
		if s.Graph.Name(v) == "target" {
			given[v], err = b.dev.FromBytes(engine.Int64, []int64{4}, engine.Bytes(y))
		} else {
			given[v], err = b.dev.FromBytes(engine.Float64, []int64{4, 3, 1, 1}, engine.Bytes(x))
		}
		b.check(err)
	}
	for _, t := range given {
		b.dev.Disown(t)
	}
	b.dev.End(m)
	_, loss, err := s.Forward(stage.Micro{ID: id, Step: id, Rows: 4, Version: s.Versions.Newest()}, given)
	b.check(err)
	loss.Free()
}

// back computes the backward of a micro-batch, which adds its gradients to those gathered so far.
func (b *bench) back(model, id int) {
	b.Helper()
	_, err := b.models[model].Backward(id, nil, 1)
	b.check(err)
}

// gathered returns the gradients gathered since the last update.
func (b *bench) gathered(model int) numbers {
	b.Helper()
	s := b.models[model]
	var all []stage.Vector
	for l := s.First; l <= s.Last; l++ {
		of, err := s.Gradients.OfLayer(l)
		b.check(err)
		all = append(all, of...)
	}
	return b.numbers(all)
}

// backward adds a micro-batch's gradients to those gathered so far, and returns the sums.
func (b *bench) backward(model, id int) numbers {
	b.Helper()
	b.back(model, id)
	return b.gathered(model)
}

// alone returns the gradients of a single micro-batch, at the present weights of another bench's model 0.
func (b *bench) alone(of *bench, id int) numbers {
	b.Helper()
	now, s := of.weights(0), b.models[0]
	m := b.dev.Begin()
	for _, p := range s.Params.Learned {
		values, err := b.dev.FromBytes(engine.Float64, p.Value.Shape(), engine.Bytes(now[p.Name]))
		b.check(err)
		b.check(b.dev.NoGrad(func() error { return engine.CopyInto(b.dev, p.Value, values) }))
	}
	b.dev.End(m)
	b.forward(0, id)
	g := b.backward(0, id)
	b.check(s.EachLayer(s.Gradients.Forget))
	return g
}

func (b *bench) check(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func (b *bench) refused(err error, want string) {
	b.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		b.Errorf("%v; want it to say %q", err, want)
	}
}

// same checks that the numbers of every name in `want` differ by at most `within`.
func (b *bench) same(what string, got, want numbers, within float64) {
	b.Helper()
	for name, w := range want {
		if len(got[name]) != len(w) {
			b.Fatalf("%s: %d numbers of %s; want %d", what, len(got[name]), name, len(w))
		}
		for i := range w {
			if math.Abs(got[name][i]-w[i]) > within {
				b.Errorf("%s: %s[%d] is %v; want %v", what, name, i, got[name][i], w[i])
				break
			}
		}
	}
}

// stepped returns the parameters and momenta after a step with the gradients g. Each gradient is first multiplied by
// `scale`.
func stepped(before, g numbers, rate, scale float64) numbers {
	out := numbers{}
	for name, gs := range g {
		w, v := slices.Clone(before[name]), slices.Clone(before[stage.StateName(name, momentum.States()[0])])
		for i := range gs {
			v[i] = 0.9*v[i] + scale*gs[i]
			w[i] -= rate * v[i]
		}
		out[name], out[stage.StateName(name, momentum.States()[0])] = w, v
	}
	return out
}

func stepBy(rate, scale float64, how stage.Renewal) update.Step {
	return update.Step{Step: optim.Step{Rate: rate, GradScale: scale}, Renewal: how}
}

const exact, near = 0, 1e-13
