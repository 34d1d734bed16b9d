package sim

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/millrace-ml/millrace/schedule/machine"
	"github.com/millrace-ml/millrace/trace"
	"pgregory.net/rapid"
)

// computations returns the computations of a Timeline in the order of their starts.
func computations(tl *trace.Timeline) []trace.Event {
	var out []trace.Event
	for _, e := range tl.Events {
		if e.Lane == trace.Compute {
			out = append(out, e)
		}
	}
	return out
}

// TestTokensByHand: two workers share one core. A forward takes 1, a backward 2 and a send 0.25. A message takes 0.5
// from the start of its send.
func TestTokensByHand(t *testing.T) {
	c := Uniform(2, 1, 2, 0.5)
	c.SendS, c.Cores = 0.25, machine.Share(1)
	tl, sum, err := Run(program(t, "afab", 2, 2, 1), c, Options{Record: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := tl.Validate(); err != nil {
		t.Fatal(err)
	}
	want := []struct {
		in         string
		start, end float64
	}{
		{"0F0", 0, 1},
		{"0F1", 1.25, 2.25}, // after the send of 0F0; nothing else waits for the core
		{"1F0", 2.5, 3.5},   // the input is there since 1.5; the core is free when the send ends
		{"1F1", 3.5, 4.5},
		{"1B0", 4.5, 6.5},
		{"1B1", 6.75, 8.75}, // after the send of 1B0, whose gradient arrives at 7
		{"0B0", 9, 11},      // after the send of 1B1, which ends at 9; from then on 1U0 waits in the queue
		{"0B1", 11, 13},     // after 1U0, which takes no time
		{"1U0", 11, 11},
		{"0U0", 13, 13},
	}
	got := computations(tl)
	if len(got) != len(want) {
		t.Fatalf("%d computations, want %d", len(got), len(want))
	}
	for i, w := range want {
		if e := got[i]; e.Instruction != w.in || math.Abs(e.StartS-w.start) > 1e-12 ||
			math.Abs(e.EndS-w.end) > 1e-12 {
			t.Errorf("%d: %s from %v to %v, want %s from %v to %v", i, e.Instruction, e.StartS, e.EndS, w.in,
				w.start, w.end)
		}
	}
	if sum.EndS != 13 || sum.BusyS[0] != 6 || sum.BusyS[1] != 6 {
		t.Errorf("ends at %v, busy %v; want 13, and no worker busy while it waits or sends", sum.EndS, sum.BusyS)
	}
}

// anyPools draws which workers share cores: all of them, or two pools and some workers with their own core.
func anyPools(t *rapid.T, workers int) machine.Pools {
	if rapid.Bool().Draw(t, "one pool") {
		return machine.Share(rapid.IntRange(1, workers).Draw(t, "cores"))
	}
	pools := make(machine.Pools, 2)
	for i := range pools {
		pools[i].Cores = rapid.IntRange(1, 2).Draw(t, "cores")
	}
	for w := range workers {
		if at := rapid.IntRange(0, 2).Draw(t, "pool"); at < 2 {
			pools[at].Workers = append(pools[at].Workers, w)
		}
	}
	return slices.DeleteFunc(pools, func(p machine.Pool) bool { return p.Workers == nil })
}

// TestTokens runs random Programs on random numbers of cores. At no time do more workers of a pool compute, receive
// or send than the pool has cores. With as many cores as workers, the Timeline equals that of one core for each
// worker.
func TestTokens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, c := randomCase(t)
		c.SendS, c.ReceiveS = rapid.SampledFrom([]float64{0, 0.0625}).Draw(t, "send"), rapid.SampledFrom([]float64{0,
			0.125}).Draw(t, "receive")
		c.Cores = anyPools(t, p.Workers)
		tl, _, err := Run(p, c, Options{Record: true, Vary: c.Noise.Vary()})
		if err != nil {
			t.Fatal(err)
		}
		events := computations(tl)
		for _, pool := range c.Cores {
			for _, e := range events {
				taken := 0
				for _, other := range events {
					if (pool.Workers == nil || slices.Contains(pool.Workers, other.Worker)) && other.StartS <= e.StartS &&
						e.StartS < other.EndS {
						taken++
					}
				}
				if taken > pool.Cores {
					t.Fatalf("%d of %d cores of %v are taken at %v\n%s", taken, pool.Cores, pool.Workers, e.StartS, p.Text())
				}
			}
		}
		if len(c.Cores.Scarce(p.Workers)) > 0 {
			return
		}
		c.Cores = nil
		alone, _, err := Run(p, c, Options{Record: true, Vary: c.Noise.Vary()})
		if err != nil {
			t.Fatal(err)
		}
		alone.Cores, alone.Pools = tl.Cores, tl.Pools
		if d := cmp.Diff(alone, tl); d != "" {
			t.Fatalf("with a core for each worker:\n%s\n%s", d, p.Text())
		}
	})
}

