package run

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/run/process"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/schedule/programs"
)

// equations has an entry for each policy of orders without a flush: the version of the weights that stage i reads for
// minibatch t on a straight pipeline (schedule.Policy). A negative version means 0. Stages and minibatches count from
// 0.
var equations = []struct {
	policy schedule.Policy
	reads  func(i, t, stages int, back bool) int
}{
	{schedule.Stash, func(i, t, stages int, _ bool) int { return t - stages + i + 1 }},
	{schedule.Vertical, func(_, t, stages int, _ bool) int { return t - stages + 1 }},
	{schedule.DoubleBuffered, func(_, t, _ int, _ bool) int { return t - 1 }},
	{schedule.Latest, func(i, t, stages int, back bool) int {
		if back {
			return t // the newest version
		}
		return t - stages + i + 1
	}},
}

// streamPolicies are the policies in the list `equations`.
var streamPolicies = func() (all []schedule.Policy) {
	for _, e := range equations {
		all = append(all, e.policy)
	}
	return all
}()

// equation returns which version of a stage's weights a micro-batch reads under a policy in the list `equations`.
func equation(policy schedule.Policy, stages, perMinibatch int) reads {
	of := equations[slices.Index(streamPolicies, policy)].reads
	return func(i, micro, _ int, back bool) int { return max(0, of(i, micro/perMinibatch, stages, back)) }
}

// streamConfig returns a stream without a flush for a random model cut into stages.
func streamConfig(t testing.TB, e engine.Engine, g *rand.Rand, policy schedule.Policy) Config {
	m := randomModel(t, g)
	n := len(m.Layers)
	stages := 1 + g.IntN(min(6, n))
	cuts := g.Perm(n - 1)[:stages-1]
	slices.Sort(cuts)
	micros := 1
	if policy.Accumulates() {
		micros = stages + g.IntN(3)
	}
	p := planOf(m, cuts, 1+g.IntN(3), micros, "1f1b-rr")
	p.Weights = string(policy)
	for i := range p.Stages {
		p.Stages[i].Recompute = anyRecompute(g)
	}
	c := basic(t, e, m, p, 3, 1+g.IntN(3*stages+4))
	c.Data.Train = noise{model: m, classes: 3, rows: 1 << 20, seed: g.Uint64()}
	c.Train.Optimizer, c.Train.Seed, c.Keep.Steps = randomOptimizer(g), g.Uint64(), c.Train.Steps
	if g.IntN(3) == 0 {
		c.Train.Clip = []float64{0.01, 0.3, 10}[g.IntN(3)]
	}
	return c
}

// TestEveryStreamHasAnEquation: no other test would compare a policy without an equation with its definition.
func TestEveryStreamHasAnEquation(t *testing.T) {
	for _, policy := range schedule.Policies() {
		if !policy.Flushes() && !policy.Served() && !slices.Contains(streamPolicies, policy) {
			t.Errorf("policy %s has no equation: add a row to equations", policy)
		}
	}
}

// On straight pipelines, a stream ends with the same bits as the sequential program that its policy's equation
// describes.
func TestStreamsEqualTheirEquations(t *testing.T) {
	e := testEngine(t)
	for _, policy := range streamPolicies {
		eachSeed(t, cases(40, 120), func(t *testing.T, seed uint64) {
			g := rand.New(rand.NewPCG(seed, 11))
			c := streamConfig(t, e, g, policy)
			got := train(t, c)
			want := sequential(t, c, equation(policy, len(c.Plan.Stages), c.Plan.MicroBatches))
			if err := equalCase(c, want, got.Weights); err != nil {
				t.Fatalf("%s, seed %d: %v\n%+v\nsteps %d", policy, seed, err, *c.Plan, c.Train.Steps)
			}
			checkOrder(t, c, got)
		})
	}
}

