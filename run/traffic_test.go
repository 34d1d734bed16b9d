package run

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/data"
	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/nn"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/stage/optim"
)

// These tests are about what crosses the border between stages: several tensors, tensors that skip stages, tied
// weights, and shapes that vary by micro-batch. Each model is cut into 1 to 4 stages, and ends with the same bits as a
// plain loop on one worker (with torch: as a run with one stage).

// The kinds test_fork and test_join are only for these tests. A fork of x returns three tensors of different shapes and
// types: `out` is x W^T, `wide` is tanh(x V^T) with 2 numbers, and `which` is the index of the largest number of `out`,
// a whole number without a gradient. W and V are the fork's weights. A join, which has weights of its own, returns
// linear(wide) + table[which] + out.
func init() {
	weight := func(name string, rows, columns int) model.Param {
		return model.Param{Name: name, Shape: []int{rows, columns}, Init: model.Init{Kind: "uniform", High: 0.7}}
	}
	model.RegisterKind(model.Kind{
		Name: "test_fork", Doc: "three tensors",
		Infer: func(l *model.Layer, in []model.Tensor) error {
			n := in[0].Shape[0]
			l.Params = []model.Param{weight("out", n, n), weight("wide", 2, n)}
			l.Outputs = []model.Tensor{
				{Name: "out", Shape: []int{n}, DType: model.Float}, {Name: "wide", Shape: []int{2},
					DType: model.Float}, {Name: "which", Shape: []int{}, DType: model.Int},
			}
			return nil
		},
	})
	model.RegisterKind(model.Kind{
		Name: "test_join", Doc: "what test_fork yields, in one",
		Infer: func(l *model.Layer, in []model.Tensor) error {
			if len(in) != 3 || in[2].DType != model.Int {
				return fmt.Errorf("it reads what a test_fork yields, not %v", in)
			}
			n := in[0].Shape[0]
			l.Params = []model.Param{weight("wide", n, 2), weight("table", n, n)}
			l.Outputs = []model.Tensor{{Name: "out", Shape: []int{n}, DType: model.Float}}
			return nil
		},
	})
	nn.Register("test_fork", func(model.Layer) (nn.Layer, error) {
		return nn.Func(func(ctx *nn.Context, in nn.Bundle) (nn.Bundle, error) {
			c := calls{dev: ctx.Device}
			out := c.one("millrace::linear", in[0].Tensor, ctx.Params[0])
			wide := c.one("aten::tanh", c.one("millrace::linear", in[0].Tensor, ctx.Params[1]))
			return nn.Bundle{{Name: "out", Tensor: out}, {Name: "wide", Tensor: wide},
				{Name: "which", Tensor: c.one("aten::argmax", out, -1)}}, c.err
		}), nil
	})
	nn.Register("test_join", func(model.Layer) (nn.Layer, error) {
		return nn.Func(func(ctx *nn.Context, in nn.Bundle) (nn.Bundle, error) {
			c := calls{dev: ctx.Device}
			y := c.one("aten::add.Tensor", c.one("millrace::linear", in[1].Tensor, ctx.Params[0]),
				c.one("millrace::embedding", ctx.Params[1], in[2].Tensor))
			return nn.Bundle{{Name: "out", Tensor: c.one("aten::add.Tensor", y, in[0].Tensor)}}, c.err
		}), nil
	})
}

// calls runs operators that have one result each. After an error it runs no more of them.
type calls struct {
	dev engine.Device
	err error
}

func (c *calls) one(op string, args ...any) engine.Tensor {
	if c.err != nil {
		return nil
	}
	out, err := c.dev.Call(op, args...)
	if err != nil {
		c.err = err
		return nil
	}
	return out[0]
}

const inputs = "inputs:\n- {name: input, shape: [4], dtype: float}\n- {name: target, shape: [], dtype: int}\nlayers:\n"

