package run

import (
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/schedule"
)

// tolerance returns how much the weights of an engine may differ from those of plain arithmetic.
func tolerance(e engine.Engine) float64 {
	if e.Float() == engine.Float64 {
		return 1e-12
	}
	return 1e-6
}

// denseChain has a layer that is read by the next one and also by a later one.
func denseChain() chain {
	return newChain(4, false,
		link{out: 5, act: "tanh"},
		link{out: 4, act: "tanh"},
		link{out: 4, act: "relu"},
		link{add: "n1"},
		link{out: 3},
	)
}

// pairing is an engine with a chain of layers, and the tolerance of a run.
type pairing struct {
	engine engine.Engine
	chain  chain
	limit  float64
}

// pairings returns a pairing for each available engine.
func pairings(t *testing.T) []pairing {
	all := []pairing{{testEngine(t), tiedChain(), 1e-12}}
	if e := optionalTorch(); e != nil {
		all = append(all, pairing{e, normChain(), 5e-5})
	}
	return all
}

// replicatedStream returns a run of 1F1B-RR with this many replicas of each stage.
func replicatedStream(t *testing.T, e engine.Engine, m *model.Model, policy schedule.Policy, replicas []int,
	microBatch, steps int, again bool) Config {
	config := basic(t, e, m, planOf(m, evenCuts(len(m.Layers), len(replicas)), microBatch, 1, "1f1b-rr"), 3, steps)
	config.Train.Optimizer.Momentum = 0.9
	config.Plan.Weights = string(policy)
	on(config.Plan, replicas...)
	for i := range config.Plan.Stages {
		config.Plan.Stages[i].Recompute = plan.AtBoundary(again)
	}
	return config
}

// Each stage of 1F1B-RR updates by the mean over its own replicas' minibatches (PipeDream §3.2, §3.3). The numbers of
// replicas of other stages have no effect. At the end of the stream the mean is over the remaining minibatches.
func TestEachStageTakesTheMeanOverItsOwnReplicas(t *testing.T) {
	c := denseChain()
	m := c.model(t)
	for name, e := range map[string]engine.Engine{"ref": testEngine(t), "torch": optionalTorch()} {
		if e == nil {
			continue
		}
		for _, policy := range []schedule.Policy{schedule.Stash, schedule.Vertical, schedule.Latest} {
			for _, replicas := range [][]int{{1}, {3}, {1, 1}, {2, 1}, {1, 2}, {2, 2}, {1, 1, 1}, {3, 1, 2}, {1, 3}, {2, 1, 1}} {
				for _, steps := range []int{5, 12, 13} { // 5 and 13 steps leave incomplete groups of 2 and 3
					for _, again := range []bool{false, true} {
						if steps == 12 && (again || name == "torch") {
							continue
						}
						config := replicatedStream(t, e, m, policy, replicas, 3, steps, again)
						config.Train.Rate.Base = 0.3
						twin := newAlone(c, config)
						if err := twin.train(steps, 0); err != nil {
							t.Fatal(err)
						}
						if err := twin.weights().nearTo(train(t, config).Weights, tolerance(e)); err != nil {
							t.Errorf("%s, %s, %v, %d steps, recompute %v: %v", name, policy, replicas, steps, again, err)
						}
					}
				}
			}
		}
	}
}

// normChain has two norms, so that the gain of a norm affects the gradients of earlier layers.
func normChain() chain {
	return newChain(4, true,
		link{out: 5, act: "tanh"},
		link{norm: true},
		link{out: 4, act: "tanh"},
		link{norm: true},
		link{out: 3},
	)
}

// Batch norm trains in a stream, also under the policy latest. Under latest, the backward of a norm reads the current
// gain, and the mean and deviation kept by its forward. With recompute all three come from the current weights.
func TestBatchNormTrainsInAStream(t *testing.T) {
	e := torchEngine(t)
	c := normChain()
	m := c.model(t)
	for _, policy := range []schedule.Policy{schedule.Latest, schedule.Stash, schedule.Vertical} {
		for _, replicas := range [][]int{{1, 1}, {2, 1}, {1, 2}, {3, 1, 2}} {
			for _, again := range []bool{false, true} {
				const steps = 13
				config := replicatedStream(t, e, m, policy, replicas, 5, steps, again)
				twin := newAlone(c, config)
				if err := twin.train(steps, 0); err != nil {
					t.Fatal(err)
				}
				got := train(t, config).Weights
				if err := twin.weights().nearTo(got, 3e-6); err != nil {
					t.Errorf("%s, %v, recompute %v: %v", policy, replicas, again, err)
				}
				if err := twin.running().nearTo(got, 3e-6); err != nil {
					t.Errorf("%s, %v, recompute %v: %v", policy, replicas, again, err)
				}
			}
		}
	}
}

