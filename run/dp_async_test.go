package run

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/wire/shape"
)

// asynchronous places a model on replicas that sum their gradients during the next minibatch.
func asynchronous(c *Config, replicas, micros int) {
	c.Plan = replicated(c.Plan, len(c.Model.Layers), replicas)
	c.Plan.Schedule, c.Plan.Weights, c.Plan.MicroBatches = "dp-async", string(schedule.DoubleBuffered), micros
}

func asyncConfig(t testing.TB, e engine.Engine, g *rand.Rand) Config {
	c := randomConfig(t, e, g)
	replicas := 2 + g.IntN(3)
	asynchronous(&c, replicas, replicas+g.IntN(2*replicas))
	c.Plan.Stages[0].Recompute = anyRecompute(g)
	c.Train.Steps = 1 + g.IntN(8)
	c.Keep.Steps = c.Train.Steps
	return c
}

// The weights of asynchronous data parallelism are w(k+1) = w(k) - lr * grad f_k(w(k-1)), bit for bit. Here f_k is the
// loss of minibatch k. Gradients are summed in rank order, clipped or not, however long messages take.
func TestAsynchronousDataParallelismEqualsItsEquation(t *testing.T) {
	e := testEngine(t)
	for seed := range cases(32, 80) {
		g := rand.New(rand.NewPCG(seed, 32))
		c := asyncConfig(t, e, g)
		if seed%8 == 0 {
			c.Wire.Carriers = shaped(func(from, to int) shape.Link {
				return shape.Link{Latency: time.Duration(g.IntN(300)) * time.Microsecond, BytesPerSecond: 1e6}
			})
		}
		got := train(t, c)
		want := sequential(t, c, equation(schedule.DoubleBuffered, 1, c.Plan.MicroBatches))
		if err := equalCase(c, want, got.Weights); err != nil {
			t.Fatalf("seed %d: %v\n%+v\nsteps %d", seed, err, *c.Plan, c.Train.Steps)
		}
		checkOrder(t, c, got)
	}
}

// A run that is told to stop still makes the updates of the minibatches that it has begun. It ends with the same bits
// as a shorter run.
func TestAStoppedAsynchronousRunIsAShorterOne(t *testing.T) {
	e := testEngine(t)
	for seed := range cases(8, 20) {
		g := rand.New(rand.NewPCG(seed, 33))
		c := asyncConfig(t, e, g)
		c.Train.Steps = 30
		stopsAsAShorterRun(t, seed, c, g.IntN(12))
	}
}

// On torch too, the weights of asynchronous data parallelism are those of its equation, bit for bit. At the end, the
// statistics of a batch norm are the mean over the replicas.
func TestTorchAsynchronousDataParallelism(t *testing.T) {
	e := torchEngine(t)
	for _, family := range []struct {
		name     string
		settings map[string]any
		classes  int
	}{
		{"mlp", map[string]any{"inputs": 20, "hidden": []int{32, 24}, "dropout": 0.2}, 10},
		{"convnet", map[string]any{"image": []int{1, 8, 8}, "widths": []int{4, 8}, "dense": []int{16}, "batch_norm": true},
			10},
		{"gpt", map[string]any{"layers": 2, "width": 16, "heads": 2, "context": 8, "vocabulary": 30, "dropout": 0.1,
			"tied": true}, 30},
	} {
		for replicas := 2; replicas <= 3; replicas++ {
			t.Run(fmt.Sprintf("%s/%d", family.name, replicas), func(t *testing.T) {
				m := build(t, family.name, family.settings)
				c := basic(t, e, m, planOf(m, nil, 3, 1, "dp"), family.classes, 5)
				c.Train.Clip = 0.5
				asynchronous(&c, replicas, 2*replicas-1)
				c.Plan.Stages[0].Recompute = plan.AtBoundary(replicas == 3)
				got := train(t, c)
				if err := equalCase(c, sequential(t, c, equation(schedule.DoubleBuffered, 1, c.Plan.MicroBatches)),
					got.Weights); err != nil {
					t.Error(err)
				}
			})
		}
	}
}
