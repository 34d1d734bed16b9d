package sim_test

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/check"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/schedule/lower"
	"github.com/millrace-ml/millrace/schedule/machine"
	"github.com/millrace-ml/millrace/sim"
	"github.com/millrace-ml/millrace/trace"
)

// updates builds an order of updates from pairs: a minibatch, and the number of updates in the weights that it used.
func updates(pairs ...int) (all []schedule.Applied) {
	for i := 0; i < len(pairs); i += 2 {
		all = append(all, schedule.Applied{Minibatch: pairs[i], Version: pairs[i+1]})
	}
	return all
}

func aspProgram(t testing.TB, trainers, steps int, staleness *int, clip bool) *schedule.Program {
	t.Helper()
	p, err := family.Generate("asp", schedule.Settings{Placement: schedule.Replicated(1, trainers+1), MicroBatches: 1,
		Repeat: steps, Weights: schedule.ASP, Staleness: staleness})
	if err == nil {
		p, err = lower.Lower(p, lower.Options{Clip: clip})
	}
	if err == nil {
		_, err = check.Check(p)
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// done returns the updates of a server in a simulation, in order. Each has the number of updates in the weights that
// its minibatch used.
func done(t testing.TB, tl *trace.Timeline, server int) []schedule.Applied {
	t.Helper()
	var events []trace.Event
	for _, e := range tl.Events {
		if e.Worker == server && (e.Kind == "U" || e.Kind == "SW") {
			events = append(events, e)
		}
	}
	// Sends are sorted by their start, and updates by their end. Events of the same moment keep their recorded order.
	at := func(e trace.Event) float64 {
		if e.Kind == "U" {
			return e.EndS
		}
		return e.StartS
	}
	slices.SortStableFunc(events, func(a, b trace.Event) int { return cmp.Compare(at(a), at(b)) })
	read := map[int]int{}
	var order []schedule.Applied
	for _, e := range events {
		in, err := schedule.ParseInstruction(e.Instruction)
		if err != nil {
			t.Fatal(err)
		}
		if in.Kind == schedule.SW {
			read[int(in.Micro)] = len(order)
		} else {
			order = append(order, schedule.Applied{Minibatch: int(in.Micro), Version: read[int(in.Micro)]})
		}
	}
	return order
}

// TestASPByHand compares simulated updates with updates that were worked out by hand, for several bounds on staleness.
// Two trainers take 2 s and 5 s for a minibatch; updates and transfers take no time. Without a bound:
//
//	trainer 0: minibatches 0 2 4 6 end at 2 4 6 8
//	trainer 1: minibatches 1 3 5 7 end at 5 10 15 20
func TestASPByHand(t *testing.T) {
	costs := sim.Costs{Stages: [][]sim.StageCost{{{ForwardS: 1, BackwardS: 1}, {ForwardS: 2, BackwardS: 3}, {}}}}
	two := 2
	for _, c := range []struct {
		staleness *int
		end       float64
		want      []schedule.Applied
	}{
		{nil, 20, updates(0, 0, 2, 1, 1, 0, 4, 2, 6, 4, 3, 3, 5, 6, 7, 7)},
		// At most two ahead: trainer 0 may begin its fourth minibatch, which is number 6, once trainer 1's first
		// minibatch has ended, at 5 s. Trainer 0 begins it at 6 s anyway, so nothing changes.
		{&two, 20, updates(0, 0, 2, 1, 1, 0, 4, 2, 6, 4, 3, 3, 5, 6, 7, 7)},
		// With staleness 0 there are rounds: both trainers begin their minibatches at 0, 5, 10 and 15 s.
		{new(0), 20, updates(0, 0, 1, 0, 2, 2, 3, 2, 4, 4, 5, 4, 6, 6, 7, 6)},
		// At most one ahead: trainer 0 begins minibatch 0 at 0 s, minibatch 2 at 2 s, minibatch 4 at 5 s (after trainer 1's
		// first update), and minibatch 6 at 10 s.
		{new(1), 20, updates(0, 0, 2, 1, 1, 0, 4, 3, 3, 3, 6, 5, 5, 5, 7, 7)},
	} {
		p := aspProgram(t, 2, 8, c.staleness, false)
		tl, sum, err := sim.Run(p, costs, sim.Options{Record: true})
		if err != nil {
			t.Fatal(err)
		}
		if got := done(t, tl, 2); !slices.Equal(got, c.want) || sum.EndS != c.end {
			t.Errorf("staleness %v: %v to %v; want %v to %v", c.staleness, got, sum.EndS, c.want, c.end)
		}
		if sum.StepS != c.end/8 || math.Abs(sum.BusyS[0]-1) > 1e-12 || math.Abs(sum.BusyS[1]-2.5) > 1e-12 {
			t.Errorf("a step takes %v, computing %v", sum.StepS, sum.BusyS)
		}
	}
}

// TestASPInAnyTiming: whatever the times, no trainer is farther ahead than the bound. The recorded order of updates
// gives a Program that makes the same updates even if instructions take other times.
func TestASPInAnyTiming(t *testing.T) {
	for seed := range uint64(300) {
		g := rand.New(rand.NewPCG(seed, 81))
		trainers, steps := 1+g.IntN(5), 1+g.IntN(40)
		var bound *int
		if g.IntN(3) > 0 {
			bound = new(g.IntN(4))
		}
		p := aspProgram(t, trainers, steps, bound, g.IntN(2) == 0)
		costs := func() (sim.Costs, sim.Options) {
			c := sim.Costs{Transfer: func(int, int, int64) (float64, float64) { return g.Float64(), g.Float64() / 4 }}
			for range trainers + 1 {
				c.Stages = append(c.Stages, nil)
			}
			c.Stages = c.Stages[:1]
			for range trainers + 1 {
				k := sim.StageCost{ForwardS: g.Float64(), BackwardS: 4 * g.Float64()}
				k.UpdateS = g.Float64() / 4
				k.WeightBytes, k.ParameterBytes = 100, 100
				c.Stages[0] = append(c.Stages[0], k)
			}
			if g.IntN(2) == 0 {
				c.Cores = machine.Share(1 + g.IntN(trainers))
			}
			return c, sim.Options{Record: true, Slots: g.IntN(2), Vary: func(w int, in schedule.Instruction, s float64) float64 {
				return s * (1 + float64((int(in.Micro)*31+w*17+int(seed))%5))
			}}
		}
		c, o := costs()
		tl, _, err := sim.Run(p, c, o)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		order := done(t, tl, trainers)
		if err := paced(order, trainers, bound); err != "" {
			t.Fatalf("seed %d: %s\n%v", seed, err, order)
		}
		q, err := lower.Recorded(p, order)
		if err == nil {
			_, err = check.Check(q)
		}
		if err != nil {
			t.Fatalf("seed %d: %v\n%v", seed, err, order)
		}
		c, o = costs()
		again, _, err := sim.Run(q, c, o)
		if err != nil {
			t.Fatalf("seed %d, replayed: %v", seed, err)
		}
		if got := done(t, again, trainers); !slices.Equal(got, order) {
			t.Fatalf("seed %d: the replay did %v, not %v", seed, got, order)
		}
	}
}

// paced returns an error text if a trainer was too far ahead of a trainer that had not finished. It was too far ahead
// if it led by more minibatches than the bound.
func paced(order []schedule.Applied, trainers int, bound *int) string {
	if bound == nil {
		return ""
	}
	left := make([]int, trainers)
	for _, a := range order {
		left[a.Minibatch%trainers]++
	}
	for _, a := range order {
		had := make([]int, trainers) // updates by trainer, in the weights that this minibatch used
		for _, b := range order[:a.Version] {
			had[b.Minibatch%trainers]++
		}
		for other := range trainers {
			if had[other] < left[other] && a.Minibatch/trainers-had[other] > *bound {
				return "a worker is too far ahead"
			}
		}
	}
	return ""
}

// TestASPMemory compares the peaks of 2 trainers and a server with bytes that were counted by hand. A trainer holds a
// copy of the weights (100, and 7 frozen), its gradients (40, as if they had fewer bits than the weights), and the
// weights that were sent to it. The server holds weights and states, the gradients that have arrived, and a copy of the
// weights to send.
func TestASPMemory(t *testing.T) {
	k := sim.StageCost{ForwardS: 1, BackwardS: 1}
	k.WeightBytes, k.ReferenceBytes, k.FrozenBytes, k.FixedBytes, k.ParameterBytes = 100, 100, 7, 307, 40
	costs := sim.Costs{Stages: [][]sim.StageCost{{k}}, OneMemory: func(int, int) bool { return true }}
	p := aspProgram(t, 2, 6, nil, false)
	tl, sum, err := sim.Run(p, costs, sim.Options{Record: true})
	if err != nil {
		t.Fatal(err)
	}
	// Each trainer holds its own 107 and 100 of weights sent to it, later 107 and 40 of gradients. The server holds 307
	// and either two gradients of 40, or one gradient and a copy of the weights, 100.
	if want := []int64{207, 207, 447}; !slices.Equal(sum.PeakBytes, want) {
		t.Errorf("peaks %v; want %v", sum.PeakBytes, want)
	}
	last := map[int]int64{}
	for _, m := range tl.Memory {
		last[m.Worker] = m.Bytes
	}
	if last[0] != 107 || last[1] != 107 || last[2] != 307 {
		t.Errorf("behind the end they hold %v", last)
	}
	most, err := sim.AtMostBytes(p, costs)
	if err != nil || !slices.Equal(most, []int64{207, 207, 447}) {
		t.Errorf("at most %v, %v", most, err)
	}
	evaluates, err := sim.EvaluationBytes(p, costs)
	if err != nil || !slices.Equal(evaluates, []int64{107, 107, 307}) {
		t.Errorf("evaluations hold %v, %v", evaluates, err)
	}
}