// forks has three tensors at each border between a fork and its join.
const forks = "name: forks\n" + inputs + `
- {name: first, kind: dense, from: [input], width: 4}
- {name: fork0, kind: test_fork, from: [first]}
- {name: join0, kind: test_join, from: [fork0]}
- {name: fork1, kind: test_fork, from: [join0]}
- {name: between, kind: dense, from: [first], width: 4, activation: tanh}
- {name: join1, kind: test_join, from: [fork1]}
- {name: sum, kind: add, from: [join1, between]}
- {name: loss, kind: cross_entropy, from: [sum, target]}
`

// skips has tensors that the first layers make and the last layers read. They cross every border between these.
const skips = "name: skips\n" + inputs + `
- {name: a, kind: dense, from: [input], width: 4, activation: tanh}
- {name: b, kind: dense, from: [a], width: 4}
- {name: c, kind: dropout, from: [b], p: 0.25}
- {name: d, kind: dense, from: [c], width: 4, activation: relu}
- {name: e, kind: concat, from: [d, a]}
- {name: f, kind: dense, from: [e], width: 4}
- {name: g, kind: add, from: [f, b, a]}
- {name: loss, kind: cross_entropy, from: [g, target]}
`

// ties has one weight that four layers use. Each stage with one of these layers has a copy of the weight.
const ties = "name: ties\n" + inputs + `
- {name: a, kind: dense, from: [input], width: 4, activation: tanh}
- {name: b, kind: dense, from: [a], width: 4, activation: tanh}
- {name: c, kind: dense, from: [b], width: 4, activation: tanh}
- {name: d, kind: dense, from: [c], width: 4, activation: tanh}
- {name: e, kind: dense, from: [d], width: 4}
- {name: loss, kind: cross_entropy, from: [e, target]}
`

// ragged is noise over tokens with sequence lengths that vary by micro-batch, from `least` to the model's own length.
type ragged struct {
	noise
	micro, least int
}

func (r ragged) Batch(step, batchSize, firstRow, rows int) (data.Batch, error) {
	b, err := r.noise.Batch(step, batchSize, firstRow, rows)
	if err != nil {
		return b, err
	}
	whole := b["input"].Shape[1]
	keep := r.least + (5*step+3*(firstRow/r.micro))%(whole-r.least+1)
	for name, a := range b {
		var short []int64
		for row := range rows {
			short = append(short, a.Ints[row*whole:row*whole+keep]...)
		}
		b[name] = data.Array{Ints: short, Shape: []int{rows, keep}}
	}
	return b, nil
}

// crossing is a case: a model and data for it.
type crossing struct {
	name  string
	model *model.Model
	split data.Split
}

const crossingMicro, crossingMicros = 2, 5

