package control

import (
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/programs"
)

// every reports whether a test should try the next case: a random tenth of the cases, or all with `make soak`.
func every(g *rand.Rand) bool { return os.Getenv("MILLRACE_SOAK") != "" || g.IntN(10) == 0 }

// A run may be stopped at any instruction. It then ends after a whole group of minibatches, and not before the last
// minibatch that a worker had begun by then. Every worker has done exactly these minibatches. The next Program then
// runs to its end.
func TestStopAtEveryInstruction(t *testing.T) {
	stopped := 0
	for name, p := range everyFamily(t) {
		g := rand.New(rand.NewPCG(uint64(len(name)), 3))
		for at := 1; ; at++ {
			if !every(g) && at > 1 {
				if at > 2000 {
					break
				}
				continue
			}
			w := newWorld(g, split(g, p.Workers, 1+g.IntN(p.Workers)))
			begun := -1
			w.at = func(start int) {
				if start != at {
					return
				}
				for _, s := range w.process {
					if s.Process != nil {
						begun = max(begun, s.Begun())
					}
				}
				switch asks := g.IntN(len(w.process)); g.IntN(3) {
				case 0:
					w.process[asks].say(Stop{})
				case 1:
					asked := w.leader.Stop()
					if again := w.leader.Stop(); again != nil {
						t.Fatalf("%s: a second stop is said: %v", name, again)
					}
					w.tell(asked)
				default:
					w.tell(w.leader.Stop())
				}
			}
			if err := w.play(p, Load{}); err != nil {
				t.Fatalf("%s, stopped at %d, processes %v: %v", name, at, w.of, err)
			}
			if w.starts < at {
				break // the program has no further instructions
			}
			n, refused := w.leader.Outcome()
			most := begun
			for _, s := range w.process {
				most = max(most, s.answered)
			}
			// The run ends after the group of the last minibatch that any process had begun when it was asked, or after
			// all minibatches.
			group := min((most+p.Period)/p.Period*p.Period, p.Minibatches())
			if w.leader.Under() || refused != nil || n <= begun || n != group && n != p.Minibatches() {
				t.Fatalf("%s, stopped at %d where minibatch %d was begun, processes %v: %d minibatches of %d in groups of %d; "+
					"under way: %v",
					name, at, begun, w.of, n, p.Minibatches(), p.Period, w.leader.Under())
			}
			if err := w.done(n); err != nil {
				t.Fatalf("%s, stopped at %d, processes %v: %v", name, at, w.of, err)
			}
			if n < p.Minibatches() {
				stopped++
			}
			if w.at = nil; g.IntN(4) == 0 {
				if err := w.play(p, Load{}); err != nil || w.leader.Under() {
					t.Fatalf("%s, behind a stop at %d: %v", name, at, err)
				}
				if err := w.done(p.Minibatches()); err != nil {
					t.Fatalf("%s, behind a stop at %d: %v", name, at, err)
				}
			}
		}
	}
	if stopped < 100 {
		t.Errorf("%d programs were cut short", stopped)
	}
}

// Every update in turn is refused, and about half of the runs are also stopped at some instruction. All processes end
// after the same minibatch, no worker waits, and no message is left.
func TestRollbackAtEveryMinibatch(t *testing.T) {
	tried := 0
	for name, p := range everyFamily(t) {
		if !p.PostValidate {
			continue
		}
		g := rand.New(rand.NewPCG(uint64(len(name)), 4))
		for k := range p.Minibatches() {
			for range 4 {
				w := newWorld(g, split(g, p.Workers, 1+g.IntN(p.Workers)))
				w.refused = k
				if g.IntN(2) == 0 {
					at := 1 + g.IntN(60*p.Workers)
					w.at = func(start int) {
						if start == at {
							w.tell(w.leader.Stop())
						}
					}
				}
				if err := w.play(p, Load{}); err != nil || w.leader.Under() {
					t.Fatalf("%s, minibatch %d refused, processes %v: %v; under way: %v", name, k, w.of, err, w.leader.Under())
				}
				if n, _ := w.leader.Outcome(); n > k+1 || w.at == nil && n != k+1 {
					t.Fatalf("%s, minibatch %d refused: %d minibatches done", name, k, n)
				}
				for _, s := range w.process {
					if worker, in, left := s.Left(); left {
						t.Fatalf("%s, minibatch %d refused: worker %d was sent %v and has not taken it", name, k, worker, in)
					}
				}
				tried++
				w.refused, w.at = -1, nil
				if err := w.play(p, Load{}); err != nil || w.leader.Under() {
					t.Fatalf("%s, behind a refusal of minibatch %d: %v", name, k, err)
				}
				if err := w.done(p.Minibatches()); err != nil {
					t.Fatalf("%s, behind a refusal of minibatch %d: %v", name, k, err)
				}
			}
		}
	}
	if tried < 50 {
		t.Errorf("%d refusals", tried)
	}
}

