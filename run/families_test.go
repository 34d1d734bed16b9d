package run

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/millrace-ml/millrace/data"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/run/process"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/check"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/schedule/machine"
	"github.com/millrace-ml/millrace/schedule/programs"
)

// familyCase is a small run of one family under one policy, on some placement.
type familyCase struct {
	name   string
	config Config
	period int // steps that one update of every stage covers
	// instructions is the number of instructions in the whole run.
	instructions int
}

// everyFamily returns small runs of each family under each of its policies. Some have replicas if the family allows
// any, and some have post-validation if the family allows it.
func everyFamily(t testing.TB, steps int) []familyCase {
	t.Helper()
	m := build(t, "mlp", map[string]any{"inputs": 6, "hidden": []int{8, 7, 6, 5, 4}, "classes": 4, "dropout": 0.2})
	var all []familyCase
	seen := map[string]bool{}
	for _, f := range family.All() {
		for _, policy := range append([]schedule.Policy{schedule.Sync}, f.Policies...) {
			for _, shape := range []struct {
				replicas, micros int
				validate, split  bool
			}{{1, 3, false, false}, {2, 4, false, true}, {2, 1, false, false}, {2, 2, false, false}, {1, 3, true, false}} {
				placement := f.Placement(3, shape.replicas)
				if shape.replicas > 1 && f.Chunks <= 1 && !f.Undivided {
					placement = [][]int{{0, 1}, {2}}
				}
				n := len(placement)
				if n > len(m.Layers) {
					t.Fatalf("family %s has %d stages", f.Name, n)
				}
				pl := planOf(m, evenCuts(len(m.Layers), n), 3, shape.micros, f.Name)
				pl.Weights, pl.PostValidate = string(policy), shape.validate
				if shape.split {
					pl.Replication = string(schedule.Split)
				}
				for i := range pl.Stages {
					pl.Stages[i].Devices = placement[i]
				}
				if policy == schedule.Elastic {
					pl.Elastic = plan.NewElastic(2)
				}
				c := basic(t, testEngine(t), m, pl, 4, steps)
				c.Keep.Steps = steps
				if shape.validate {
					c.Train.Clip = 0.5
				}
				p, err := programs.Build(pl, m.TiedLayers(), c.Train.Clip > 0, steps)
				if err != nil {
					continue // the family does not allow this
				}
				if _, err := check.Check(p); err != nil {
					t.Fatal(err)
				}
				name := fmt.Sprintf("%s %s, %d micro-batches, placed on %v, split %v, validated later %v",
					f.Name, policy, shape.micros, placement, shape.split, shape.validate)
				if c.ordered(p) == nil && !seen[name] {
					all, seen[name] = append(all, familyCase{name, c, p.Period, int(p.Instructions())}), true
				}
			}
		}
	}
	if len(all) < 2*len(family.All()) {
		t.Fatalf("only %d runs of %d families", len(all), len(family.All()))
	}
	return all
}

// counting is a gate that calls a function after each start, with the number of starts so far.
type counting struct {
	process.Gate
	starts int
	behind func(start int)
}

func (c *counting) Start(k int) {
	c.Gate.Start(k)
	c.starts++
	c.behind(c.starts)
}

// startsOf makes a run call a function after each instruction that begins.
func startsOf(c Config, behind func(start int)) Config {
	c.decide = func(p *schedule.Program, workers []int, o machine.Options) (process.Gate, error) {
		m, err := machine.NewProcess(p, workers, o)
		return &counting{Gate: m, behind: behind}, err
	}
	return c
}

// places returns the indices of the instructions at which a test interrupts a run. With `make soak` these are all
// instructions. Otherwise they are a few random ones of a few families.
func places(g *rand.Rand, instructions int) []int {
	if soaked(0) == 0 {
		if g.IntN(5) > 0 {
			return nil
		}
		return []int{1 + g.IntN(instructions), 1 + g.IntN(instructions)}
	}
	all := make([]int, instructions)
	for i := range all {
		all[i] = i + 1
	}
	return all
}

