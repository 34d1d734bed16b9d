package contest

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/schedule/family"
	"pgregory.net/rapid"
)

func contestOf(t *testing.T, c Rules) map[string]Entry {
	t.Helper()
	all, err := c.Run(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]Entry{}
	for _, e := range all {
		name := e.Schedule + " " + string(e.Weights)
		if e.Replicas > 0 {
			name = fmt.Sprintf("%s, %d replicas", name, e.Replicas)
		}
		out[name] = e
	}
	return out
}

// TestTooManyToSimulate: too many workers and micro-batches are refused, even if their product overflows.
func TestTooManyToSimulate(t *testing.T) {
	for _, c := range []Rules{{}, {Workers: 1}, {MicroBatches: 1}, {Workers: 1 << 10, MicroBatches: 1<<7 + 1},
		{Workers: 1 << 32, MicroBatches: 1 << 32}} {
		c.Only = []string{"none"}
		if _, err := c.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "131072 in all at most") {
			t.Errorf("%d workers, %d micro-batches: %v", c.Workers, c.MicroBatches, err)
		}
	}
}

// TestContestKnownLosses: without transfers, 1F1B's step of M micro-batches on S workers takes (M+S-1)(F+B). Fill,
// drain and stall are together (S-1)/(M+S-1) of that. If F = I = W, ZB-V and ZB-H2 lose nothing. Transfers cost what
// BaPipe's Table II says. Data parallelism loses only its all-reduce.
func TestContestKnownLosses(t *testing.T) {
	const S, M, SR, reduce = 4, 8, 0.2, 1.5
	free := contestOf(t, Rules{Workers: S, MicroBatches: M, Chunks: 2,
		Stages: Uniform{Workers: S, ForwardS: 1, InputS: 1, WeightS: 1}.Stages})
	near := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 1e-9 {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	e := free["1f1b sync"]
	near("1f1b's step", e.StepS, (M+S-1)*3)
	near("1f1b's bubble", e.Bubble, 3.0/11)
	near("its fill, drain and stall", e.Lost.Fill+e.Lost.Drain+e.Lost.Stall, 3.0/11)
	near("zb-v's bubble", free["zb-v sync"].Bubble, 0)
	near("zb-h2's bubble", free["zb-h2 sync"].Bubble, 0)
	near("a stream's step", free["1f1b-rr stash"].StepS, 3*M)
	if f := free["1f1b sync"].Behind; math.Abs(f-11.0/8+1) > 1e-9 {
		t.Errorf("1f1b is %v behind the best", f)
	}

	slow := contestOf(t, Rules{Workers: S, MicroBatches: M, Chunks: 2,
		Stages: Uniform{Workers: S, ForwardS: 1, InputS: 1, WeightS: 1, TransferS: SR, AllReduceS: reduce}.Stages})
	e = slow["1f1b sync"]
	step := (M+S-1)*3 + (S+M-2-math.Ceil((M-1)/float64(S)))*2*SR
	near("1f1b's step with transfers", e.StepS, step)
	near("what transfers take of it", e.Lost.Transfer, 1-(M+S-1)*3/step)
	e = slow["dp sync"]
	near("dp's step", e.StepS, 3*M+S*reduce)
	// There are two chains of two stages, and each stage has the model parts of two workers. A chain computes half of
	// the micro-batches, one at a time. A micro-batch takes 12 s (2 stages x 2 parts x 3 s), and one transfer in each
	// direction. At the end, each stage sums the gradients of its two parts.
	near("hybrid parallelism's step", slow["mp sync, 2 replicas"].StepS, M/2*(2*2*3+2*SR)+2*reduce)
	near("dp's all-reduce", e.Lost.Collective, S*reduce/(3*M+S*reduce))
	near("and nothing else", e.Lost.Sum()-e.Lost.Collective, 0)
	long := contestOf(t, Rules{Workers: S, MicroBatches: S,
		Stages: Uniform{Workers: S, ForwardS: 1, InputS: 1, WeightS: 1, AllReduceS: 6}.Stages})
	e = long["dp-async 2bw"]
	near("dp-async's step with a long all-reduce", e.StepS, S*6)
	near("what it waits for", e.Lost.Collective, 1-3*S/(S*6.0))
	// Three replicas take 7 or 8 micro-batches of 9 s in turn. No worker waits, so a step takes a third of them all.
	for _, micros := range []int{7, 8, 9} {
		e := contestOf(t, Rules{Workers: 3, MicroBatches: micros,
			Stages: Uniform{Workers: 3, ForwardS: 1, InputS: 1, WeightS: 1}.Stages})["dp-async 2bw"]
		near("dp-async's mean step", e.StepS, 3*float64(micros))
		near("dp-async's bubble", e.Bubble, 0)
	}
}

// TestContestReasons: each kind of loss has a reason with its own numbers.
func TestContestReasons(t *testing.T) {
	u := Uniform{Workers: 4, ForwardS: 1, InputS: 1, WeightS: 1, Parameters: 1}
	all := contestOf(t, Rules{
		Workers: 4, MicroBatches: 8, Chunks: 2, Stages: u.Stages, Bytes: FormatActivations,
		MemoryBytes: func(w int) int64 { return 6 * Activation },
	})
	for name, want := range map[string]string{
		"zb-v sync": "the fastest that fits",
		"1f1b sync": "stall 13.6 %, drain 9.1 %, fill 4.5 %",
		// AFAB holds 8 activations, one for each micro-batch, and weights and gradients.
		"afab sync":      "worker 0 has room for 6 activations",
		"fbp-as sync":    "devices that transfer while they compute",
		"1f1b-rr latest": "other weights than their forwards",
		"mp sync":        "stall 70.3 %",
	} {
		if got := all[name]; !strings.Contains(got.Why, want) {
			t.Errorf("%s: %s: %q, want it to say %q", name, got.Verdict, got.Why, want)
		}
	}
	few := contestOf(t, Rules{Workers: 3, MicroBatches: 2, Chunks: 2,
		Stages: Uniform{Workers: 3, ForwardS: 1, InputS: 1, WeightS: 1}.Stages})
	for name, want := range map[string]string{
		"chimera sync": "3 stages; two directions", "interleaved sync": "2 micro-batches on 3 workers",
	} {
		if got := few[name]; got.Verdict != Refused || !strings.Contains(got.Why, want) {
			t.Errorf("%s: %s: %q, want a refusal that says %q", name, got.Verdict, got.Why, want)
		}
	}
	if _, err := (Rules{Workers: 0, MicroBatches: 1}).Run(context.Background()); err == nil {
		t.Error("no workers were accepted")
	}
	ended, stop := context.WithCancel(context.Background())
	stop()
	if _, err := (Rules{Workers: 2, MicroBatches: 2, Stages: u.Stages}).Run(ended); err == nil {
		t.Error("it went on after its time")
	}
}

// TestContestHasEveryone: every family has one entry for each policy that it supports. A family without pipelining has
// one more entry, with replicas. Every entry has a reason. Its losses add up to its bubble, and to at most the whole
// time.
func TestContestHasEveryone(t *testing.T) {
	for _, transfer := range []float64{0, 0.3} {
		all := contestOf(t, Rules{Workers: 4, MicroBatches: 4, Chunks: 3, Clip: true,
			Stages: Uniform{Workers: 4, ForwardS: 1, InputS: 1.2, WeightS: 0.8, TransferS: transfer, UpdateS: 0.1,
				Streaming: true}.Stages})
		want := 0
		for _, f := range family.All() {
			want += max(1, len(f.Policies))
			if f.Alone {
				want++
			}
			for _, e := range all {
				if e.Why == "" || e.Lost.Sum() < -1e-9 || e.Lost.Sum() > 1 || math.Abs(e.Lost.Sum()-e.Bubble) > 1e-9 {
					t.Errorf("%s %s: %+v", e.Schedule, e.Weights, e)
				}
			}
		}
		if len(all) != want {
			t.Errorf("%d entries, want %d", len(all), want)
		}
	}
}

// TestEvenCuts compares evenCuts with every possible cut.
func TestEvenCuts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		times := rapid.SliceOfN(rapid.Float64Range(0, 5), 1, 9).Draw(t, "times")
		runs := rapid.IntRange(1, len(times)).Draw(t, "runs")
		slowest := func(cuts []int) float64 {
			worst := 0.0
			for i := range runs {
				sum := 0.0
				for _, x := range times[cuts[i]:cuts[i+1]] {
					sum += x
				}
				worst = max(worst, sum)
			}
			return worst
		}
		best := math.Inf(1)
		var try func(cuts []int)
		try = func(cuts []int) {
			if len(cuts) == runs {
				best = min(best, slowest(append(slices.Clone(cuts), len(times))))
				return
			}
			for next := cuts[len(cuts)-1] + 1; next < len(times); next++ {
				try(append(slices.Clone(cuts), next))
			}
		}
		try([]int{0})
		got := evenCuts(times, runs)
		for i := range runs {
			if got[i] >= got[i+1] {
				t.Fatalf("cuts %v", got)
			}
		}
		if d := slowest(got) - best; math.Abs(d) > 1e-9 {
			t.Fatalf("cuts %v of %v take %v, the best %v", got, times, slowest(got), best)
		}
	})
}
