package run

import (
	"bytes"
	"context"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/engine/ref"
	"github.com/millrace-ml/millrace/nn"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/run/optim"
	"github.com/millrace-ml/millrace/run/stage"
)

// averaged is elastic averaging without any Program, on plain slices: one worker, the whole
// model as one stage for each pipeline, iteration by iteration and pipeline by pipeline. It
// takes gradients and optimizer steps from package stage and does the rest itself.
type averaged struct {
	c     Config
	x     []*stage.Stage
	z     [][]float64 // by parameter, then by buffer
	w     *worker
	graph *stage.Graph
	layer []nn.Layer
	batch int   // of the data, the next
	later []leg // iterations behind the Config's own
}

// leg is iterations with another number of pipelines than those before.
type leg struct {
	elastic *plan.Elastic
	steps   int
}

func averagedWeights(t testing.TB, c Config, later ...leg) map[string]Weight {
	t.Helper()
	var out map[string]Weight
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		done <- guarded(func() (err error) {
			out, err = (&averaged{c: c, later: later}).run()
			return err
		})
	}()
	if err := <-done; err != nil {
		t.Fatal("twin: ", err)
	}
	return out
}

func (a *averaged) run() (map[string]Weight, error) {
	c := a.c
	dev, err := c.Engine.Open(0, 1)
	if err != nil {
		return nil, err
	}
	defer dev.Close()
	if a.graph, err = stage.NewGraph(c.Model); err != nil {
		return nil, err
	}
	if a.layer, err = nn.Build(c.Model); err != nil {
		return nil, err
	}
	a.w = &worker{dev: dev, job: &job{engine: c.Engine}}
	defer func() {
		for _, s := range a.x {
			s.Close()
		}
	}()
	if err := a.open(c.Plan.Together()); err != nil {
		return nil, err
	}
	if a.z, err = a.copies(0); err != nil {
		return nil, err
	}
	done := 0
	for _, l := range append([]leg{{c.Plan.Elastic, c.Steps}}, a.later...) {
		if done > 0 {
			if err := a.regroup(l.elastic.Pipelines); err != nil {
				return nil, err
			}
		}
		for range l.steps {
			if err := a.iteration(done, l.elastic); err != nil {
				return nil, err
			}
			done++
		}
	}
	out := map[string]Weight{}
	for i, v := range a.tensors(0) {
		out[v.Name] = Weight{DType: c.Engine.Float(), Data: bytes.Clone(floatBytes(a.z[i]))}
	}
	return out, nil
}

// open makes so many pipelines, all of them with the initial weights.
func (a *averaged) open(pipelines int) error {
	for range pipelines {
		s, err := stage.New(stage.Config{
			Device: a.w.dev, Float: a.c.Engine.Float(), Graph: a.graph, Last: len(a.layer) - 1, Layers: a.layer, Seed: a.c.Seed, States: a.c.Optimizer.States(),
		})
		if err != nil {
			return err
		}
		a.x = append(a.x, s)
	}
	return nil
}

// regroup goes on with another number of pipelines: weights and buffers of the reference, states
// the mean of those that there were.
func (a *averaged) regroup(pipelines int) error {
	var states [][]float64 // by parameter and state
	for _, s := range a.x {
		at := 0
		for _, p := range s.Params() {
			for _, state := range p.State {
				data, err := a.w.dev.View(state)
				if err != nil {
					return err
				}
				if at == len(states) {
					states = append(states, make([]float64, len(floatsOf(data))))
				}
				for k, v := range floatsOf(data) {
					states[at][k] += v
				}
				at++
			}
		}
		defer s.Close()
	}
	before := len(a.x)
	a.x = nil
	if err := a.open(pipelines); err != nil {
		return err
	}
	for q, s := range a.x {
		views, err := a.views(q)
		if err != nil {
			return err
		}
		for i, v := range views {
			copy(v, a.z[i])
		}
		at := 0
		for _, p := range s.Params() {
			for _, state := range p.State {
				data, err := a.w.dev.View(state)
				if err != nil {
					return err
				}
				for k := range floatsOf(data) {
					floatsOf(data)[k] = states[at][k] / float64(before)
				}
				at++
			}
		}
	}
	return nil
}