// replicate gives every stage one to three replicas.
func replicate(c *Config, g *rand.Rand, equal bool) {
	next, same := 0, 1+g.IntN(3)
	for i := range c.Plan.Stages {
		n := 1 + g.IntN(3)
		if equal {
			n = same
		}
		c.Plan.Stages[i].Devices = nil
		for range n {
			c.Plan.Stages[i].Devices = append(c.Plan.Stages[i].Devices, next)
			next++
		}
	}
}

// versionsOf returns the versions of the weights that a Program's computations read.
func versionsOf(p *schedule.Program) reads {
	type use struct {
		stage, micro, replica int
		back                  bool
	}
	versions := map[use]int{}
	for w := range p.Workers {
		for _, u := range p.Uses(w) {
			if in := u.Instruction; in.Kind == schedule.F || in.Kind == schedule.B || in.Kind == schedule.I {
				versions[use{int(in.Stage), int(in.Micro), int(in.Replica), in.Kind != schedule.F}] = u.Version
			}
		}
	}
	return func(stage, micro, replica int, back bool) int { return versions[use{stage, micro, replica, back}] }
}

// A stream whose replicas take minibatches in turn ends with the same bits as the sequential program. Stages have any
// number of replicas. Package schedule tests which version a minibatch uses in that order.
func TestReplicatedStreamsEqualTheSequentialProgram(t *testing.T) {
	e := testEngine(t)
	ran, seeds := map[schedule.Policy]int{}, cases(80, 200)
	for seed := range seeds {
		g := rand.New(rand.NewPCG(seed, 12))
		policy := streamPolicies[g.IntN(len(streamPolicies))]
		c := streamConfig(t, e, g, policy)
		replicate(&c, g, c.Train.Clip > 0 || g.IntN(2) == 0)
		p, err := programs.Build(c.Plan, c.Model.TiedLayers(), c.Train.Clip > 0, c.Train.Steps)
		if err != nil {
			continue // depths, replicas and weights that do not fit together
		}
		ran[policy]++
		got := train(t, c)
		want := sequential(t, c, versionsOf(p))
		if err := equalCase(c, want, got.Weights); err != nil {
			t.Fatalf("%s, seed %d: %v\n%+v\nsteps %d", policy, seed, err, *c.Plan, c.Train.Steps)
		}
		checkOrder(t, c, got)
	}
	for _, policy := range streamPolicies {
		if ran[policy] < int(seeds/10) {
			t.Errorf("%d replicated streams under %s; more were meant", ran[policy], policy)
		}
	}
}

// If pipelines are deeper or shallower than NOAM (PipeDream §5.5), a pipeline has as many minibatches in flight as its
// depth says. It ends with the same bits as the sequential program that reads the same versions.
func TestStreamsOfAnyDepthEqualTheSequentialProgram(t *testing.T) {
	e := testEngine(t)
	deeper, shallower := 0, 0
	for seed := range cases(60, 200) {
		g := rand.New(rand.NewPCG(seed, 16))
		c := streamConfig(t, e, g, []schedule.Policy{schedule.Stash, schedule.Latest}[seed%2])
		stages := len(c.Plan.Stages)
		for i, k := stages-1, 1; i >= 0; i, k = i-1, k+g.IntN(4) {
			c.Plan.Stages[i].Warmup = k
		}
		first := c.Plan.Stages[0].Warmup
		c.Train.Steps = first + g.IntN(3*stages+4)
		c.Keep.Steps = c.Train.Steps
		p, err := programs.Build(c.Plan, c.Model.TiedLayers(), c.Train.Clip > 0, c.Train.Steps)
		if err != nil {
			continue // the gradient norm would cover stages that are too far apart
		}
		switch {
		case first > stages:
			deeper++
		case first < stages:
			shallower++
		}
		got := train(t, c)
		if err := equalCase(c, sequential(t, c, versionsOf(p)), got.Weights); err != nil {
			t.Fatalf("seed %d: %v\n%+v\nsteps %d", seed, err, *c.Plan, c.Train.Steps)
		}
		checkOrder(t, c, got)
		if in := got.Timeline.PeakActivations[0]; in != first {
			t.Fatalf("seed %d: %d minibatches in flight on the first stage, wanted %d", seed, in, first)
		}
	}
	if deeper < 5 || shallower < 5 {
		t.Errorf("%d deeper pipelines than NOAM and %d shallower ones; more were meant", deeper, shallower)
	}
}

