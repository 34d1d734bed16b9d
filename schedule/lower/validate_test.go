package lower_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/check"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/schedule/lower"
	"github.com/millrace-ml/millrace/schedule/programs"
	"pgregory.net/rapid"
)

func validatedLater(t testing.TB, order string, s schedule.Settings) *schedule.Program {
	t.Helper()
	p, err := family.Generate(order, s)
	if err == nil {
		p, err = lower.Lower(p, lower.Options{Clip: true, PostValidate: true})
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestValidationIsInTheNextStep: every stage validates the update of step k in step k+1, after the forwards that
// come before its first gradient. The last update is validated at the end. The Program is the same after it is
// written as text and read.
func TestValidationIsInTheNextStep(t *testing.T) {
	p := validatedLater(t, "zb-h2", schedule.Settings{Placement: schedule.Replicated(2, 1), MicroBatches: 4, Repeat: 3})
	want := `prologue
0: 0F0 0SF0 0F1 0SF1 0F2 0SF2 0RB0 0I0 0W0 0F3 0SF3 0RB1 0I1 0W1 0RB2 0I2 0W2 0RB3 0I3 0W3 0GN0 0U0
1: 1RF0 1F0 1I0 1SB0 1RF1 1F1 1I1 1SB1 1RF2 1F2 1I2 1SB2 1W0 1RF3 1F3 1I3 1SB3 1W1 1W2 1W3 1GN0 1U0
body
0: 0F4 0SF4 0F5 0SF5 0F6 0SF6 0PV0 0RB4 0I4 0W4 0F7 0SF7 0RB5 0I5 0W5 0RB6 0I6 0W6 0RB7 0I7 0W7 0GN1 0U1
1: 1RF4 1F4 1PV0 1I4 1SB4 1RF5 1F5 1I5 1SB5 1RF6 1F6 1I6 1SB6 1W4 1RF7 1F7 1I7 1SB7 1W5 1W6 1W7 1GN1 1U1
epilogue
0: 0PV0
1: 1PV0
`
	if text := p.Text(); !strings.HasSuffix(text, want) {
		t.Errorf("got\n%s\nwant it to end\n%s", text, want)
	}
	rep, err := check.Check(p)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(rep.Versions, []int{2, 2}) || p.Minibatches() != 3 {
		t.Errorf("versions %v of %d minibatches, want 2 on each of 3", rep.Versions, p.Minibatches())
	}
	back, err := schedule.ParseText(strings.NewReader(p.Text()))
	if err != nil || back.Text() != p.Text() {
		t.Errorf("the text does not come back: %v", err)
	}
}

// TestValidationsAreChecked: a validation that is missing, too early, too late or doubled is refused.
func TestValidationsAreChecked(t *testing.T) {
	for _, c := range []struct {
		what, why string
		spoil     func(*schedule.Program)
	}{
		{"missing at the end", "1PV2 is there 0 times", func(p *schedule.Program) { p.Epilogue[1] = nil }},
		{"missing", "1PV0 must come before it", func(p *schedule.Program) {
			p.Body[1] = remove(p.Body[1],
				schedule.PV)
		}},
		{"behind a gradient", "taken back is made again from the gradients", func(p *schedule.Program) {
			p.Body[1] = append(remove(p.Body[1], schedule.PV), schedule.Instruction{Stage: 1, Kind: schedule.PV})
		}},
		{"twice", "it stands in the list twice", func(p *schedule.Program) {
			p.Epilogue[0] = append(p.Epilogue[0],
				p.Epilogue[0][0])
		}},
		{"before its update", "its update 0U0 must come before it", func(p *schedule.Program) {
			p.Prologue[0] = slices.Insert(p.Prologue[0], 0, schedule.Instruction{Kind: schedule.PV})
		}},
		{"where updates wait", "are not validated later", func(p *schedule.Program) { p.PostValidate = false }},
		{"without a norm", "with a gradient norm", func(p *schedule.Program) { p.Clip = false }},
	} {
		p := validatedLater(t, "1f1b", schedule.Settings{Placement: schedule.Replicated(2, 1), MicroBatches: 3,
			Repeat: 3})
		c.spoil(p)
		if _, err := check.Check(p); err == nil || !strings.Contains(err.Error(), c.why) {
			t.Errorf("%s: got %v, want it to say %q", c.what, err, c.why)
		}
	}
}

func remove(list schedule.List, k schedule.Kind) schedule.List {
	return slices.DeleteFunc(slices.Clone(list), func(in schedule.Instruction) bool { return in.Kind == k })
}

// TestEveryOrderCanBeValidatedLater: every family's Programs can be validated later, also with chunks, two directions,
// replicas and ties.
func TestEveryOrderCanBeValidatedLater(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		workers := rapid.IntRange(1, 5).Draw(t, "workers")
		f := rapid.SampledFrom(family.All()).Draw(t, "family")
		s := schedule.Settings{Placement: f.Placement(workers, 2), MicroBatches: rapid.IntRange(1, 9).Draw(t, "m"),
			Repeat: rapid.IntRange(1, 4).Draw(t, "repeat")}
		p, err := family.Generate(f.Name, s)
		if err != nil || p.Weights != schedule.Sync {
			return
		}
		o := lower.Options{Clip: true, PostValidate: true}
		if p.Stages > 1 && rapid.Bool().Draw(t, "tied") {
			o.Tied = [][]int{{0, p.Stages - 1}}
		}
		q, err := lower.Lower(p, o)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := check.Check(q); err != nil {
			t.Fatalf("%v\n%s", err, q.Text())
		}
		if q.Minibatches() != s.Repeat {
			t.Fatalf("%d minibatches, want %d", q.Minibatches(), s.Repeat)
		}
	})
}

// TestMessagesMeet: a message sent before a drain must be received before that drain. A message received before a
// worker's validation must be sent before the sender's validation.
func TestMessagesMeet(t *testing.T) {
	drained, err := programs.Evaluation(schedule.Replicated(2, 1), 2*programs.EvaluationWindow)
	if err != nil {
		t.Fatal(err)
	}
	list := drained.Body[1] // ... 1RF3 1EV3 DR1 1RF4; the lines below move DR1 in front of 1RF3
	at := slices.IndexFunc(list, func(in schedule.Instruction) bool { return in.Kind == schedule.DR && in.Micro == 1 })
	list[at-2], list[at-1], list[at] = list[at], list[at-2], list[at-1]
	if _, err := check.Check(drained); err == nil || !strings.Contains(err.Error(),
		"it takes 0SF3, which worker 0 sends behind 1 drains, and stands behind 2") {
		t.Errorf("a message across a drain: %v", err)
	}

	p := validatedLater(t, "1f1b", schedule.Settings{Placement: schedule.Replicated(2, 1), MicroBatches: 3, Repeat: 3})
	list = p.Body[0] // 0F3 0SF3 0F4 0SF4 0PV0; the lines below move 0PV0 to the front
	at = slices.IndexFunc(list, func(in schedule.Instruction) bool { return in.Kind == schedule.PV })
	p.Body[0] = slices.Insert(slices.Delete(slices.Clone(list), at, at+1), 0, list[at])
	if _, err := check.Check(p); err == nil || !strings.Contains(err.Error(),
		"it takes 0SF3, which worker 0 sends behind its validation of minibatch 0, and stands in front of this "+
			"worker's") {
		t.Errorf("a message that a refusal holds back: %v", err)
	}
}