// iteration takes every pipeline through a batch, and then the reference. One pipeline is
// plain training, and its own reference.
func (a *averaged) iteration(t int, e *plan.Elastic) error {
	n, alpha := len(a.x), e.Alpha
	var steps [][][]float64
	for p, s := range a.x {
		if err := a.gradients(s, a.batch); err != nil {
			return err
		}
		a.batch++
		x, err := a.copies(p)
		if err != nil {
			return err
		}
		scale := 1.0
		if a.c.Clip > 0 {
			vectors, err := s.Norms()
			if err != nil {
				return err
			}
			var squares []float64
			for _, v := range vectors {
				squares = append(squares, stage.SquareSum(v))
			}
			scale = optim.ClipScale(stage.GlobalNorm(squares), a.c.Clip)
		}
		if err := s.Update(a.c.Optimizer, optim.Step{Count: t + 1, Rate: a.c.Rate.At(t), GradScale: scale}, stage.Replace); err != nil {
			return err
		}
		stepped, err := a.views(p)
		if err != nil {
			return err
		}
		if n == 1 {
			a.z, err = a.copies(0)
			return err
		}
		var u [][]float64
		for i := range stepped {
			if i >= len(s.Params()) {
				u = append(u, slices.Clone(stepped[i])) // a buffer
				continue
			}
			d := make([]float64, len(x[i]))
			for k := range d {
				d[k] = stepped[i][k] - x[i][k]
				if e.Order == plan.UpdateFirst {
					stepped[i][k] = stepped[i][k]*(1-alpha) + alpha*a.z[i][k]
				} else {
					stepped[i][k] = x[i][k]*(1-alpha) + alpha*a.z[i][k] + d[k]
				}
			}
			u = append(u, d)
		}
		steps = append(steps, u)
	}
	mean := 1 / float64(n)
	for i := range a.z {
		for k := range a.z[i] {
			sum := steps[0][i][k]
			for _, u := range steps[1:] {
				sum += u[i][k]
			}
			if i < len(a.x[0].Params()) {
				a.z[i][k] += mean * sum
			} else {
				a.z[i][k] = sum * mean
			}
		}
	}
	return nil
}

// gradients runs the micro-batches of one batch of the data.
func (a *averaged) gradients(s *stage.Stage, batch int) error {
	rows := a.c.Plan.MicroBatch
	for m := range a.c.Plan.MicroBatches {
		given := stage.Tensors{}
		if err := a.w.feed(&holding{Stage: s}, given, a.c.Data.Train, batch, a.c.Plan.Batch(), m*rows, rows); err != nil {
			return err
		}
		if _, _, err := s.Forward(stage.Micro{ID: m, Step: batch, Index: m, Rows: rows, Version: s.Version()}, given); err != nil {
			return err
		}
		if _, err := s.Backward(m, nil, float64(rows)/float64(a.c.Plan.Batch())); err != nil {
			return err
		}
	}
	return nil
}

// tensors is the parameters of a pipeline, then its buffers.
func (a *averaged) tensors(p int) []*stage.Param {
	return slices.Concat(a.x[p].Params(), a.x[p].Buffers())
}

// views is their numbers, where they lie.
func (a *averaged) views(p int) ([][]float64, error) {
	var all [][]float64
	for _, t := range a.tensors(p) {
		data, err := a.w.dev.View(t.Value)
		if err != nil {
			return nil, err
		}
		all = append(all, floatsOf(data))
	}
	return all, nil
}

func (a *averaged) copies(p int) ([][]float64, error) {
	views, err := a.views(p)
	var all [][]float64
	for _, v := range views {
		all = append(all, slices.Clone(v))
	}
	return all, err
}

// elasticConfig is a random run of several pipelines.
func elasticConfig(t testing.TB, g *rand.Rand) Config {
	c := randomConfig(t, ref.New(), g)
	c.Plan.Schedule, c.Plan.Weights, c.Plan.Replication = "elastic", "elastic", "round_robin"
	c.Plan.Elastic = &plan.Elastic{Pipelines: 2 + g.IntN(2), Alpha: g.Float64(), Order: plan.DiluteFirst}
	for i := range c.Plan.Stages {
		c.Plan.Stages[i].Warmup = 0
	}
	c.Steps = 1 + g.IntN(6)
	return c
}

// TestElasticEqualsItsEquations, bit by bit, for random models, cuts, optimizers and clipping.
func TestElasticEqualsItsEquations(t *testing.T) {
	for seed := range uint64(25) {
		g := rand.New(rand.NewPCG(seed, 5))
		c := elasticConfig(t, g)
		if seed%5 == 0 {
			c.Plan.Elastic.Order = plan.UpdateFirst
		}
		r := train(t, c)
		if err := sameWeights(r.Weights, averagedWeights(t, c)); err != nil {
			t.Errorf("seed %d, %+v on %d stages: %v", seed, *c.Plan.Elastic, len(c.Plan.Stages), err)
		}
		if r.Steps != c.Steps || len(losses(r.Timeline)) != c.Steps {
			t.Errorf("seed %d: %d steps and %d losses, want %d", seed, r.Steps, len(losses(r.Timeline)), c.Steps)
		}
	}
}

