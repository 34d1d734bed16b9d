package run

import (
	"context"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/engine/ref"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/run/process"
	"github.com/millrace-ml/millrace/stage/optim"
)

// elasticConfig returns a random run of several pipelines.
func elasticConfig(t testing.TB, g *rand.Rand) Config {
	c := randomConfig(t, ref.New(), g)
	c.Plan.Schedule, c.Plan.Weights, c.Plan.Replication = "elastic", "elastic", "round_robin"
	c.Plan.Elastic = &plan.Elastic{Pipelines: 2 + g.IntN(2), Alpha: g.Float64(), Order: plan.DiluteFirst}
	for i := range c.Plan.Stages {
		c.Plan.Stages[i].Warmup = 0
	}
	c.Train.Steps = 1 + g.IntN(6)
	return c
}

// TestElasticEqualsItsEquations: the weights of elastic averaging are those of its equations, bit for bit, for random
// models, cuts, optimizers and clipping.
func TestElasticEqualsItsEquations(t *testing.T) {
	for seed := range uint64(25) {
		g := rand.New(rand.NewPCG(seed, 5))
		c := elasticConfig(t, g)
		if seed%5 == 0 {
			c.Plan.Elastic.Order = plan.UpdateFirst
		}
		r := train(t, c)
		if err := equalCase(c, r.Weights, averagedWeights(t, c)); err != nil {
			t.Errorf("seed %d, %+v on %d stages: %v", seed, *c.Plan.Elastic, len(c.Plan.Stages), err)
		}
		if r.Steps != c.Train.Steps || len(losses(r.Timeline)) != c.Train.Steps {
			t.Errorf("seed %d: %d steps and %d losses, want %d", seed, r.Steps, len(losses(r.Timeline)), c.Train.Steps)
		}
	}
}

// TestElasticReportsTheAverage: at every evaluation the reference is the average of the pipelines, up to rounding. With
// the order of updates that the paper prints, it is not.
func TestElasticReportsTheAverage(t *testing.T) {
	c := small(t, 2, 12)
	c.Engine = ref.New()
	c.Plan.Schedule, c.Plan.Weights, c.Plan.Elastic = "elastic", "elastic", plan.NewElastic(3)
	c.Data.Test, c.Train.EvalEvery, c.Train.EvalRows = noise{model: c.Model, classes: 3, rows: 16, seed: 9}, 4, 16
	r := train(t, c)
	all := r.Timeline.Evaluations
	if len(all) != 3 || all[0].Step != 3 {
		t.Fatalf("evaluated %v", all)
	}
	for _, e := range all {
		if e.Apart == nil || *e.Apart > 1e-14 {
			t.Errorf("after step %d the reference is %v from the average", e.Step, e.Apart)
		}
	}
	c.Plan.Elastic.Order = plan.UpdateFirst
	if last := train(t, c).Timeline.Evaluations[2]; last.Apart == nil || *last.Apart < 1e-6 {
		t.Errorf("in the printed order it is %v", last.Apart)
	}
	c = pipelinesConfig(t, 1, 4, c.Train.Optimizer)
	c.Data.Test, c.Train.EvalRows = noise{model: c.Model, classes: 3, rows: 16, seed: 9}, 16
	if last := train(t, c).Timeline.Evaluations[0]; last.Apart != nil {
		t.Errorf("one pipeline has no reference, and it is %v from the average", *last.Apart)
	}
}

// TestElasticGoesOn: a resumed run ends with the same bits as one that was not stopped. Another number of pipelines is
// refused with a message that has both numbers.
func TestElasticGoesOn(t *testing.T) {
	fresh := func() Config {
		c := small(t, 2, 10)
		c.Engine = ref.New()
		c.Plan.Schedule, c.Plan.Weights, c.Plan.Elastic = "elastic", "elastic", plan.NewElastic(2)
		c.Train.Optimizer, _ = optim.Default(optim.Adam)
		c.Checkpoint = Checkpointing{Dir: t.TempDir(), Every: 5}
		return c
	}
	whole := train(t, fresh())
	first := fresh()
	first.Train.Steps = 5
	half := train(t, first)
	again := fresh()
	again.Resume.At = half.Checkpoint
	if err := sameWeights(whole.Weights, train(t, again).Weights); err != nil {
		t.Error(err)
	}
	again.Plan.Elastic = plan.NewElastic(3)
	if _, err := Train(context.Background(), again); err == nil ||
		!strings.Contains(err.Error(), "pipelines side by side is 2; this run has 3") {
		t.Errorf("got %v", err)
	}
}