// Synchronous pipelines end with the same bits as a sequential program that sums gradients in the same order. Stages
// have any number of replicas, which split micro-batches or take them in turn.
func TestReplicatedPipelinesEqualTheSequentialProgram(t *testing.T) {
	e := testEngine(t)
	for _, how := range []schedule.Replication{schedule.Split, schedule.RoundRobin} {
		eachSeed(t, cases(40, 150), func(t *testing.T, seed uint64) {
			g := rand.New(rand.NewPCG(seed, 13))
			c := randomConfig(t, e, g)
			c.Plan.Replication = string(how)
			c.Plan.MicroBatch += 2
			replicate(&c, g, false)
			for i := range c.Plan.Stages {
				c.Plan.Stages[i].Warmup = 0 // depths must be set for all stages or for none
			}
			if how == schedule.RoundRobin {
				c.Plan.Schedule = "afab"
			}
			got := train(t, c)
			want := sequential(t, c, synchronous(c))
			if err := equalCase(c, want, got.Weights); err != nil {
				t.Fatalf("%s, seed %d: %v\n%+v", how, seed, err, *c.Plan)
			}
			checkOrder(t, c, got)
		})
	}
}

// Orders with several chunks per worker or with a split backward end with the same bits as one worker. Orders with two
// directions end with the same bits as two replicas.
func TestEveryOrderEqualsOneWorker(t *testing.T) {
	e := testEngine(t)
	for _, f := range family.All() {
		if !f.AdmitsPolicy(schedule.Sync) {
			continue
		}
		t.Run(f.Name, func(t *testing.T) {
			ran, seeds := 0, cases(12, 40)
			for seed := range seeds {
				g := rand.New(rand.NewPCG(seed, 14))
				c := randomConfig(t, e, g)
				if !c.placed(f, g) {
					continue
				}
				if f.AdmitsPolicy(schedule.Elastic) { // one pipeline with elastic averaging is plain training
					c.Plan.Weights, c.Plan.Elastic = string(schedule.Elastic), plan.NewElastic(1)
				}
				if _, err := programs.Build(c.Plan, c.Model.TiedLayers(), c.Train.Clip > 0, 1); err != nil {
					continue
				}
				ran++
				got := train(t, c)
				want := sequential(t, c, synchronous(c))
				if err := equalCase(c, want, got.Weights); err != nil {
					t.Fatalf("seed %d: %v\n%+v", seed, err, *c.Plan)
				}
				checkOrder(t, c, got)
			}
			if ran < int(seeds/4) {
				t.Errorf("%d of %d cases suited the family", ran, seeds)
			}
		})
	}
}

// placed places a plan's stages on workers as a family needs them. It returns false if the number of stages does not
// fit the family.
func (c *Config) placed(f family.Family, g *rand.Rand) bool {
	p := c.Plan
	stages := len(p.Stages)
	p.Schedule = f.Name
	for i := range p.Stages {
		p.Stages[i].Warmup = 0
	}
	var on [][]int
	switch {
	case f.Name == "dp" || f.Name == "single":
		p.Stages = []plan.Stage{{LastLayer: len(c.Model.Layers) - 1}}
		on = [][]int{{0}}
		if f.Name == "dp" {
			on[0] = []int{0, 1, 2}[:2+g.IntN(2)]
		}
	case f.Name == "dp-overlap":
		for range p.Stages {
			on = append(on, []int{0, 1})
		}
	case f.Name == "chimera" && stages%2 == 0:
		on = schedule.Bidirectional(stages)
		p.MicroBatches += p.MicroBatches % 2
	case f.Chunks == 2 && stages%2 == 0:
		on = schedule.Vee(stages / 2)
	case f.Chunks == -1 && stages%2 == 0:
		on = schedule.Wrap(stages/2, 2)
		p.MicroBatches *= stages / 2
	case f.Chunks == 0 || f.Chunks == 1:
		for i := range p.Stages {
			on = append(on, []int{i})
		}
	default:
		return false
	}
	for i := range p.Stages {
		p.Stages[i].Devices = on[i]
	}
	return true
}

