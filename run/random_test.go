package run

import (
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/check"
	"github.com/millrace-ml/millrace/schedule/lower"
	"github.com/millrace-ml/millrace/schedule/scheduletest"
	"github.com/millrace-ml/millrace/sim"
	"github.com/millrace-ml/millrace/trace"
)

// soaked returns the number of random Programs to run: `few`, or the number that `make soak` sets.
func soaked(few int) int {
	if n, err := strconv.Atoi(os.Getenv("MILLRACE_SOAK")); err == nil && n > 0 {
		return n
	}
	return few
}

// cases returns how many seeds of a property are tried: `few`, or `all` with `make soak`.
func cases(few, all uint64) uint64 {
	if soaked(0) > 0 {
		return all
	}
	return few
}

// randomProgram returns a run of a random Program, of any placement and replication, and any weight policy except
// elastic and asp. The model is random and cut anywhere. randomProgram returns false if the model is too small or its
// ties and clipping do not fit the Program.
func randomProgram(t testing.TB, e engine.Engine, g *rand.Rand) (Config, *schedule.Program, bool) {
	p := scheduletest.Random(g.IntN, scheduletest.Options{
		Workers: 4, Chunks: 2, Replicas: 3, MicroBatches: 4, Minibatches: 3, Ascending: true,
		Policies: []schedule.Policy{schedule.Sync, schedule.Sync, schedule.Stash, schedule.Vertical, schedule.DoubleBuffered,
			schedule.Latest},
	})
	m := randomModel(t, g)
	n := len(m.Layers)
	if p.Stages > n {
		return Config{}, nil, false
	}
	cuts := g.Perm(n - 1)[:p.Stages-1]
	slices.Sort(cuts)
	pl := planOf(m, cuts, 3+g.IntN(3), p.MicroBatches/p.Period, "random")
	pl.Weights, pl.Replication = string(p.Weights), string(p.Replication)
	for i := range pl.Stages {
		pl.Stages[i].Devices = p.Placement[0][i]
		if g.IntN(4) == 0 {
			pl.Stages[i].Recompute = plan.KeepInput
		}
	}
	c := basic(t, e, m, pl, 3, p.Minibatches())
	c.Train.Optimizer, c.Train.Seed, c.Keep.Steps = randomOptimizer(g), g.Uint64(), c.Train.Steps
	if g.IntN(3) == 0 {
		c.Train.Clip = 0.3
	}
	lowered, err := lower.Lower(p, lower.Options{Tied: pl.TiedStages(m.TiedLayers()), Clip: c.Train.Clip > 0})
	if err != nil {
		return Config{}, nil, false
	}
	if _, err := check.Check(lowered); err != nil {
		return Config{}, nil, false
	}
	c.Next = func(trace.Timeline, int) (*schedule.Program, error) { return lowered, nil }
	return c, lowered, true
}

// TestRandomProgramsRun: random Programs run to their end in sim and on tensors. Each worker computes in the Program's
// order and holds as many micro-batches as sim counts. The weights are those of the sequential program, bit for bit.
func TestRandomProgramsRun(t *testing.T) {
	e := testEngine(t)
	want, ran := soaked(90), 0
	for seed := uint64(0); ran < want; seed++ {
		if seed > uint64(20*want+100) {
			t.Fatalf("%d of %d random programs could be run", ran, seed)
		}
		g := rand.New(rand.NewPCG(seed, 21))
		c, p, ok := randomProgram(t, e, g)
		if !ok {
			continue
		}
		ran++
		sameAsSimulated(t, c, p, train(t, c), seed)
	}
}

// sameAsSimulated compares a run of a Program with its simulation, and the weights with those of the sequential
// program.
func sameAsSimulated(t *testing.T, c Config, p *schedule.Program, got *Result, seed uint64) {
	t.Helper()
	tl, _, err := sim.Run(p, sim.Uniform(p.Stages, 1, 2, 0.1), sim.Options{Record: true})
	if err != nil {
		t.Fatalf("seed %d: sim: %v\n%s", seed, err, p.Text())
	}
	if !slices.Equal(tl.PeakActivations, got.Timeline.PeakActivations) {
		t.Errorf("seed %d: held %v micro-batches; sim says %v\n%s", seed, got.Timeline.PeakActivations, tl.PeakActivations,
			p.Text())
	}
	for w := range p.Workers {
		if a, b := computed(tl, w), computed(&got.Timeline, w); !slices.Equal(a, b) {
			t.Fatalf("seed %d: worker %d did\n%v; sim did\n%v", seed, w, b, a)
		}
	}
	twin := sequential(t, c, versionsOf(p))
	if err := equalCase(c, twin, got.Weights); err != nil {
		t.Fatalf("seed %d: %v\n%s\n%+v", seed, err, p.Text(), *c.Plan)
	}
}

// computed returns the computations of a worker in the order of their beginnings.
func computed(t *trace.Timeline, worker int) []string {
	var out []string
	for _, e := range t.Events {
		if e.Worker == worker && e.Lane == trace.Compute {
			out = append(out, e.Instruction)
		}
	}
	return out
}
