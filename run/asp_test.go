package run

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/internal/crash"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/run/process"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/trace"
	"github.com/millrace-ml/millrace/wire"
	"github.com/millrace-ml/millrace/wire/shape"
)

// served places a model on `trainers` trainers and one server, which is the last worker.
func served(c *Config, trainers int) {
	c.Plan = replicated(c.Plan, len(c.Model.Layers), trainers+1)
	c.Plan.Schedule, c.Plan.Weights, c.Plan.MicroBatches = "asp", string(schedule.ASP), 1
}

func servedConfig(t testing.TB, e engine.Engine, g *rand.Rand) Config {
	c := randomConfig(t, e, g)
	served(&c, 1+g.IntN(4))
	if g.IntN(2) == 0 {
		c.Plan.Staleness = new(g.IntN(4))
	}
	c.Plan.Stages[0].Recompute = anyRecompute(g)
	c.Train.Steps = 1 + g.IntN(20)
	c.Keep.Steps = c.Train.Steps
	return c
}

// haste returns carriers with a random delay for each edge.
func haste(g *rand.Rand) func(workers int) ([]wire.Carrier, error) {
	return shaped(func(from, to int) shape.Link {
		return shape.Link{Latency: time.Duration(g.IntN(3000)) * time.Microsecond, BytesPerSecond: 1e8}
	})
}

// applied trains sequentially with the recorded order of updates. Update k is w(k+1) = w(k) - lr * grad f_m(w(v)). The
// record says for each update which minibatch m it belongs to, and which version v of the weights this minibatch used.
func applied(t testing.TB, c Config, order []trace.Applied) map[string]process.Weight {
	t.Helper()
	p := *c.Plan
	p.Stages = []plan.Stage{{LastLayer: len(c.Model.Layers) - 1, Devices: []int{0}}}
	c.Plan = &p
	at := 0
	w := newTwin(c, func(int, int, int, bool) int { return order[at].Version })
	var weights map[string]process.Weight
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		done <- crash.Guard(func() (err error) {
			dev, err := c.Engine.Open(0, 1)
			if err != nil {
				return err
			}
			defer dev.Close()
			defer w.close()
			if err := w.open(dev); err != nil {
				return err
			}
			for at = range order {
				if err := w.through(order[at].Step); err != nil {
					return err
				}
				if err := w.updates(order[at].Step); err != nil {
					return err
				}
			}
			weights, err = w.weights()
			return err
		})
	}()
	if err := <-done; err != nil {
		t.Fatal("twin: ", err)
	}
	return weights
}

// ofPlan computes the weights at the end of a run by the equation of its policy. Under asp it follows the order of
// updates that the run recorded.
func ofPlan(t testing.TB, c Config, p *schedule.Program, got *Result) map[string]process.Weight {
	t.Helper()
	if p.Served() {
		return applied(t, c, got.Timeline.Applied)
	}
	return sequential(t, c, versionsOf(p))
}

// stale checks the recorded order of a run's updates. The run drains after each `every` steps.
func stale(c Config, order []trace.Applied, every int) error {
	if len(order) != c.Train.Steps {
		return fmt.Errorf("%d updates of %d steps", len(order), c.Train.Steps)
	}
	for base := 0; base < len(order); base += every {
		var own []trace.Applied
		for _, a := range order[base:min(len(order), base+every)] {
			own = append(own, trace.Applied{Step: a.Step - base, Version: a.Version - base})
		}
		if err := staleBetween(own, len(c.Plan.Stages[0].Devices)-1, c.Plan.Staleness); err != nil {
			return fmt.Errorf("from step %d on: %w", base, err)
		}
	}
	return nil
}

// staleBetween checks the updates of r trainers between two drains. Each trainer's steps must be in order, and the
// weights of a step must include the trainer's own previous update. When a trainer begins a step, it may be at most
// `bound` steps ahead of every trainer that has steps left. If bound is nil, it may be ahead by any number.
func staleBetween(order []trace.Applied, r int, bound *int) error {
	read, made := make([][]int, r), make([][]int, r) // by worker and minibatch: version read, number of the update made
	for k, a := range order {
		w := a.Step % r
		if a.Step != len(made[w])*r+w {
			return fmt.Errorf("update %d is of step %d, not the next of worker %d", k, a.Step, w)
		}
		if n := len(made[w]); a.Version > k || n > 0 && a.Version <= made[w][n-1] {
			return fmt.Errorf("update %d of step %d went by version %d", k, a.Step, a.Version)
		}
		read[w], made[w] = append(read[w], a.Version), append(made[w], k)
	}
	for w := range r {
		for k, version := range read[w] {
			for other := range r {
				had := 0 // updates of the other worker in these weights
				for _, at := range made[other] {
					if at < version {
						had++
					}
				}
				if bound != nil && had < len(made[other]) && k-had > *bound {
					return fmt.Errorf("worker %d has begun its minibatch %d when worker %d had done %d", w, k, other, had)
				}
			}
		}
	}
	return nil
}

