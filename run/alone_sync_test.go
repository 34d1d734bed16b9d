package run

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/schedule/programs"
	"github.com/millrace-ml/millrace/stage/optim"
)

// optimizers has at least one optimizer of each kind, and rates at least one schedule of each kind. All coefficients of
// a kind are set at least once.
var (
	optimizers = []optim.Settings{
		{Kind: optim.SGD},
		{Kind: optim.SGD, Momentum: 0.9, WeightDecay: 0.05},
		{Kind: optim.SGD, Momentum: 0.8, Nesterov: true, WeightDecay: 0.01},
		{Kind: optim.Adam, Beta1: 0.9, Beta2: 0.99, Epsilon: 1e-4, WeightDecay: 0.02},
		{Kind: optim.AdamW, Beta1: 0.9, Beta2: 0.99, Epsilon: 1e-4, WeightDecay: 0.1},
		{Kind: optim.LARS, Momentum: 0.9, WeightDecay: 0.05, Trust: 0.1},
		{Kind: optim.ASGD, WeightDecay: 0.01, AverageFrom: 3},
	}
	rates = []optim.Rate{
		{Kind: optim.Constant, Base: 0.1},
		{Kind: optim.StepDecay, Base: 0.2, Warmup: 2, Every: 3, Factor: 0.5},
		{Kind: optim.Cosine, Base: 0.2, Floor: 0.01, Warmup: 1, Total: 9},
		{Kind: optim.Polynomial, Base: 0.2, Floor: 0.02, Total: 10, Power: 2},
	}
)

// asAlone trains a chain in a run and in plain arithmetic. Its error says how the two differ in weights, running
// statistics, losses or the evaluation after the last step.
func asAlone(t *testing.T, c chain, config Config, tolerance float64) error {
	t.Helper()
	_, err := clippedAlone(t, c, config, tolerance)
	return err
}

// clippedAlone is like asAlone, and also returns how many updates were clipped.
func clippedAlone(t *testing.T, c chain, config Config, tolerance float64) (clipped int, err error) {
	t.Helper()
	config.Data.Test = noise{model: config.Model, classes: 3, rows: 1 << 10, seed: 11}
	config.Train.EvalRows = 7
	twin := newAlone(c, config)
	if err := twin.train(config.Train.Steps, config.Train.EvalEvery); err != nil {
		return clipped, err
	}
	clipped = over(twin.norms, config.Train.Clip)
	got := train(t, config)
	if err := twin.weights().nearTo(got.Weights, tolerance); err != nil {
		return clipped, err
	}
	running := twin.running()
	if err := running.nearTo(got.Weights, tolerance); err != nil {
		return clipped, err
	}
	if err := near("losses", losses(got.Timeline), twin.losses, tolerance); err != nil {
		return clipped, err
	}
	if config.Train.EvalEvery > 0 &&
		len(got.Timeline.Evaluations) != (config.Train.Steps+config.Train.EvalEvery-1)/config.Train.EvalEvery {
		return clipped, fmt.Errorf("evaluated %d times", len(got.Timeline.Evaluations))
	}
	loss, correct, err := twin.evaluate(config.Data.Test, config.Train.EvalRows, twin.shown(), running)
	if err != nil {
		return clipped, err
	}
	e := got.Timeline.Evaluations[len(got.Timeline.Evaluations)-1]
	if e.Correct != correct || e.Samples != config.Train.EvalRows {
		return clipped, fmt.Errorf("%d of %d right; want %d of %d", e.Correct, e.Samples, correct, config.Train.EvalRows)
	}
	return clipped, near("the evaluation", []float64{e.Loss}, []float64{loss}, tolerance)
}

// Any synchronous order with one pipeline is plain training: the mean gradient of the batch, clipping by its norm, and
// the optimizer's step at the schedule's rate. Split backwards, recompute, post-validation and shared weights do not
// change that.
func TestEverySynchronousOrderIsPlainTraining(t *testing.T) {
	e := testEngine(t)
	for _, f := range family.All() {
		if !f.AdmitsPolicy(schedule.Sync) {
			continue
		}
		t.Run(f.Name, func(t *testing.T) {
			ran, clipped := 0, 0
			for seed := range uint64(40) {
				g := rand.New(rand.NewPCG(seed, 41))
				c := denseChain()
				if g.IntN(2) == 0 {
					c = tiedChain()
				}
				m := c.model(t)
				config := basic(t, e, m, randomPlan(g, m), 3, 10)
				config.Train.Optimizer, config.Train.Rate = optimizers[ran%len(optimizers)], rates[g.IntN(len(rates))]
				config.Train.Clip = []float64{0, 0.3, 1}[g.IntN(3)]
				if !config.placed(f, g) {
					continue
				}
				if f.AdmitsPolicy(schedule.Elastic) {
					config.Plan.Weights, config.Plan.Elastic = string(schedule.Elastic), plan.NewElastic(1)
				}
				config.Plan.PostValidate = config.Train.Clip > 0 && g.IntN(2) == 0 && !f.AdmitsPolicy(schedule.Elastic)
				if _, err := programs.Build(config.Plan, m.TiedLayers(), config.Train.Clip > 0, 1); err != nil {
					continue
				}
				n, err := clippedAlone(t, c, config, tolerance(e))
				if err != nil {
					t.Fatalf("seed %d: %v\n%+v\n%+v %+v clip %v", seed, err, *config.Plan, config.Train.Optimizer,
						config.Train.Rate, config.Train.Clip)
				}
				if n > 0 && n < config.Train.Steps {
					clipped++
				}
				if ran++; ran >= len(optimizers) && clipped > 0 {
					break
				}
			}
			if ran < len(optimizers) || clipped == 0 {
				t.Errorf("%d cases, %d of them clipped now and then", ran, clipped)
			}
		})
	}
}

// tiedChain has a layer that shares its weight with an earlier one.
func tiedChain() chain {
	return newChain(4, false,
		link{out: 4, act: "tanh"},
		link{out: 4, act: "tanh"},
		link{out: 4, act: "tanh", tied: "n0"},
		link{out: 3},
	)
}

// Replicas that split micro-batches, or take them in turn, train on the mean over the batch. A batch norm normalises
// over the rows that one replica computes. Running statistics become the mean over the replicas.
func TestReplicasOfAStepTrainOnItsMean(t *testing.T) {
	for _, x := range []struct {
		engine engine.Engine
		chain  chain
		limit  float64
	}{{testEngine(t), denseChain(), 1e-12}, {optionalTorch(), normChain(), 1e-5}} {
		if x.engine == nil {
			continue
		}
		m := x.chain.model(t)
		for _, how := range []schedule.Replication{schedule.Split, schedule.RoundRobin} {
			for _, replicas := range [][]int{{3}, {1, 2}, {3, 2}, {2, 1, 3}} {
				for i, optimizer := range optimizers {
					config := basic(t, x.engine, m, planOf(m, evenCuts(len(m.Layers), len(replicas)), 13, 4, "afab"), 3, 6)
					config.Train.Optimizer, config.Train.Rate, config.Train.Clip = optimizer, rates[i%len(rates)], 0.5
					config.Plan.Replication, config.Train.PerSlice = string(how), true
					on(config.Plan, replicas...)
					if err := asAlone(t, x.chain, config, x.limit); err != nil {
						t.Errorf("%s, %s %v, %+v: %v", x.engine.Name(), how, replicas, optimizer, err)
					}
				}
			}
		}
	}
}
