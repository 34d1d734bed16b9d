package sim_test

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/check"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/schedule/lower"
	"github.com/millrace-ml/millrace/schedule/machine"
	"github.com/millrace-ml/millrace/sim"
	"github.com/millrace-ml/millrace/trace"
)

// besideProgram returns a Program of elastic averaging whose reference is updated on threads beside the pipelines.
func besideProgram(t testing.TB, stages, micros, pipelines, steps int) *schedule.Program {
	t.Helper()
	e := plan.NewElastic(pipelines)
	e.Reference = plan.Beside
	p, err := family.Generate("elastic", schedule.Settings{Placement: schedule.Replicated(stages, 1), MicroBatches: micros,
		Repeat: steps, Weights: schedule.Elastic, Elastic: e})
	if err == nil {
		p, err = lower.Lower(p, lower.Options{})
	}
	if err == nil {
		_, err = check.Check(p)
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func besideCosts(stages int, pulled, reference float64) sim.Costs {
	c := sim.Uniform(stages, 1, 2, 0.25)
	for s := range c.Stages {
		c.Stages[s][0].UpdateS, c.Stages[s][0].PulledUpdateS, c.Stages[s][0].ReferenceUpdateS = pulled/2, pulled, reference
	}
	return c
}

// ofPipelines returns the events of a Timeline without the events of the reference's threads.
func ofPipelines(tl *trace.Timeline) (all []trace.Event) {
	for _, e := range tl.Events {
		if e.Lane != trace.Beside {
			all = append(all, e)
		}
	}
	return all
}

// TestAReferenceBesideBlocksNobody: the reference never blocks a pipeline. The pipelines' events happen at the same
// times, whether an update of the reference takes no time or longer than all steps together.
func TestAReferenceBesideBlocksNobody(t *testing.T) {
	for seed := range uint64(60) {
		g := rand.New(rand.NewPCG(seed, 92))
		stages, micros, pipelines := 1+g.IntN(4), 1+g.IntN(4), 2+g.IntN(3)
		p := besideProgram(t, stages, micros, pipelines, 2+g.IntN(10))
		o := sim.Options{Record: true, Slots: 0, Ahead: g.IntN(2)}
		var want []trace.Event
		for _, reference := range []float64{0, 0.01, 5, 1e4} {
			c := besideCosts(stages, 0.5, reference)
			if o.Ahead == 0 && g.IntN(2) == 0 && want == nil {
				o.Vary = func(w int, in schedule.Instruction, s float64) float64 {
					return s * (1 + float64((int(in.Micro)*31+w*17+int(seed))%5))
				}
			}
			tl, sum, err := sim.Run(p, c, o)
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			got := ofPipelines(tl)
			if want == nil {
				want = got
			}
			if !slices.Equal(got, want) {
				t.Fatalf("seed %d: with a reference that takes %v s a step, something else happens", seed, reference)
			}
			if tl.Steps[len(tl.Steps)-1].EndS >= 1e4 || sum.StepS >= 1e4 {
				t.Errorf("seed %d: a step takes %v s", seed, sum.StepS)
			}
		}
	}
}

// TestASlowReferenceBesideByHand has one stage and two pipelines of one micro-batch (3 s). A pull takes 1 s, and a
// reference update takes 5 s for each pipeline. An iteration takes 8 s. Pipeline 0 updates from 4 to 5, 12 to 13, and
// so on. Pipeline 1 updates from 7 to 8, 15 to 16, and so on. The thread is given an update at 8, 16, 24 and 32 and
// takes 10 s for each, so it is done at 18, 28, 38 and 48.
func TestASlowReferenceBesideByHand(t *testing.T) {
	p := besideProgram(t, 1, 1, 2, 4)
	tl, _, err := sim.Run(p, besideCosts(1, 1, 5), sim.Options{Record: true})
	if err != nil {
		t.Fatal(err)
	}
	var given, done []float64
	for _, e := range tl.Events {
		if e.Kind == "UR" {
			given, done = append(given, e.ReadyS), append(done, e.EndS)
		}
	}
	if !slices.Equal(given, []float64{8, 16, 24, 32}) || !slices.Equal(done, []float64{18, 28, 38, 48}) {
		t.Errorf("given at %v, done at %v", given, done)
	}
	// The pulls of iterations 0 and 1 begin at 4, 7, 12 and 15, before the reference's first update is done. The pulls
	// of iteration 2 begin after it, at 20 and 23. The pulls of iteration 3 begin at 28, exactly when the second update
	// is done, and at 31.
	want := []int{0, 0, 0, 0, 1, 1, 2, 2}
	for i, s := range tl.Seen {
		if s.Step != i/2 || s.Pipeline != i%2 || s.Version != want[i] {
			t.Errorf("%+v; want version %d", s, want[i])
		}
	}
	if len(tl.Seen) != len(want) {
		t.Errorf("%d updates", len(tl.Seen))
	}
}

// TestReferencesBesideInAnyTiming: no update sees a newer reference than the iterations before it left. The recorded
// order gives a Program whose updates see the same versions even if instructions take other times.
func TestReferencesBesideInAnyTiming(t *testing.T) {
	stale := 0
	for seed := range uint64(200) {
		g := rand.New(rand.NewPCG(seed, 93))
		stages, micros, pipelines := 1+g.IntN(4), 1+g.IntN(3), 2+g.IntN(3)
		p := besideProgram(t, stages, micros, pipelines, 1+g.IntN(12))
		run := func(p *schedule.Program) *trace.Timeline {
			c := besideCosts(stages, g.Float64(), 20*g.Float64()*g.Float64())
			if g.IntN(2) == 0 {
				c.Cores = machine.Share(1 + g.IntN(stages))
			}
			tl, _, err := sim.Run(p, c, sim.Options{Record: true,
				Vary: func(w int, in schedule.Instruction, s float64) float64 {
					return s * (1 + float64((int(in.Micro)*13+w*7+int(seed))%4))
				}})
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			return tl
		}
		seen := seenIn(run(p))
		for _, s := range seen {
			if s.Version < 0 || s.Version > s.Minibatch {
				t.Fatalf("seed %d: %+v", seed, s)
			}
			if s.Version < s.Minibatch {
				stale++
			}
		}
		q, err := lower.Averaged(p, seen)
		if err == nil {
			_, err = check.Check(q)
		}
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if got := byLists(q); !slices.Equal(got, seen) {
			t.Fatalf("seed %d: the replay would do %v, not %v", seed, got, seen)
		}
		run(q)
	}
	if stale < 100 {
		t.Errorf("%d updates saw an older reference: the test tests little", stale)
	}
}

func ordered(all []schedule.Seen) []schedule.Seen {
	slices.SortFunc(all, func(a, b schedule.Seen) int {
		return cmp.Or(a.Minibatch-b.Minibatch, a.Stage-b.Stage, a.Pipeline-b.Pipeline)
	})
	return all
}

func seenIn(tl *trace.Timeline) (all []schedule.Seen) {
	for _, s := range tl.Seen {
		all = append(all, schedule.Seen{Pipeline: s.Pipeline, Stage: s.Stage, Minibatch: s.Step, Version: s.Version})
	}
	return ordered(all)
}

// byLists returns which version each update sees, according to the lists of a Program.
func byLists(p *schedule.Program) (all []schedule.Seen) {
	for w := range p.Workers {
		made := 0
		p.Walk(w, func(in schedule.Instruction) bool {
			switch {
			case in.Kind == schedule.U && p.IsReference(int(in.Pipeline)):
				made++
			case in.Kind == schedule.U:
				all = append(all, schedule.Seen{Pipeline: int(in.Pipeline), Stage: int(in.Stage), Minibatch: int(in.Micro),
					Version: made})
			}
			return true
		})
	}
	return ordered(all)
}

// TestMemoryOfAReferenceBeside counts bytes by hand, for two pipelines on one stage. Each pipeline holds 3000. The
// reference holds 1100 that pipelines see and 1100 that its thread works on. A gradient of 1000 becomes a step of 1100
// in the queue. With a fast reference the queue holds at most two steps. With a reference that never finishes, it holds
// all eight steps of four iterations. A finished copy of 1100 is kept until a pipeline has seen it.
func TestMemoryOfAReferenceBeside(t *testing.T) {
	p := besideProgram(t, 1, 1, 2, 4)
	for _, c := range []struct {
		reference float64
		want      int64
	}{
		{0, 2*3000 + 2*1100 + 2*1100},
		// Updates are given at 8, 16, 24 and 32, and done at 18, 28, 38 and 48. After the pull at 32, four of eight
		// steps are left in the queue, because two updates are finished. Pipelines have seen the copies made at 18 and
		// 28.
		{5, 2*3000 + 2*1100 + 4*1100},
		{1e6, 2*3000 + 2*1100 + 8*1100},
	} {
		costs := besideCosts(1, 1, c.reference)
		k := &costs.Stages[0][0]
		k.FixedBytes, k.ReferenceBytes, k.ParameterBytes, k.SavedBytes = 3000, 1100, 1000, 0
		costs.OneMemory = func(int, int) bool { return true }
		tl, sum, err := sim.Run(p, costs, sim.Options{Record: true})
		if err != nil {
			t.Fatal(err)
		}
		if sum.PeakBytes[0] != c.want {
			t.Errorf("with a reference that takes %v s: %d bytes at most; want %d", c.reference, sum.PeakBytes[0], c.want)
		}
		// At the end, one copy is left that no pipeline has seen.
		if left := tl.Memory[len(tl.Memory)-1].Bytes; left != 2*3000+3*1100 {
			t.Errorf("with a reference that takes %v s: %d bytes are left", c.reference, left)
		}
		most, err := sim.AtMostBytes(p, costs)
		if err != nil || most[0] != 2*3000+2*1100+8*1100 {
			t.Errorf("at most %v, %v", most, err)
		}
		evaluates, err := sim.EvaluationBytes(p, costs)
		if err != nil || evaluates[0] != 2*3000+2*1100 {
			t.Errorf("evaluations hold %v, %v", evaluates, err)
		}
	}
}
