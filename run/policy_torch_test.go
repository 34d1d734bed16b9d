package run

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/run/process"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/family"
)

// The weights of streams on torch are those of their equations, bit for bit, also with batch norm, dropout and a tied
// weight. Under the policy latest, torch's operators run backwards with weights that have changed since the forward.
func TestTorchStreamsEqualTheirEquations(t *testing.T) {
	e := torchEngine(t)
	for _, policy := range streamPolicies {
		for i, net := range smallModels {
			for _, stages := range [][]int{{2, 3}, {3}, {1, 2, 3, 4}, {3, 4}}[i] {
				t.Run(fmt.Sprintf("%s/%s/%d", policy, net.name, stages), func(t *testing.T) {
					m := build(t, net.name, net.settings)
					micros := 1
					if policy.Accumulates() {
						micros = stages
					}
					c := basic(t, e, m, planOf(m, evenCuts(len(m.Layers), stages), 3, micros, "1f1b-rr"), net.classes, 9)
					c.Plan.Weights = string(policy)
					c.Plan.Stages[0].Recompute = plan.AtBoundary(stages == 3)
					c.Train.Optimizer.Momentum, c.Train.Clip = 0.9*float64(i%2), 0.5
					got := train(t, c)
					if err := equalCase(c, sequential(t, c, equation(policy, stages, micros)), got.Weights); err != nil {
						t.Error(err)
					}
				})
			}
		}
	}
}

// Torch's replicas end with the same bits as the sequential program. A replica's dropout mask is a slice of the mask
// for the whole micro-batch. With PerSlice, a batch norm's statistics are those of the replica's slice.
func TestTorchReplicasEqualTheSequentialProgram(t *testing.T) {
	e := torchEngine(t)
	for _, net := range []struct {
		name     string
		settings map[string]any
		classes  int
	}{
		{"gpt", map[string]any{"layers": 3, "width": 16, "heads": 2, "context": 8, "vocabulary": 30, "dropout": 0.1}, 30},
		{"llama", map[string]any{"layers": 2, "width": 16, "heads": 4, "kv_heads": 2, "hidden": 24, "context": 8,
			"vocabulary": 30}, 30},
		{"convnet", map[string]any{
			"image":      []int{1, 8, 8},
			"widths":     []int{4, 8},
			"dense":      []int{16},
			"batch_norm": true,
		}, 10},
	} {
		for _, how := range []schedule.Replication{schedule.Split, schedule.RoundRobin} {
			for _, replicas := range [][][]int{{{0, 1, 2}}, {{0}, {1, 2}}, {{0, 1, 2}, {3, 4}}} {
				t.Run(fmt.Sprintf("%s/%s/%v", net.name, how, replicas), func(t *testing.T) {
					m := build(t, net.name, net.settings)
					c := basic(t, e, m, planOf(m, evenCuts(len(m.Layers), len(replicas)), 5, 4, "afab"), net.classes, 2)
					c.Plan.Replication, c.Train.PerSlice = string(how), how == schedule.Split
					for i := range replicas {
						c.Plan.Stages[i].Devices = replicas[i]
					}
					got := train(t, c)
					if err := equalCase(c, sequential(t, c, synchronous(c)), got.Weights); err != nil {
						t.Error(err)
					}
				})
			}
		}
	}
}

// After one step of plain SGD, the parameters of replicas differ from those of one worker only by rounding. The reason
// is that replicas add in another order.
func TestReplicasAreNearOneWorker(t *testing.T) {
	for _, x := range []struct {
		engine engine.Engine
		limit  float64
	}{{testEngine(t), 1e-12}, {optionalTorch(), 1e-6}} {
		if x.engine == nil {
			continue
		}
		m := build(t, "mlp", map[string]any{"inputs": 6, "hidden": []int{12, 12}, "dropout": 0.2})
		one := basic(t, x.engine, m, planOf(m, nil, 6, 4, "1f1b"), 10, 1)
		want := train(t, one).Weights
		for _, how := range []schedule.Replication{schedule.Split, schedule.RoundRobin} {
			for _, replicas := range [][][]int{{{0, 1, 2}}, {{0, 1}, {2, 3, 4}}} {
				c := one
				c.Plan = planOf(m, evenCuts(len(m.Layers), len(replicas)), 6, 4, "afab")
				c.Plan.Replication = string(how)
				for i := range replicas {
					c.Plan.Stages[i].Devices = replicas[i]
				}
				for name, w := range train(t, c).Weights {
					a, b := numbersOf(w), numbersOf(want[name])
					var off, size float64
					for i := range a {
						off += (a[i] - b[i]) * (a[i] - b[i])
						size += b[i] * b[i]
					}
					if off > x.limit*x.limit*size {
						t.Errorf("%s, %s %v: %s is %.2g of its size off", x.engine.Name(), how, replicas, name, math.Sqrt(off/size))
					}
				}
			}
		}
	}
}

// numbersOf returns a weight's values.
func numbersOf(w process.Weight) []float64 {
	if w.DType == engine.Float64 {
		return engine.Numbers[float64](w.Data)
	}
	var out []float64
	for _, x := range engine.Numbers[float32](w.Data) {
		out = append(out, float64(x))
	}
	return out
}

// On torch too, every synchronous order ends with the same bits as one worker.
func TestTorchEveryOrderEqualsOneWorker(t *testing.T) {
	e := torchEngine(t)
	ran := 0
	for _, net := range smallModels {
		for _, f := range family.All() {
			if !f.AdmitsPolicy(schedule.Sync) {
				continue
			}
			m := build(t, net.name, net.settings)
			c := basic(t, e, m, planOf(m, evenCuts(len(m.Layers), 4), 2, 4, "1f1b"), net.classes, 2)
			c.Train.Clip = 0.5
			if !c.placed(f, rand.New(rand.NewPCG(1, 16))) {
				continue
			}
			t.Run(net.name+"/"+f.Name, func(t *testing.T) {
				ran++
				got := train(t, c)
				if err := equalCase(c, sequential(t, c, synchronous(c)), got.Weights); err != nil {
					t.Error(err)
				}
			})
		}
	}
	if ran < 36 {
		t.Errorf("%d cases; every family on three models was meant", ran)
	}
}
