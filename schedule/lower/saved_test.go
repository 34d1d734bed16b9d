package lower_test

import (
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/check"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/schedule/lower"
)

// TestSavedListsByHand has two stages and four minibatches. Stage 0 begins with two forwards and stage 1 with one, and
// both update after each backward. Each stage saves itself after the second update, while minibatch 2 is in flight on
// stage 0.
func TestSavedListsByHand(t *testing.T) {
	p := stream(t, schedule.Replicated(2, 1), 4)
	saved, err := lower.Saved(p, []int{2})
	if err != nil {
		t.Fatal(err)
	}
	for w, want := range []string{
		"0F0 0SF0 0F1 0SF1 0RB0 0B0 0U0 0F2 0SF2 0RB1 0B1 0U1 0CK1 0F3 0SF3 0RB2 0B2 0U2 0RB3 0B3 0U3",
		"1RF0 1F0 1B0 1SB0 1U0 1RF1 1F1 1B1 1SB1 1U1 1CK1 1RF2 1F2 1B2 1SB2 1U2 1RF3 1F3 1B3 1SB3 1U3",
	} {
		var got []string
		saved.Walk(w, func(in schedule.Instruction) bool {
			got = append(got, in.String())
			return true
		})
		if list := strings.Join(got, " "); list != want {
			t.Errorf("worker %d: %s\nwanted   %s", w, list, want)
		}
	}
	again, err := schedule.ParseText(strings.NewReader(saved.Text()))
	if err != nil || again.Text() != saved.Text() {
		t.Errorf("its text is not read as it was written: %v", err)
	}
}

func stream(t *testing.T, placement [][]int, minibatches int) *schedule.Program {
	t.Helper()
	p, err := family.Generate("1f1b-rr", schedule.Settings{Placement: placement, MicroBatches: 1, Repeat: minibatches,
		Weights: schedule.Stash})
	if err == nil {
		p, err = lower.Lower(p, lower.Options{})
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Replicated stages save once, and only after whole groups of minibatches. Check accepts what Saved writes. Check
// refuses a Program in which a save is left out, or moved before its update.
func TestSavedProgramsPassCheck(t *testing.T) {
	p := stream(t, [][]int{{0, 1, 2}, {3}, {4, 5}}, 24)
	saved, err := lower.Saved(p, []int{6, 12, 24})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := check.Check(saved); err != nil {
		t.Error(err)
	}
	count := map[string]int{}
	for w, list := range saved.Prologue {
		for at, in := range list {
			if in.Kind != schedule.CK {
				continue
			}
			count[in.String()]++
			moved := *saved
			moved.Prologue = append(schedule.Part(nil), saved.Prologue...)
			early := append(schedule.List(nil), list...)
			early[at], early[at-1] = early[at-1], early[at]
			moved.Prologue[w] = early
			if _, err := check.Check(&moved); err == nil || !strings.Contains(err.Error(), "which must come before it") {
				t.Errorf("%v in front of its update: %v", in, err)
			}
			moved.Prologue[w] = append(append(schedule.List(nil), list[:at]...), list[at+1:]...)
			if _, err := check.Check(&moved); err == nil || !strings.Contains(err.Error(), in.String()+" is missing") {
				t.Errorf("without %v: %v", in, err)
			}
		}
	}
	if len(count) != 9 {
		t.Errorf("%v; three stages save themselves three times, each once", count)
	}
	for want, ends := range map[string][]int{"give multiples of 6": {6, 8}, "it has 24": {25}, "behind 0": {0}} {
		if _, err := lower.Saved(p, ends); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v; wanted %q", ends, err, want)
		}
	}
}