// unevenOnTwoCores returns random costs of four stages whose workers share two cores.
func unevenOnTwoCores(seed uint64) Costs {
	g := rand.New(rand.NewPCG(seed, 7))
	c := Uniform(4, 1, 2, 0)
	c.Cores = machine.Share(2)
	for stage := range c.Stages {
		cost := &c.Stages[stage][0]
		cost.ForwardS, cost.UpdateS = 0.5+g.Float64(), 0.3*g.Float64()
		cost.BackwardS = 2 * cost.ForwardS
	}
	return c
}

// A step on two shared cores takes at least half of the time in which the four workers compute. Steps may take shorter
// and longer in turn, and then their median is less than that.
func TestAStepIsNoShorterThanItsWork(t *testing.T) {
	shorter := 0
	for seed := range uint64(400) {
		c := unevenOnTwoCores(seed)
		tl, sum, err := Run(program(t, "zb-auto", 4, 8, 5), c, Options{Record: true})
		if err != nil {
			t.Fatal(err)
		}
		busy := 0.0
		for _, s := range sum.BusyS {
			busy += s
		}
		if sum.StepS < busy/2-1e-9 {
			t.Errorf("seed %d: a step takes %v, and its work on 2 cores %v", seed, sum.StepS, busy/2)
		}
		var took []float64
		for i, m := range tl.Steps[1:] {
			took = append(took, m.EndS-tl.Steps[i].EndS)
		}
		slices.Sort(took)
		if took[len(took)/2] < busy/2-1e-9 {
			shorter++
		}
	}
	if shorter == 0 {
		t.Error("no median is shorter than the work, so the test shows nothing")
	}
}

// The same holds for the average step of a stream, which is the difference of a long and a short run.
func TestAnAverageStepIsNoShorterThanItsWork(t *testing.T) {
	shorter := 0
	for seed := range uint64(60) {
		c := unevenOnTwoCores(seed)
		of := func(steps int) Summary {
			_, sum, err := Run(program(t, "1f1b-rr", 4, 1, steps), c, Options{})
			if err != nil {
				t.Fatal(err)
			}
			return sum
		}
		whole, half := of(12), of(6)
		sum := whole.Steadily(half, c.Cores)
		busy := 0.0
		for _, s := range sum.BusyS {
			busy += s
		}
		if sum.StepS < busy/2-1e-9 {
			t.Errorf("seed %d: a step takes %v, and its work on 2 cores %v", seed, sum.StepS, busy/2)
		}
		if whole.Steadily(half, nil).StepS < busy/2-1e-9 {
			shorter++
		}
	}
	if shorter == 0 {
		t.Error("no difference is shorter than the work, so the test shows nothing")
	}
}

// TestHostsDoNotShare: workers of two hosts with one core each wait only for workers of their own host. They take
// longer than on one host with two cores.
func TestHostsDoNotShare(t *testing.T) {
	c := Uniform(4, 1, 2, 0)
	c.Cores = machine.Pools{{Cores: 1, Workers: []int{0, 1}}, {Cores: 1, Workers: []int{2, 3}}}
	tl, _, err := Run(program(t, "1f1b", 4, 4, 1), c, Options{Record: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := tl.Validate(); err != nil || tl.Cores != 0 || len(tl.Pools) != 2 {
		t.Fatalf("%v: %d cores and pools %v", err, tl.Cores, tl.Pools)
	}
	waited := 0
	for _, g := range slices.Concat(trace.AllGaps(tl)...) {
		if g.Cause != trace.WaitCore {
			continue
		}
		waited++
		if g.BlockerWorker/2 != g.Worker/2 || !strings.Contains(g.Why, "2 workers share 1") {
			t.Errorf("worker %d waits for a core of worker %d: %s", g.Worker, g.BlockerWorker, g.Why)
		}
	}
	if waited == 0 {
		t.Error("nobody waited for a core")
	}
	c.Cores = machine.Share(2)
	shared, _, err := Run(program(t, "1f1b", 4, 4, 1), c, Options{Record: true})
	if err != nil {
		t.Fatal(err)
	}
	if a, b := tl.Steps[0].EndS, shared.Steps[0].EndS; !(a > b) {
		t.Errorf("two hosts of a core end at %v, one of two at %v", a, b)
	}
}