// TestTorchElasticStagesAreBitEqual: on torch, the model may be cut anywhere, and the weights are those of one stage,
// bit for bit. The models have batch norm and dropout.
func TestTorchElasticStagesAreBitEqual(t *testing.T) {
	e := torchEngine(t)
	for _, family := range []struct {
		name     string
		settings map[string]any
		classes  int
	}{
		{"gpt", map[string]any{"layers": 2, "width": 16, "heads": 2, "context": 8, "vocabulary": 30, "dropout": 0.1}, 30},
		{"convnet", map[string]any{"image": []int{1, 8, 8}, "widths": []int{4, 8}, "dense": []int{16}, "batch_norm": true},
			10},
	} {
		var want map[string]process.Weight
		for stages := 1; stages <= 3; stages++ {
			m := build(t, family.name, family.settings)
			c := basic(t, e, m, planOf(m, evenCuts(len(m.Layers), stages), 2, 3, "elastic"), family.classes, 7)
			c.Plan.Weights, c.Plan.Elastic = "elastic", plan.NewElastic(3)
			c.Train.Optimizer, _ = optim.Default(optim.AdamW)
			c.Train.Rate.Base, c.Train.Clip = 0.01, 0.5
			got := train(t, c).Weights
			if want == nil {
				want = got
			}
			if err := sameWeights(want, got); err != nil {
				t.Errorf("%s on %d stages: %v", family.name, stages, err)
			}
		}
	}
}

// TestAStoppedElasticRunIsAShorterOne: if a run of several pipelines is told to stop, all end with the same iteration.
// The run ends with the same bits as a run of that length.
func TestAStoppedElasticRunIsAShorterOne(t *testing.T) {
	for seed := range cases(6, 12) {
		g := rand.New(rand.NewPCG(seed, 21))
		c := elasticConfig(t, g)
		c.Train.Steps = 30
		at := g.IntN(20)
		ctx, cancel := context.WithCancel(t.Context())
		c.Hooks.OnStep = func(s StepReport) {
			if s.Step == at {
				cancel()
			}
		}
		stopped, err := Train(ctx, c)
		cancel()
		if err != nil || stopped.Leaked != 0 {
			t.Fatalf("seed %d: %v, %d handles leaked", seed, err, stopped.Leaked)
		}
		if stopped.Steps <= at {
			t.Fatalf("seed %d: %d steps done when told to stop behind step %d", seed, stopped.Steps, at)
		}
		c.Hooks.OnStep, c.Train.Steps = nil, stopped.Steps
		if err := sameWeights(train(t, c).Weights, stopped.Weights); err != nil {
			t.Errorf("seed %d, %d steps: %v", seed, stopped.Steps, err)
		}
	}
}

// TestElasticReplicas: the stages' replicas take micro-batches in turn or split them. The final weights are near those
// of a run without replicas, which adds the same numbers in another order.
func TestElasticReplicas(t *testing.T) {
	for _, how := range []string{"round_robin", "split"} {
		c := small(t, 2, 6)
		c.Engine = ref.New()
		c.Plan.MicroBatch, c.Plan.MicroBatches, c.Plan.Replication = 4, 4, how
		c.Plan.Schedule, c.Plan.Weights, c.Plan.Elastic = "elastic", "elastic", plan.NewElastic(2)
		one := train(t, c)
		c.Plan.Stages[0].Devices, c.Plan.Stages[1].Devices = []int{0, 1}, []int{2, 3}
		two, again := train(t, c), train(t, c)
		if err := sameWeights(two.Weights, again.Weights); err != nil {
			t.Errorf("%s: twice the same run: %v", how, err)
		}
		for name, w := range one.Weights {
			other := engine.Numbers[float64](two.Weights[name].Data)
			for k, x := range engine.Numbers[float64](w.Data) {
				if d := x - other[k]; d > 1e-9 || d < -1e-9 {
					t.Fatalf("%s: %s is %v with replicas, %v without", how, name, other[k], x)
				}
			}
		}
	}
}
