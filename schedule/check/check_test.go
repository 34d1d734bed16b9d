package check_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/check"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/schedule/lower"
	"github.com/millrace-ml/millrace/schedule/scheduletest"
	"pgregory.net/rapid"
)

func randomProgram(t *rapid.T) *schedule.Program {
	stages := rapid.IntRange(1, 6).Draw(t, "stages")
	m := rapid.IntRange(1, 9).Draw(t, "m")
	s := schedule.Settings{Placement: schedule.Replicated(stages, 1), MicroBatches: m,
		Repeat: rapid.IntRange(1, 3).Draw(t, "repeat")}
	order := "1f1b"
	if rapid.IntRange(0, 3).Draw(t, "replicated") == 0 {
		s.Placement, s.Replication = scheduletest.Replicas(scheduletest.Drawn(t), stages)
	}
	if stages == 1 && rapid.Bool().Draw(t, "dp") {
		replicas := []int{0, 1, 2}
		order, s.Placement, s.Replication = "dp", [][]int{replicas[:rapid.IntRange(1, 3).Draw(t, "replicas")]},
			schedule.RoundRobin
	} else {
		s.Warmup = scheduletest.Depths(scheduletest.Drawn(t), stages, m)
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

// TestPeakIsWarmup: stage i holds K_i micro-batches at its peak, or all if there are fewer. K_i is the depth that the
// family gives the stage (DAPPLE §5.3, BaPipe Table II).
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
	// Check also finds the deadlock of such depths in lists that no family has checked.
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

// TestCorruptionsAreCaught drops or doubles one instruction of a valid Program. Check must refuse the result.
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

// TestCheckIsTheReplayOfFamilies damages the Programs of families at random. Check and the independent replay refuse
// exactly the same Programs.
func TestCheckIsTheReplayOfFamilies(t *testing.T) {
	still, all := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		p := randomProgram(t)
		if err := scheduletest.Replay(p); err != nil {
			t.Fatalf("the replay refuses a generated program: %v\n%s", err, p.Text())
		}
		bad, how := scheduletest.Corrupt(scheduletest.Drawn(t), p)
		if check.Validate(bad) != nil {
			return
		}
		_, checked := check.Check(bad)
		replayed := scheduletest.Replay(bad)
		if all++; replayed == nil {
			still++
		}
		if (checked == nil) != (replayed == nil) {
			t.Fatalf("%s: Check says %v, the replay %v\n%s", how, checked, replayed, bad.Text())
		}
	})
	if t.Logf("%d of %d damaged programs were still valid", still, all); still == 0 || still == all {
		t.Error("one side was never tried")
	}
}

// A minibatch without any update is found, although all the other minibatches have their updates.
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

// TestSumsThatCross: each of two workers waits in an all-reduce that the other worker would join only after its own.
// The error shows this cycle.
func TestSumsThatCross(t *testing.T) {
	p, err := schedule.ParseText(strings.NewReader(schedule.TextHeader + `
name crossed
stages 2
workers 2
micro_batches 2
period 1
repeat 1
weights sync
replication round_robin
lowered true
place p0/0: 0 1
place p0/1: 0 1
body
0: 0F0 1F0 1B0 0B0 1AR0 1U0 0AR0 0U0
1: 0F1@r1 1F1@r1 1B1@r1 0B1@r1 0AR0@r1 0U0@r1 1AR0@r1 1U0@r1
`))
	if err != nil {
		t.Fatal(err)
	}
	const want = "it would block for ever: 1U0 needs 1AR0; 0U0@r1 needs 0AR0@r1; and so on round"
	if _, err := check.Check(p); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
}

// TestUpdatesOfPartOfAGroup: a stage whose two replicas take minibatches in turn updates once for two minibatches. An
// update after the first of the two is refused, and so is an update without gradients.
func TestUpdatesOfPartOfAGroup(t *testing.T) {
	const text = schedule.TextHeader + `
name part
stages 1
workers 2
micro_batches 2
period 2
repeat 1
weights stash
replication round_robin
lowered true
place p0/0: 0 1
body
0: 0F0 0B0 0AR1 0U1
1: 0F1@r1 0B1@r1 0AR1@r1 0U1@r1
`
	for _, c := range []struct{ from, to, want string }{
		{"", "", ""},
		{"B0 ", "B0 0AR0 0U0 ", "its stage updates once for 2 minibatches: that of micro-batch 0 is number 1"},
		{" 0U1\n", " 0U1 0AR3 0U3\n", "no gradient is of it: there are 2 micro-batches"},
	} {
		changed := strings.Replace(text, c.from, c.to, 1)
		if c.from != "" { // the same change on the other replica
			other := strings.NewReplacer("B0", "B1@r1", "AR0", "AR0@r1", "U0", "U0@r1", "0U1", "0U1@r1", "AR3", "AR3@r1",
				"U3", "U3@r1")
			changed = strings.Replace(changed, other.Replace(c.from), other.Replace(c.to), 1)
		}
		p, err := schedule.ParseText(strings.NewReader(changed))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := check.Check(p); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q for %q: %v, want %q\n%s", c.to, c.from, err, c.want, changed)
		}
	}
}

// TestUpdatesFarAway: an update is refused if its number is so large that its micro-batches cannot be numbered.
func TestUpdatesFarAway(t *testing.T) {
	p, err := family.Generate("single", schedule.Settings{Placement: schedule.Replicated(1, 1), MicroBatches: 32})
	if err == nil {
		p, err = lower.Lower(p, lower.Options{})
	}
	if err != nil {
		t.Fatal(err)
	}
	p.Body[0] = append(p.Body[0], schedule.Instruction{Kind: schedule.U, Micro: 1 << 27})
	if _, err := check.Check(p); err == nil || !strings.Contains(err.Error(),
		"it is of minibatch 134217728 to 134217728; they are 0 to 8388607") {
		t.Error(err)
	}
}