// The first failure that the leader receives, before or after a Stop, is the run's failure. It is sent to all
// processes, which then leave.
func TestTheFirstFailureWins(t *testing.T) {
	var programs []*schedule.Program
	for _, p := range everyFamily(t) {
		programs = append(programs, p)
	}
	slices.SortFunc(programs, func(a, b *schedule.Program) int { return int(a.Instructions() - b.Instructions()) })
	for seed := range uint64(300) {
		g := rand.New(rand.NewPCG(seed, 5))
		p := programs[g.IntN(len(programs))]
		w := newWorld(g, split(g, p.Workers, 1+g.IntN(p.Workers)))
		at := 1 + g.IntN(40)
		w.at = func(start int) {
			if start == at {
				if g.IntN(2) == 0 {
					w.tell(w.leader.Stop())
				}
				for range 1 + g.IntN(2) {
					i := g.IntN(len(w.process))
					w.process[i].failed = true
					w.process[i].say(Failed{Process: i, Text: "it broke"})
				}
			}
		}
		if err := w.play(p, Load{}); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if w.starts < at {
			continue
		}
		why := w.leader.Failed()
		if why == nil || why.Text != "it broke" || w.leader.Under() {
			t.Fatalf("seed %d: failed %v; under way: %v", seed, why, w.leader.Under())
		}
		for i, s := range w.process {
			if !s.failed || s.told != nil && s.told.Process != why.Process {
				t.Fatalf("seed %d: process %d was told %v; the run has failed of %v", seed, i, s.told, why)
			}
		}
		if again := w.leader.Fail(Failed{Text: "late"}); again != nil || w.leader.Stop() != nil || w.leader.Beat() != nil {
			t.Fatalf("seed %d: a run that has failed goes on", seed)
		}
		w.tell(w.leader.Leave(Leave{}))
		for more := true; more; {
			var err error
			if more, err = w.step(); err != nil {
				t.Fatalf("seed %d: leaving: %v", seed, err)
			}
		}
		if !w.leader.Gone() {
			t.Fatalf("seed %d: not all have left", seed)
		}
	}
}

// Drains are released once all processes have reached them. Evaluations and checkpoints end by themselves, and a
// Stop does not affect them.
func TestDrainsOfSeveralProcesses(t *testing.T) {
	for seed := range uint64(60) {
		g := rand.New(rand.NewPCG(seed, 6))
		placement := schedule.Replicated(1+g.IntN(4), 1+g.IntN(2))
		p, err := evaluation(g, placement)
		if err != nil {
			t.Fatal(err)
		}
		w := newWorld(g, split(g, p.Workers, 1+g.IntN(p.Workers)))
		at := 1 + g.IntN(20)
		w.at = func(start int) {
			if start == at && w.leader.Stop() != nil {
				t.Fatal("an evaluation was stopped")
			}
		}
		for range 2 {
			if err := w.play(p, Evaluate{}); err != nil || w.leader.Under() {
				t.Fatalf("seed %d: %v; under way: %v", seed, err, w.leader.Under())
			}
			if err := w.done(math.MaxInt); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
	}
}

func evaluation(g *rand.Rand, placement [][]int) (*schedule.Program, error) {
	if g.IntN(3) == 0 {
		return programs.Checkpoint(placement)
	}
	return programs.Evaluation(placement, 1+g.IntN(20))
}
