package lower_test

import (
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/check"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/schedule/lower"
)

func servedBy(t testing.TB, trainers, steps int) *schedule.Program {
	t.Helper()
	p, err := family.Generate("asp", schedule.Settings{Placement: schedule.Replicated(1, trainers+1), MicroBatches: 1,
		Repeat: steps})
	if err == nil {
		p, err = lower.Lower(p, lower.Options{})
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func order(pairs ...int) (all []schedule.Applied) {
	for i := 0; i < len(pairs); i += 2 {
		all = append(all, schedule.Applied{Minibatch: pairs[i], Version: pairs[i+1]})
	}
	return all
}

// TestServed compares two Programs with handwritten lists. One has five minibatches of two trainers. The other replays
// a recorded order of these minibatches. Both are the same after they are written as text and read.
func TestServed(t *testing.T) {
	p := servedBy(t, 2, 5)
	recorded, err := lower.Recorded(p, order(1, 0, 3, 1, 0, 0, 2, 3, 4, 4))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		p    *schedule.Program
		want string
	}{
		{p, `place p0/0: 0 1
place p1/0: 2
body
0: 0RW0 0F0 0B0 0SG0
1: 0RW1@r1 0F1@r1 0B1@r1 0SG1@r1
2: p1/0SW0 p1/0RG0 p1/0U0 p1/0SW1 p1/0RG1 p1/0U1
epilogue
0: 0RW0 0F0 0B0 0SG0
1:
2: p1/0SW0 p1/0RG0 p1/0U0
`},
		{recorded, `in_order true
prologue
0: 0RW0 0F0 0B0 0SG0 0RW2 0F2 0B2 0SG2 0RW4 0F4 0B4 0SG4
1: 0RW1@r1 0F1@r1 0B1@r1 0SG1@r1 0RW3@r1 0F3@r1 0B3@r1 0SG3@r1
2: p1/0SW0 p1/0SW1 p1/0RG1 p1/0U1 p1/0SW3 p1/0RG3 p1/0U3 p1/0RG0 p1/0U0 p1/0SW2 p1/0RG2 p1/0U2 p1/0SW4 p1/0RG4 p1/0U4
`},
	} {
		text := c.p.Text()
		if !strings.HasSuffix(text, c.want) {
			t.Errorf("got\n%s\nwant it to end\n%s", text, c.want)
		}
		if _, err := check.Check(c.p); err != nil {
			t.Error(err)
		}
		back, err := schedule.ParseText(strings.NewReader(text))
		if err != nil || back.Text() != text {
			t.Errorf("the text does not come back: %v", err)
		}
	}
}

// TestOrdersThatNoRunHasAreRefused: for four minibatches of two trainers, recorded orders that no run can have are
// refused.
func TestOrdersThatNoRunHasAreRefused(t *testing.T) {
	p := servedBy(t, 2, 4)
	for want, of := range map[string][]schedule.Applied{
		"the program has 4 minibatches":                                             order(0, 0, 1, 0),
		"update 1 is of minibatch 4; there are 4":                                   order(0, 0, 4, 0, 1, 0, 3, 0),
		"update 0 is of minibatch 2; the next one of worker 0 is 0":                 order(2, 0, 0, 0, 1, 0, 3, 0),
		"update 1, of minibatch 2, goes by weights of 0 updates; they are 1, with":  order(0, 0, 2, 0, 1, 0, 3, 3),
		"update 1, of minibatch 1, goes by weights of 2 updates; they are 0, with ": order(0, 0, 1, 2, 2, 2, 3, 2),
	} {
		if _, err := lower.Recorded(p, of); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want it to say %q", err, want)
		}
	}
	flushed, err := family.Generate("dp", schedule.Settings{Placement: schedule.Replicated(1, 2), MicroBatches: 2})
	if err == nil {
		flushed, err = lower.Lower(flushed, lower.Options{})
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lower.Recorded(flushed, nil); err == nil || !strings.Contains(err.Error(), "has weights sync") {
		t.Error(err)
	}
}

// TestServedProgramsAreChecked: a missing, misplaced or wrong instruction is refused.
func TestServedProgramsAreChecked(t *testing.T) {
	drop := func(list schedule.List, k schedule.Kind) schedule.List { return remove(list, k) }
	for _, c := range []struct {
		why   string
		spoil func(*schedule.Program)
	}{
		{"0RW0 must come before it", func(p *schedule.Program) { p.Body[0] = drop(p.Body[0], schedule.RW) }},
		{"0SG0 from worker 0 has not arrived", func(p *schedule.Program) { p.Body[0] = drop(p.Body[0], schedule.SG) }},
		{"p1/0RG0 must come before it", func(p *schedule.Program) { p.Body[2] = drop(p.Body[2], schedule.RG) }},
		{"p1/0SW0 must come before it", func(p *schedule.Program) { p.Body[2] = drop(p.Body[2], schedule.SW) }},
		{"it makes gradients and never updates", func(p *schedule.Program) {
			p.Body[2] = schedule.List{p.Body[2][0], p.Body[2][1], p.Body[2][3]}
		}},
		{"in hand", func(p *schedule.Program) {
			l := p.Body[2]
			p.Body[2] = schedule.List{l[0], l[3], l[1], l[4], l[2], l[5]}
		}},
		{"updates are where the weights are", func(p *schedule.Program) {
			p.Body[0] = append(p.Body[0], schedule.Instruction{Kind: schedule.U})
		}},
		{"pipeline 1 is the weights, which do not train", func(p *schedule.Program) {
			p.Body[2] = append(p.Body[2], schedule.Instruction{Pipeline: 1, Kind: schedule.F})
		}},
		{"this minibatch belongs to replica 1", func(p *schedule.Program) {
			p.Body[0] = append(p.Body[0], schedule.Instruction{Kind: schedule.SG, Micro: 1})
		}},
		{"worker 1 trains and holds the weights", func(p *schedule.Program) { p.Placement[1][0][0] = 1 }},
		{"it has two of one", func(p *schedule.Program) { p.Placement = p.Placement[:1] }},
		{"a minibatch is one micro-batch", func(p *schedule.Program) { p.MicroBatches = 4 }},
		{"they belong to \"asp\"", func(p *schedule.Program) { p.Weights = schedule.Stash }},
	} {
		p := servedBy(t, 2, 2)
		p.Staleness = new(1)
		p.Placement = [][][]int{{{0, 1}}, {{2}}}
		c.spoil(p)
		if _, err := check.Check(p); err == nil || !strings.Contains(err.Error(), c.why) {
			t.Errorf("got %v, want it to say %q", err, c.why)
		}
	}
}
