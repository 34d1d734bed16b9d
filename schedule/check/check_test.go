package check_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/check"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/schedule/lower"
	"pgregory.net/rapid"
)

// randomWarmup draws a valid K: at most M, never growing.
func randomWarmup(t *rapid.T, stages, m int) []int {
	k := make([]int, stages)
	limit := m
	for i := range k {
		k[i] = rapid.IntRange(1, limit).Draw(t, "k")
		limit = k[i]
	}
	return k
}

// replicated places stages on one to three workers each: as many on every stage for round
// robin, where depths of the family then hold for each chain of replicas; any number for split.
func replicated(t *rapid.T, stages int) ([][]int, schedule.Replication) {
	n := rapid.IntRange(1, 3).Draw(t, "replicas")
	how := rapid.SampledFrom([]schedule.Replication{schedule.Split, schedule.RoundRobin}).Draw(t, "replication")
	var placement [][]int
	next := 0
	for range stages {
		var on []int
		for range n {
			on = append(on, next)
			next++
		}
		placement = append(placement, on)
		if how == schedule.Split {
			n = rapid.IntRange(1, 3).Draw(t, "replicas")
		}
	}
	return placement, how
}

func randomProgram(t *rapid.T) *schedule.Program {
	stages := rapid.IntRange(1, 6).Draw(t, "stages")
	m := rapid.IntRange(1, 9).Draw(t, "m")
	s := schedule.Settings{Placement: schedule.Replicated(stages, 1), MicroBatches: m,
		Repeat: rapid.IntRange(1, 3).Draw(t, "repeat")}
	order := "1f1b"
	if rapid.IntRange(0, 3).Draw(t, "replicated") == 0 {
		s.Placement, s.Replication = replicated(t, stages)
	}
	if stages == 1 && rapid.Bool().Draw(t, "dp") {
		replicas := []int{0, 1, 2}
		order, s.Placement, s.Replication = "dp", [][]int{replicas[:rapid.IntRange(1, 3).Draw(t, "replicas")]},
			schedule.RoundRobin
	} else {
		s.Warmup = randomWarmup(t, stages, m)
	}
	p, err := family.Generate(order, s)
	if err != nil {
		t.Fatal(err)
	}
	o := lower.Options{Clip: rapid.Bool().Draw(t, "clip")}
	if stages > 2 && rapid.Bool().Draw(t, "tied") {
		o.Tied = [][]int{{0, stages - 1}}
	}
	if p, err = lower.Lower(p, o); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestRandomProgramsPassCheck(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := randomProgram(t)
		rep, err := check.Check(p)
		if err != nil {
			t.Fatalf("%v", err)
		}
		for s, on := range p.Placement[0] {
			for _, w := range on {
				if rep.PeakActivations[w] < 1 && (len(on) == 1 || p.Replication == schedule.Split) ||
					rep.PeakActivations[w] > p.MicroBatches {
					t.Fatalf("stage %d holds %d micro-batches of %d", s, rep.PeakActivations[w], p.MicroBatches)
				}
			}
		}
	})
}

// Peaks of the named depths: K_i itself, clamped (DAPPLE §5.3, BaPipe Table II).
func TestPeakIsWarmup(t *testing.T) {
	for _, c := range []struct {
		family string
		S, M   int
		peak   []int
	}{
		{"afab", 4, 8, []int{8, 8, 8, 8}},
		{"1f1b", 4, 8, []int{4, 3, 2, 1}},
		{"1f1b", 4, 2, []int{2, 2, 2, 1}},
		{"pb", 4, 8, []int{7, 5, 3, 1}},
		{"so", 4, 8, []int{8, 6, 4, 2}},
	} {
		p, err := family.Generate(c.family, schedule.Settings{Placement: schedule.Replicated(c.S, 1),
			MicroBatches: c.M})
		if err != nil {
			t.Fatal(err)
		}
		rep, err := check.Check(p)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(rep.PeakActivations, c.peak) {
			t.Errorf("%s S=%d M=%d: peaks %v, want %v", c.family, c.S, c.M, rep.PeakActivations, c.peak)
		}
	}
}

func TestDepthsThatDeadlockAreRefused(t *testing.T) {
	_, err := family.Generate("1f1b", schedule.Settings{Placement: schedule.Replicated(2, 1), MicroBatches: 4,
		Warmup: []int{1, 2}})
	if err == nil {
		t.Fatal("K = 1, 2 was accepted")
	}
	// And the replay finds it by itself when the order is written by hand.
	good, _ := family.Generate("1f1b", schedule.Settings{Placement: schedule.Replicated(2, 1), MicroBatches: 4,
		Warmup: []int{2, 2}})
	bad, _ := family.Generate("1f1b", schedule.Settings{Placement: schedule.Replicated(2, 1), MicroBatches: 4,
		Warmup: []int{1, 1}})
	bad.Body[1] = good.Body[1]
	if _, err := check.Check(bad); err == nil {
		t.Fatal("a deadlock passed the check")
	} else {
		t.Log(err)
	}
}

// TestCorruptionsAreCaught drops, doubles or swaps one instruction of a valid
// Program. Swaps can leave it valid: those pass a replay of every rule by hand,
// which is what Check is, so only drops and doubles must always be caught.
func TestCorruptionsAreCaught(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := randomProgram(t)
		w := rapid.IntRange(0, p.Workers-1).Draw(t, "w")
		if len(p.Body[w]) == 0 {
			return
		}
		i := rapid.IntRange(0, len(p.Body[w])-1).Draw(t, "i")
		list := slices.Clone(p.Body[w])
		p.Body = slices.Clone(p.Body)
		in := list[i]
		if rapid.Bool().Draw(t, "drop") {
			list = slices.Delete(list, i, i+1)
		} else {
			list = slices.Insert(list, i, in)
		}
		p.Body[w] = list
		if _, err := check.Check(p); err == nil {
			t.Fatalf("worker %d without or with two of %v passed", w, in)
		}
	})
}

// A whole minibatch without any update hides behind the updates of the others.
func TestTheLastUpdateIsMissed(t *testing.T) {
	p, err := family.Generate("1f1b", schedule.Settings{Placement: schedule.Replicated(2, 1), MicroBatches: 2})
	if err == nil {
		p, err = lower.Lower(p, lower.Options{})
	}
	if err != nil {
		t.Fatal(err)
	}
	p.Epilogue = make(schedule.Part, 2)
	for w, list := range p.Body {
		p.Epilogue[w] = list[:len(list)-1]
	}
	var refused *check.Error
	if _, err := check.Check(p); !errors.As(err, &refused) ||
		refused.Why != "0U1 is there 0 times; every stage updates once for each minibatch" {
		t.Errorf("got %v", err)
	}
}