// Under latest, updates change weights during micro-batches in flight. So a run ends with other weights than under
// stash.
func TestLatestOverwrites(t *testing.T) {
	for name, e := range map[string]engine.Engine{"ref": testEngine(t), "torch": optionalTorch()} {
		if e == nil {
			continue
		}
		c := basic(t, e, build(t, "mlp", map[string]any{"inputs": 5, "hidden": []int{6, 6, 6}}), nil, 10, 12)
		c.Plan = planOf(c.Model, evenCuts(len(c.Model.Layers), 3), 4, 1, "1f1b-rr")
		weights := map[schedule.Policy]map[string]process.Weight{}
		for _, policy := range []schedule.Policy{schedule.Latest, schedule.Stash} {
			c.Plan.Weights = string(policy)
			weights[policy] = train(t, c).Weights
		}
		if sameWeights(weights[schedule.Latest], weights[schedule.Stash]) == nil {
			t.Errorf("%s: latest learned what stash did, bit for bit", name)
		}
	}
}

// A stream that is told to stop finishes what it has begun, and drains. It ends with the same bits as a run of that
// many steps. Replicas stop after a whole group.
func TestAStoppedStreamIsAShorterOne(t *testing.T) {
	e := testEngine(t)
	for seed := range cases(16, 40) {
		g := rand.New(rand.NewPCG(seed, 15))
		c := streamConfig(t, e, g, streamPolicies[g.IntN(len(streamPolicies))])
		c.Train.Steps = 40
		if g.IntN(2) == 0 {
			replicate(&c, g, true)
		}
		if _, err := programs.Build(c.Plan, c.Model.TiedLayers(), c.Train.Clip > 0, c.Train.Steps); err != nil {
			continue
		}
		stopsAsAShorterRun(t, seed, c, g.IntN(20))
	}
}

// smallModels has models of four families. Their dropout, batch norm and tied weight make bit-identical results hard.
var smallModels = []struct {
	name     string
	settings map[string]any
	classes  int
}{
	{"mlp", map[string]any{"inputs": 20, "hidden": []int{32, 24, 16}, "dropout": 0.2}, 10},
	{"convnet", map[string]any{"image": []int{1, 8, 8}, "widths": []int{4, 8}, "dense": []int{16}, "batch_norm": true},
		10},
	{"gpt", map[string]any{"layers": 3, "width": 16, "heads": 2, "context": 8, "vocabulary": 30, "dropout": 0.1,
		"tied": true}, 30},
	{"llama", map[string]any{"layers": 2, "width": 16, "heads": 4, "kv_heads": 2, "hidden": 24, "context": 8,
		"vocabulary": 30, "tied": true}, 30},
}

// stopsAsAShorterRun tells a run to stop after a step, and compares it with a run of only as many steps as it did.
func stopsAsAShorterRun(t *testing.T, seed uint64, c Config, at int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c.Hooks.OnStep = func(r StepReport) {
		if r.Step == at {
			cancel()
		}
	}
	stopped, err := Train(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	if stopped.Steps <= at || stopped.Steps > c.Train.Steps || stopped.Leaked != 0 {
		t.Fatalf("seed %d: %d steps done when told to stop behind step %d; %d handles leaked", seed, stopped.Steps, at,
			stopped.Leaked)
	}
	c.Hooks.OnStep, c.Train.Steps = nil, stopped.Steps
	if err := sameWeights(train(t, c).Weights, stopped.Weights); err != nil {
		t.Errorf("seed %d, %d steps: %v\n%+v", seed, stopped.Steps, err, *c.Plan)
	}
}

func optionalTorch() engine.Engine {
	e, err := openTorch()
	if err != nil {
		return nil
	}
	return e
}