// A stream updates as its paper says, with every optimizer, learning rate and number of replicas. Draining the pipeline
// for evaluations does not change that. The cases in which all stages update together also clip gradients and share
// weights.
func TestStreamsStepAsTheirPapersSay(t *testing.T) {
	e := testEngine(t)
	for _, x := range []struct {
		policy   schedule.Policy
		replicas []int
		micros   int
	}{
		{schedule.Stash, []int{1, 1, 1}, 1}, {schedule.Stash, []int{2, 2}, 1},
		{schedule.Stash, []int{2, 1}, 1}, {schedule.Stash, []int{3, 1, 2}, 1},
		{schedule.Vertical, []int{1, 1, 1}, 1}, {schedule.Vertical, []int{3, 3}, 1}, {schedule.Vertical, []int{1, 2}, 1},
		{schedule.Latest, []int{1, 1, 1}, 1}, {schedule.Latest, []int{2, 2}, 1}, {schedule.Latest, []int{2, 1}, 1},
		{schedule.DoubleBuffered, []int{1, 1}, 1}, {schedule.DoubleBuffered, []int{2, 1}, 1},
		{schedule.DoubleBuffered, []int{1, 1, 1}, 4},
		{schedule.DoubleBuffered, []int{2, 1}, 4}, {schedule.DoubleBuffered, []int{2}, 3},
	} {
		for i, optimizer := range optimizers {
			together := x.micros > 1 || x.replicas[0] == x.replicas[len(x.replicas)-1]
			c := denseChain()
			if together && i%2 == 0 {
				c = tiedChain()
			}
			m := c.model(t)
			config := basic(t, e, m, planOf(m, evenCuts(len(m.Layers), len(x.replicas)), 2, x.micros, "1f1b-rr"), 3, 13)
			config.Train.Optimizer, config.Train.Rate, config.Train.EvalEvery = optimizer, rates[i%len(rates)], []int{0, 5}[i%2]
			config.Plan.Weights = string(x.policy)
			if together {
				config.Train.Clip = 0.4
			}
			on(config.Plan, x.replicas...)
			if err := asAlone(t, c, config, tolerance(e)); err != nil {
				t.Errorf("%s, %v, %d micro-batches, %+v: %v", x.policy, x.replicas, x.micros, optimizer, err)
			}
		}
	}
}

// Asynchronous data parallelism on one stage computes w(t+1) = w(t) - lr grad f(w(t-1)). Here w(t) are the weights
// after t updates, and f is the loss of a minibatch.
func TestAsynchronousReplicasStepAsTheirEquationSays(t *testing.T) {
	for _, x := range pairings(t) {
		m := x.chain.model(t)
		for replicas := 2; replicas <= 3; replicas++ {
			for i, optimizer := range optimizers {
				config := basic(t, x.engine, m, planOf(m, nil, 9, 1, "dp"), 3, 9)
				config.Train.Optimizer, config.Train.Rate = optimizer, rates[i%len(rates)]
				config.Train.Clip = []float64{0, 0.4}[i%2]
				asynchronous(&config, replicas, replicas+i)
				if err := asAlone(t, x.chain, config, x.limit); err != nil {
					t.Errorf("%s, %d replicas, %+v: %v", x.engine.Name(), replicas, optimizer, err)
				}
			}
		}
	}
}

// A stream that is resumed from a checkpoint, under its own plan or another, equals a stream that drained at the
// checkpoint's step. The checkpoint has the optimizer's states and their numbers of updates, which differ between
// stages.
func TestAResumedStreamKnowsItsUpdates(t *testing.T) {
	e := testEngine(t)
	c := denseChain()
	m := c.model(t)
	for i, optimizer := range optimizers {
		at := func(steps int, policy schedule.Policy, replicas ...int) Config {
			config := basic(t, e, m, planOf(m, evenCuts(len(m.Layers), len(replicas)), 2, 1, "1f1b-rr"), 3, steps)
			config.Train.Optimizer, config.Train.Rate, config.Plan.Weights = optimizer, rates[i%len(rates)], string(policy)
			on(config.Plan, replicas...)
			return config
		}
		dir := t.TempDir()
		first := at(5, schedule.Stash, 2, 1)
		twin := newAlone(c, first)
		for k, next := range []Config{
			first,
			at(12, schedule.Stash, 2, 1),
			at(16, schedule.Vertical, 1, 1, 3),
			at(19, schedule.Latest, 2),
		} {
			if k > 0 {
				next.Resume.At = dir
				twin.resume(next.Plan)
			}
			next.Checkpoint.Dir = dir
			if err := twin.train(next.Train.Steps-twin.done, 0); err != nil {
				t.Fatal(err)
			}
			if err := twin.weights().nearTo(train(t, next).Weights, tolerance(e)); err != nil {
				t.Fatalf("%+v, %d steps done: %v", optimizer, next.Train.Steps, err)
			}
		}
	}
}

// Stages that share a weight update together, however many replicas other stages have. If stages that share a weight
// have different numbers of replicas, they are refused.
func TestTiedStagesOfAStreamUpdateTogether(t *testing.T) {
	e := testEngine(t)
	c := newChain(4, false,
		link{out: 4, act: "tanh"},
		link{out: 4, act: "tanh"},
		link{out: 4, act: "relu"},
		link{out: 4, tied: "n1"},
	)
	m := c.model(t)
	config := basic(t, e, m, planOf(m, []int{0, 2}, 2, 1, "1f1b-rr"), 3, 13)
	config.Train.Optimizer.Momentum = 0.9
	for _, policy := range []schedule.Policy{schedule.Stash, schedule.Vertical, schedule.Latest} {
		config.Plan.Weights = string(policy)
		on(config.Plan, 2, 1, 1)
		if err := asAlone(t, c, config, tolerance(e)); err != nil {
			t.Errorf("%s: %v", policy, err)
		}
	}
	on(config.Plan, 1, 2, 1)
	_, err := Train(t.Context(), config)
	if err == nil || !strings.Contains(err.Error(), "stage 1 updates every 2 minibatches and stage 2 every 1") {
		t.Errorf("a weight that stages of 2 and of 1 replica share: %v", err)
	}
}
