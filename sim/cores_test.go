package sim

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/millrace-ml/millrace/trace"
	"pgregory.net/rapid"
)

// computations is what a Timeline has of them, in the order of their starts.
func computations(tl *trace.Timeline) []trace.Event {
	var out []trace.Event
	for _, e := range tl.Events {
		if e.Lane == trace.Compute {
			out = append(out, e)
		}
	}
	return out
}

// Two workers on one core by hand: a forward takes 1, a backward 2, a send 0.25, a message 0.5 on its way
// from the beginning of its send.
func TestTokensByHand(t *testing.T) {
	c := Uniform(2, 1, 2, 0.5)
	c.SendS = 0.25
	tl, sum, err := Run(program(t, "afab", 2, 2, 1), c, Options{Record: true, Cores: 1})
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
		{"0F1", 1.25, 2.25}, // its own send is over, and nobody stands in the queue
		{"1F0", 2.5, 3.5},   // there since 1.5; the core comes with the end of the send
		{"1F1", 3.5, 4.5},
		{"1B0", 4.5, 6.5},
		{"1B1", 6.75, 8.75}, // behind its own send; 0B0 has its gradient at 7
		{"0B0", 9, 11},      // behind the send of 1B1, and in front of 1U0, which stands in the queue since then
		{"0B1", 11, 13},     // behind 1U0, which takes no time
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

// TestTokens: of any Program on any number of cores, no more workers than there are cores compute, or receive
// and send beside that, and with as many cores as workers the Timeline is that of workers with a core each.
func TestTokens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, c := randomCase(t)
		c.SendS, c.ReceiveS = rapid.SampledFrom([]float64{0, 0.0625}).Draw(t, "send"), rapid.SampledFrom([]float64{0,
			0.125}).Draw(t, "receive")
		cores := rapid.IntRange(1, p.Workers).Draw(t, "cores")
		tl, _, err := Run(p, c, Options{Record: true, Cores: cores, Vary: c.Noise.Vary()})
		if err != nil {
			t.Fatal(err)
		}
		events := computations(tl)
		for _, e := range events {
			taken := 0
			for _, other := range events {
				if other.StartS <= e.StartS && e.StartS < other.EndS {
					taken++
				}
			}
			if taken > cores {
				t.Fatalf("%d of %d cores are taken at %v\n%s", taken, cores, e.StartS, p.Text())
			}
		}
		if cores < p.Workers {
			return
		}
		alone, _, err := Run(p, c, Options{Record: true, Vary: c.Noise.Vary()})
		if err != nil {
			t.Fatal(err)
		}
		alone.Cores = tl.Cores
		if d := cmp.Diff(alone, tl); d != "" {
			t.Fatalf("with a core for each worker:\n%s\n%s", d, p.Text())
		}
	})
}