// TestElasticReportsTheAverage: at every evaluation the reference is the average of the pipelines to
// rounding; in the printed order it is not.
func TestElasticReportsTheAverage(t *testing.T) {
	c := small(t, 2, 12)
	c.Engine = ref.New()
	c.Plan.Schedule, c.Plan.Weights, c.Plan.Elastic = "elastic", "elastic", plan.NewElastic(3)
	c.Data.Test, c.EvalEvery, c.EvalRows = noise{model: c.Model, classes: 3, rows: 16, seed: 9}, 4, 16
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
	c = pipelinesConfig(t, 1, 4, c.Optimizer)
	c.Data.Test, c.EvalRows = noise{model: c.Model, classes: 3, rows: 16, seed: 9}, 16
	if last := train(t, c).Timeline.Evaluations[0]; last.Apart != nil {
		t.Errorf("one pipeline has no reference, and it is %v from the average", *last.Apart)
	}
}

// TestElasticGoesOn: stopped and resumed is as not stopped, evaluated and saved or not, and
// another number of pipelines is refused with both.
func TestElasticGoesOn(t *testing.T) {
	fresh := func() Config {
		c := small(t, 2, 10)
		c.Engine = ref.New()
		c.Plan.Schedule, c.Plan.Weights, c.Plan.Elastic = "elastic", "elastic", plan.NewElastic(2)
		c.Optimizer, _ = optim.Default(optim.Adam)
		c.Checkpoint = Checkpointing{Dir: t.TempDir(), Every: 5}
		return c
	}
	whole := train(t, fresh())
	first := fresh()
	first.Steps = 5
	half := train(t, first)
	again := fresh()
	again.Resume = half.Checkpoint
	if err := sameWeights(whole.Weights, train(t, again).Weights); err != nil {
		t.Error(err)
	}
	again.Plan.Elastic = plan.NewElastic(3)
	if _, err := Train(context.Background(), again); err == nil || !strings.Contains(err.Error(), "pipelines side by side is 2; this run has 3") {
		t.Errorf("got %v", err)
	}
}

// TestTorchElasticStagesAreBitEqual: however the model is cut, and whether or not it stops in
// between, torch's bits are those of one stage, batch norm, dropout and ties included.
func TestTorchElasticStagesAreBitEqual(t *testing.T) {
	e := torchEngine(t)
	for _, family := range []struct {
		name     string
		settings map[string]any
		classes  int
	}{
		{"gpt", map[string]any{"layers": 2, "width": 16, "heads": 2, "context": 8, "vocabulary": 30, "dropout": 0.1}, 30},
		{"convnet", map[string]any{"image": []int{1, 8, 8}, "widths": []int{4, 8}, "dense": []int{16}, "batch_norm": true}, 10},
	} {
		var want map[string]Weight
		for stages := 1; stages <= 3; stages++ {
			m := build(t, family.name, family.settings)
			c := basic(t, e, m, planOf(m, evenCuts(len(m.Layers), stages), 2, 3, "elastic"), family.classes, 7)
			c.Plan.Weights, c.Plan.Elastic = "elastic", plan.NewElastic(3)
			c.Optimizer, _ = optim.Default(optim.AdamW)
			c.Rate.Base, c.Clip = 0.01, 0.5
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

// TestAStoppedElasticRunIsAShorterOne: pipelines are told to stop while one is an iteration ahead of
// another, and end with the same iteration.
func TestAStoppedElasticRunIsAShorterOne(t *testing.T) {
	for seed := range uint64(12) {
		g := rand.New(rand.NewPCG(seed, 21))
		c := elasticConfig(t, g)
		c.Steps = 30
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
		c.Hooks.OnStep, c.Steps = nil, stopped.Steps
		if err := sameWeights(train(t, c).Weights, stopped.Weights); err != nil {
			t.Errorf("seed %d, %d steps: %v", seed, stopped.Steps, err)
		}
	}
}

// TestElasticReplicas: stages on several workers, in turn or on slices, come near to the run without
// replicas, which adds the same numbers in another order.
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
			other := floatsOf(two.Weights[name].Data)
			for k, x := range floatsOf(w.Data) {
				if d := x - other[k]; d > 1e-9 || d < -1e-9 {
					t.Fatalf("%s: %s is %v with replicas, %v without", how, name, other[k], x)
				}
			}
		}
	}
}