// However long messages take, asynchronous data parallelism ends with the same bits as sequential training that makes
// its updates in the recorded order. So does a replay of the run. No worker is further ahead than allowed.
func TestASPEqualsItsRecord(t *testing.T) {
	e := testEngine(t)
	eachSeed(t, cases(100, 400), func(t *testing.T, seed uint64) {
		g := rand.New(rand.NewPCG(seed, 61))
		c := servedConfig(t, e, g)
		if seed%4 == 0 {
			c.Wire.Carriers = haste(g)
		}
		c.Keep.Steps = 1 + g.IntN(c.Train.Steps) // the Timeline keeps few steps, and steps may end in any order
		got := train(t, c)
		order := got.Timeline.Applied
		if err := stale(c, order, c.Train.Steps+1); err != nil {
			t.Fatalf("seed %d: %v\n%v", seed, err, order)
		}
		if err := equalCase(c, applied(t, c, order), got.Weights); err != nil {
			t.Fatalf("seed %d: the twin: %v\n%+v\nsteps %d", seed, err, *c.Plan, c.Train.Steps)
		}
		c.Wire.Carriers, c.Train.Replay, c.Keep.Steps = nil, order, c.Train.Steps
		again := train(t, c)
		if err := equalCase(c, again.Weights, got.Weights); err != nil || !slices.Equal(again.Timeline.Applied, order) {
			t.Fatalf("seed %d: the replay: %v\n%v\n%v", seed, err, again.Timeline.Applied, order)
		}
	})
}

// orderOf returns the order that a run recorded, and the run that replays it.
func orderOf(c Config, got *Result) (order []trace.Applied, replay Config) {
	c.Wire.Carriers, c.Machine.World, c.Train.Replay, c.Hooks = nil, nil, got.Timeline.Applied, Hooks{}
	return c.Train.Replay, c
}

// An asp run may be in several processes, on any carrier and with evaluations. Its weights equal those of a run in one
// process that replays the recorded order of updates.
func TestASPOverProcesses(t *testing.T) {
	e := testEngine(t)
	eachSeed(t, cases(24, 120), func(t *testing.T, seed uint64) {
		g := rand.New(rand.NewPCG(seed, 62))
		c := servedConfig(t, e, g)
		c.Train.Steps = 4 + g.IntN(12)
		c.Keep.Steps = c.Train.Steps
		every := c.Train.Steps + 1
		if seed%3 == 0 {
			every = 1 + g.IntN(5)
			c.Data.Test, c.Train.EvalRows, c.Train.EvalEvery = c.Data.Train, 7, every
		}
		workers := len(c.Plan.Devices())
		got := in(g, workers, 1+g.IntN(workers)).train(t.Context(), t, c).whole(t)
		order, replay := orderOf(c, got)
		if err := stale(c, order, every); err != nil {
			t.Fatalf("seed %d: %v\n%v", seed, err, order)
		}
		if err := equalCase(c, applied(t, c, order), got.Weights); err != nil {
			t.Fatalf("seed %d: the twin: %v\n%+v\nsteps %d", seed, err, *c.Plan, c.Train.Steps)
		}
		again := train(t, replay)
		if err := sameRun(again, got); err != nil {
			t.Fatalf("seed %d: the replay: %v", seed, err)
		}
	})
}

// In one run the messages of one worker are slow; in a second run the messages of a different worker are slow. The
// orders of updates differ. A replay of either order, without delays, ends with the same bits as its run.
func TestASPTakesWhatIsThere(t *testing.T) {
	e := testEngine(t)
	base := servedConfig(t, e, rand.New(rand.NewPCG(5, 63)))
	served(&base, 2)
	base.Train.Steps, base.Keep.Steps = 8, 8
	var orders [][]trace.Applied
	var weights []map[string]process.Weight
	for far := range 2 {
		c := base
		c.Wire.Carriers = shaped(func(from, to int) shape.Link {
			if from == far || to == far {
				return shape.Link{Latency: 40 * time.Millisecond, BytesPerSecond: 1e9}
			}
			return shape.Link{BytesPerSecond: 1e9}
		})
		got := train(t, c)
		order, replay := orderOf(base, got)
		if near := (1 - far) % 2; order[0].Step != near || order[1].Step != near+2 {
			t.Errorf("worker %d is far away, and the order is %v", far, order)
		}
		if err := sameWeights(train(t, replay).Weights, got.Weights); err != nil {
			t.Errorf("worker %d is far away: the replay: %v", far, err)
		}
		orders, weights = append(orders, order), append(weights, got.Weights)
	}
	if slices.Equal(orders[0], orders[1]) || sameWeights(weights[0], weights[1]) == nil {
		t.Errorf("both runs did %v", orders[0])
	}
}