// A run of any family may be stopped at any instruction. It ends after a whole group of steps, with the same bits as a
// run of that length.
func TestStopAtEveryInstructionOfEveryFamily(t *testing.T) {
	const steps = 5
	var stopped atomic.Int64
	all := everyFamily(t, steps)
	eachSeed(t, uint64(len(all)), func(t *testing.T, i uint64) {
		f := all[i]
		want := map[int]map[string]process.Weight{}
		for _, at := range places(rand.New(rand.NewPCG(i, 71)), f.instructions) {
			ctx, cancel := context.WithCancel(t.Context())
			c := startsOf(f.config, func(n int) {
				if n == at {
					cancel()
				}
			})
			got, err := Train(ctx, c)
			cancel()
			if err != nil {
				t.Fatalf("%s, stopped at %d: %v", f.name, at, err)
			}
			n := got.Steps
			if n < 1 || n != steps && n%f.period != 0 || got.Stopped != (n < steps) || got.Leaked != 0 ||
				len(got.Timeline.Steps) != n {
				t.Fatalf("%s, stopped at %d: %d steps in groups of %d, %d in the record, %d handles leaked, stopped: %v",
					f.name, at, n, f.period, len(got.Timeline.Steps), got.Leaked, got.Stopped)
			}
			if want[n] == nil || got.Timeline.Applied != nil {
				shorter := f.config
				shorter.Train.Steps, shorter.Train.Replay = n, got.Timeline.Applied
				want[n] = train(t, shorter).Weights
			}
			if err := sameWeights(want[n], got.Weights); err != nil {
				t.Fatalf("%s, stopped at %d, behind %d steps: %v", f.name, at, n, err)
			}
			if got.Stopped {
				stopped.Add(1)
			}
		}
	})
	if stopped.Load() < 5 {
		t.Errorf("%d runs were cut short", stopped.Load())
	}
}

// loud is a data set that makes the gradients of one step larger than those of all other steps.
type loud struct {
	noise
	step int
}

func (l loud) Batch(step, batch, first, rows int) (data.Batch, error) {
	b, err := l.noise.Batch(step, batch, first, rows)
	if step == l.step {
		for i := range b["input"].Floats {
			b["input"].Floats[i] *= 300
		}
	}
	return b, err
}

// In every family that allows post-validation, the update of any one minibatch may be rolled back. The run ends with
// the same bits as a run whose updates wait for their norms.
func TestRollbackAtEveryMinibatchOfEveryFamily(t *testing.T) {
	const steps = 5
	tried := 0
	for i, f := range everyFamily(t, steps) {
		if !f.config.Plan.PostValidate {
			continue
		}
		for k := range steps {
			if soaked(0) == 0 && (i+k)%steps > 0 {
				continue
			}
			c := f.config
			c.Data.Train, c.Train.Clip, c.Train.Rate.Base = loud{c.Data.Train.(noise), k}, 3, 0.01
			norms := map[bool]int{}
			_, all := sequentially(t, c, synchronous(c))
			for n, norm := range all {
				norms[norm > c.Train.Clip == (n == k)]++
			}
			if norms[false] > 0 {
				t.Fatalf("%s: norms %v are over %v not in step %d alone", f.name, all, c.Train.Clip, k)
			}
			got := train(t, c)
			p := *c.Plan
			p.PostValidate, c.Plan = false, &p
			if err := sameWeights(train(t, c).Weights, got.Weights); err != nil || got.Steps != steps ||
				len(got.Timeline.Losses) != steps {
				t.Errorf("%s, minibatch %d refused: %d steps: %v", f.name, k, got.Steps, err)
			}
			tried++
		}
	}
	if tried < 5 {
		t.Errorf("%d refusals", tried)
	}
}