func crossings(t testing.TB) []crossing {
	t.Helper()
	var all []crossing
	for _, text := range []string{forks, skips, ties} {
		m, err := model.Parse(strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		if m.Name == "ties" {
			for _, l := range []string{"b", "d", "e"} {
				m.Layers[m.Index(l)].Params[0].Tied = "a.weight"
			}
		}
		all = append(all, crossing{m.Name, m, noise{model: m, classes: 4, rows: 1 << 20, seed: 7}})
	}
	m := build(t, "lstm", map[string]any{"layers": 3, "width": 5, "embedding": 4, "context": 6, "vocabulary": 9,
		"dropout": 0.2, "tied": true})
	tokens := noise{model: m, classes: 9, rows: 1 << 20, seed: 7}
	return append(all, crossing{"lstm", m, tokens}, crossing{"ragged lstm", m, ragged{tokens, crossingMicro, 2}})
}

func (c crossing) config(t testing.TB, e engine.Engine, cuts []int, schedule string) Config {
	t.Helper()
	config := basic(t, e, c.model, planOf(c.model, cuts, crossingMicro, crossingMicros, schedule), 4, 3)
	config.Data.Train = c.split
	config.Train.Optimizer = optim.Settings{Kind: optim.AdamW, Beta1: 0.9, Beta2: 0.99, Epsilon: 1e-8, WeightDecay: 0.1}
	config.Train.Rate.Base, config.Train.Clip = 0.01, 0.5
	return config
}

// threeCuts returns every way of cutting n layers into four stages.
func threeCuts(n int) (all [][]int) {
	for a := range n - 3 {
		for b := a + 1; b < n-2; b++ {
			for c := b + 1; c < n-1; c++ {
				all = append(all, []int{a, b, c})
			}
		}
	}
	return all
}

func TestWhatCrossesBordersChangesNoBit(t *testing.T) {
	e := testEngine(t)
	for _, x := range crossings(t) {
		t.Run(x.name, func(t *testing.T) {
			n := len(x.model.Layers)
			want := reference(t, x.config(t, e, nil, "1f1b"))
			cuts := append(threeCuts(n), nil, evenCuts(n, 2), evenCuts(n, 3))
			for i, at := range cuts {
				c := x.config(t, e, at, []string{"1f1b", "zb-h1", "afab"}[i%3])
				if len(at) == 0 {
					c.Plan.Schedule = "1f1b"
				}
				for s := range c.Plan.Stages {
					c.Plan.Stages[s].Recompute = []plan.Recompute{plan.KeepAll, plan.KeepInput, plan.Every(1)}[(i+s)%3]
				}
				if err := equalCase(c, want, train(t, c).Weights); err != nil {
					t.Errorf("%s cut behind layers %v: %v", c.Plan.Schedule, at, err)
				}
			}
		})
	}
}

func TestTorchWhatCrossesBordersChangesNoBit(t *testing.T) {
	e := torchEngine(t)
	for _, x := range crossings(t) {
		t.Run(x.name, func(t *testing.T) {
			want := train(t, x.config(t, e, nil, "1f1b")).Weights
			for stages := 2; stages <= 4; stages++ {
				for _, schedule := range []string{"1f1b", "zb-h1"} {
					c := x.config(t, e, evenCuts(len(x.model.Layers), stages), schedule)
					c.Plan.Stages[0].Recompute = plan.Every(stages - 1)
					if err := equalCase(c, want, train(t, c).Weights); err != nil {
						t.Errorf("%s on %d stages: %v", schedule, stages, err)
					}
				}
			}
		})
	}
}

// TestCrossingsCross checks that the cases contain what they are meant to test: three tensors at a border, one of them
// of whole numbers; a tensor that crosses three borders; lengths that differ within a step.
func TestCrossingsCross(t *testing.T) {
	all := crossings(t)
	g := all[0].model
	if got := g.Layers[g.Index("fork0")].Outputs; len(got) != 3 || got[2].DType != model.Int {
		t.Errorf("a fork yields %v", got)
	}
	over := all[1].model
	for cut := range over.Index("g") {
		if live := over.Live(cut); !slices.Contains(live, over.Index("a")) {
			t.Errorf("behind layer %d cross %v, not a", cut, live)
		}
	}
	lengths := map[int]bool{}
	for k := range crossingMicros {
		b, err := all[4].split.Batch(1, crossingMicro*crossingMicros, k*crossingMicro, crossingMicro)
		if err != nil {
			t.Fatal(err)
		}
		lengths[b["input"].Shape[1]] = true
	}
	if len(lengths) < 3 {
		t.Errorf("lengths within a step: %v", lengths)
	}
}

// If replicas take slices of micro-batches, tensors of varying lengths are cut and joined again. The run ends with the
// same bits as the sequential program.
func TestRaggedSlices(t *testing.T) {
	e := testEngine(t)
	all := crossings(t)
	x := all[len(all)-1]
	g := rand.New(rand.NewPCG(1, 2))
	for range 12 {
		cuts := evenCuts(len(x.model.Layers), 2+g.IntN(2))
		c := x.config(t, e, cuts, "1f1b")
		c.Plan.Replication = "split"
		next := 0
		for s := range c.Plan.Stages {
			c.Plan.Stages[s].Devices = nil
			for range 1 + g.IntN(2) {
				c.Plan.Stages[s].Devices = append(c.Plan.Stages[s].Devices, next)
				next++
			}
		}
		want := sequential(t, c, synchronous(c))
		if err := sameWeights(want, train(t, c).Weights); err != nil {
			t.Errorf("%+v: %v", c.Plan.Stages, err)
		}
	}
}