// With staleness 0 every worker begins with the weights after all updates of the previous round.
func TestASPWithoutStalenessGoesInRounds(t *testing.T) {
	c := servedConfig(t, testEngine(t), rand.New(rand.NewPCG(6, 64)))
	served(&c, 3)
	c.Plan.Staleness, c.Train.Steps = new(0), 12
	c.Wire.Carriers = haste(rand.New(rand.NewPCG(7, 64)))
	for k, a := range train(t, c).Timeline.Applied {
		if a.Version != k/3*3 || a.Step/3 != k/3 {
			t.Errorf("update %d is of step %d, with the weights behind %d", k, a.Step, a.Version)
		}
	}
}

// An asp run is stopped and resumed from its checkpoint. It ends with the same bits as sequential training with the
// updates in the order that both runs recorded.
func TestASPIsStoppedAndResumed(t *testing.T) {
	e := testEngine(t)
	stops := 0
	for seed := range cases(12, 60) {
		g := rand.New(rand.NewPCG(seed, 65))
		c := servedConfig(t, e, g)
		c.Train.Steps, c.Keep.Steps = 40, 40
		c.Checkpoint.Dir = t.TempDir()
		ctx, cancel := context.WithCancel(t.Context())
		at := g.IntN(20)
		first := c
		first.Hooks.OnStep = func(r StepReport) {
			if r.Step == at {
				cancel()
			}
		}
		stopped, err := Train(ctx, first)
		cancel()
		if err != nil || stopped.Steps <= at || len(stopped.Timeline.Applied) != stopped.Steps {
			t.Fatalf("seed %d: %d steps, %d updates: %v", seed, stopped.Steps, len(stopped.Timeline.Applied), err)
		}
		order := stopped.Timeline.Applied
		shorter := c
		shorter.Train.Steps, shorter.Checkpoint = stopped.Steps, Checkpointing{}
		if err := equalCase(c, applied(t, shorter, order), stopped.Weights); err != nil {
			t.Fatalf("seed %d: stopped behind %d steps: %v", seed, stopped.Steps, err)
		}
		if stopped.Steps == c.Train.Steps {
			continue
		}
		stops++
		second := c
		second.Resume.At = c.Checkpoint.Dir
		got := train(t, second)
		all := slices.Concat(order, got.Timeline.Applied)
		if err := equalCase(c, applied(t, c, all), got.Weights); err != nil {
			t.Fatalf("seed %d: resumed behind %d steps: %v", seed, stopped.Steps, err)
		}
		replay := c
		replay.Checkpoint, replay.Train.Replay = Checkpointing{}, all
		if err := sameWeights(train(t, replay).Weights, got.Weights); err != nil {
			t.Fatalf("seed %d: the replay of both: %v", seed, err)
		}
	}
	if stops < 3 {
		t.Errorf("%d runs were stopped", stops)
	}
}

// On torch too, an asp run ends with the same bits as its replay. The models have convolutions, or ties and dropout.
func TestTorchASP(t *testing.T) {
	e := torchEngine(t)
	for _, family := range []struct {
		name     string
		settings map[string]any
		classes  int
	}{
		{"mlp", map[string]any{"inputs": 20, "hidden": []int{32, 24}, "dropout": 0.2}, 10},
		{"convnet", map[string]any{"image": []int{1, 8, 8}, "widths": []int{4, 8}, "dense": []int{16}}, 10},
		{"gpt", map[string]any{"layers": 2, "width": 16, "heads": 2, "context": 8, "vocabulary": 30, "dropout": 0.1,
			"tied": true}, 30},
	} {
		t.Run(family.name, func(t *testing.T) {
			m := build(t, family.name, family.settings)
			c := basic(t, e, m, planOf(m, nil, 3, 1, "dp"), family.classes, 11)
			c.Train.Clip = 0.5
			served(&c, 3)
			c.Plan.Stages[0].Recompute = plan.AtBoundary(family.name == "mlp")
			got := train(t, c)
			order, replay := orderOf(c, got)
			if err := equalCase(c, applied(t, c, order), got.Weights); err != nil {
				t.Error("the twin: ", err)
			}
			if err := sameWeights(train(t, replay).Weights, got.Weights); err != nil {
				t.Error("the replay: ", err)
			}
		})
	}
}
