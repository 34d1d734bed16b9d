package sim

import (
	"math"
	"testing"

	"github.com/millrace-ml/millrace/schedule"
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

// Two workers on one core by hand: a forward takes 1, a backward 2, a send 0.25, a message 0.5 on its way, and the core
// 0.5 from one worker to the other.
func TestTurnsByHand(t *testing.T) {
	c := Uniform(2, 1, 2, 0.5)
	c.SendS, c.TurnS = 0.25, 0.5
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
		{"0F1", 1.25, 2.25}, // its own send is over; it keeps the core
		{"1F0", 3, 4},       // there since 1.5; the core is given away with the send at 2.5, and changes hands
		{"1F1", 4, 5},
		{"1B0", 5, 7},
		{"1B1", 7.25, 9.25}, // 0B0 could start at 7.5
		{"0B0", 10, 12},     // behind the send of 1B1
		{"1U0", 12.5, 12.5}, // waits since 9.5; the other receives, and gives the core away at once
		{"0B1", 13, 15},     // there since 12
		{"0U0", 15, 15},
	}
	got := computations(tl)
	if len(got) != len(want) {
		t.Fatalf("%d computations, want %d", len(got), len(want))
	}
	for i, w := range want {
		if e := got[i]; e.Instruction != w.in || math.Abs(e.StartS-w.start) > 1e-12 || math.Abs(e.EndS-w.end) > 1e-12 {
			t.Errorf("%d: %s from %v to %v, want %s from %v to %v", i, e.Instruction, e.StartS, e.EndS, w.in, w.start, w.end)
		}
	}
	if sum.EndS != 15 || math.Abs(sum.BusyS[0]-6) > 1e-12 || math.Abs(sum.BusyS[1]-6) > 1e-12 {
		t.Errorf("ends at %v, busy %v; want 15, and no worker busy while a core changes hands", sum.EndS, sum.BusyS)
	}
}

// TestTurns: of any Program on any number of cores, whoever has waited for a core begins exactly a turn, and a send if
// the giver has one to do, behind the end of another computation, which gives its core to nobody else; and no
// more cores are taken, or changing hands, than there are.
func TestTurns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, c := randomCase(t)
		for s := range c.Stages {
			for r := range c.Stages[s] {
				k := &c.Stages[s][r]
				for _, takes := range []*float64{&k.ForwardS, &k.BackwardS, &k.UpdateS, &k.EvaluateS} {
					*takes += 0.125
				}
			}
		}
		c.TurnS = rapid.SampledFrom([]float64{0.0625, 0.5}).Draw(t, "turn")
		cores := rapid.IntRange(1, p.Workers).Draw(t, "cores")
		tl, _, err := Run(p, c, Options{Record: true, Cores: cores})
		if err != nil {
			t.Fatal(err)
		}
		sends := sendsNext(p)
		events := computations(tl)
		given := make([]bool, len(events))
		from := make([]float64, len(events)) // since when each has its core
		for i, e := range events {
			if from[i] = e.StartS; e.BlockedBy != trace.ByCore {
				continue
			}
			found := false
			for j, before := range events {
				turn := c.TurnS
				if sends[worked{before.Worker, before.Instruction}] {
					turn += c.SendS
				}
				if !given[j] && j != i && math.Abs(before.EndS+turn-e.StartS) < 1e-9 {
					given[j], found, from[i] = true, true, before.EndS
					break
				}
			}
			if !found {
				t.Fatalf("worker %d waits for a core and begins %s at %v, which is no turn behind a computation\n%s", e.Worker, e.Instruction, e.StartS, p.Text())
			}
		}
		for i := range events {
			taken := 0
			for j := range events {
				if from[j] <= from[i]+1e-9 && from[i]+1e-9 < events[j].EndS {
					taken++
				}
			}
			if taken > cores {
				t.Fatalf("%d of %d cores are taken at %v", taken, cores, from[i])
			}
		}
	})
}

// worked is one instruction of a worker.
type worked struct {
	worker      int
	instruction string
}

// sendsNext is behind which computations their worker sends at once.
func sendsNext(p *schedule.Program) map[worked]bool {
	out := map[worked]bool{}
	for w := range p.Workers {
		var before schedule.Instruction
		p.Walk(w, func(in schedule.Instruction) bool {
			if before.Kind.IsCompute() {
				out[worked{w, before.String()}] = in.Kind == schedule.SF || in.Kind == schedule.SB
			}
			before = in
			return true
		})
	}
	return out
}

// Where nobody waits for a core a turn is nothing, and where workers share them it only takes longer.
func TestTurnsAreOfSharedCores(t *testing.T) {
	for _, family := range []string{"afab", "1f1b", "pb"} {
		p := program(t, family, 4, 8, 2)
		for cores := range 4 {
			c := Uniform(4, 1, 2, 0.25)
			_, without, err := Run(p, c, Options{Cores: cores})
			if err != nil {
				t.Fatal(err)
			}
			c.TurnS = 0.125
			_, with, err := Run(p, c, Options{Cores: cores})
			if err != nil {
				t.Fatal(err)
			}
			if alone := cores == 0; alone != (with.EndS == without.EndS) || with.EndS < without.EndS {
				t.Errorf("%s on %d cores ends at %v, and at %v without turns", family, cores, with.EndS, without.EndS)
			}
		}
	}
}
