package lower_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/check"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/schedule/lower"
)

// besideOf returns a Program of elastic averaging whose reference is updated beside the pipelines.
func besideOf(t testing.TB, stages, micros, pipelines, steps int) *schedule.Program {
	t.Helper()
	e := plan.NewElastic(pipelines)
	e.Reference = plan.Beside
	p, err := family.Generate("elastic", schedule.Settings{Placement: schedule.Replicated(stages, 1), MicroBatches: micros,
		Repeat: steps, Weights: schedule.Elastic, Elastic: e})
	if err == nil {
		p, err = lower.Lower(p, lower.Options{})
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// seen returns, for two pipelines on one stage, the number of reference updates that each update saw.
func seen(versions ...int) (all []schedule.Seen) {
	for i, v := range versions {
		all = append(all, schedule.Seen{Pipeline: i % 2, Minibatch: i / 2, Version: v})
	}
	return all
}

// TestBeside compares two Programs with handwritten lists. One has three iterations of two pipelines on one stage. The
// other replays a recorded order of these iterations. Both are the same after they are written as text and read.
func TestBeside(t *testing.T) {
	p := besideOf(t, 1, 1, 2, 3)
	recorded, err := lower.Averaged(p, seen(0, 0, 0, 1, 1, 2))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		p    *schedule.Program
		want string
	}{
		{p, "body\n0: 0F2 p1/0F2 0B2 0U2 p1/0B2 p1/0U2 p2/0UR2\n"},
		{recorded, "elastic 2 0.5 dilute_first beside\nin_order true\nprologue\n" +
			"0: 0F0 p1/0F0 0B0 0U0 p1/0B0 p1/0U0 0F1 p1/0F1 0B1 0U1 p1/0B1 p2/0U0 p1/0U1 0F2 p1/0F2 0B2 0U2 p1/0B2 p2/0U1 " +
			"p1/0U2 p2/0U2\n"},
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

// TestOrdersBesideThatNoRunHasAreRefused: for two iterations of two pipelines, recorded orders that no run can have are
// refused.
func TestOrdersBesideThatNoRunHasAreRefused(t *testing.T) {
	p := besideOf(t, 1, 1, 2, 2)
	for want, of := range map[string][]schedule.Seen{
		"the program has 4: 2 minibatches of 2 pipelines on 1 stages":        seen(0, 0, 1),
		"the update of pipeline 0 on stage 0 for minibatch 0 is there twice": append(seen(0, 0, 0), seen(0)...),
		"0U0 saw the reference behind 1 updates; there it has had 0 to 0":    seen(1, 1, 1, 1),
		"p1/0U1 saw the reference behind 0 updates; there it has had 1 to 1": seen(0, 0, 1, 0),
		"it does not say which reference 0U0 saw": {{Minibatch: 7}, {Pipeline: 1}, {Minibatch: 1},
			{Pipeline: 1, Minibatch: 1}},
	} {
		if _, err := lower.Averaged(p, of); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want it to say %q", err, want)
		}
	}
	inline := *p
	inline.Elastic = plan.NewElastic(2)
	if _, err := lower.Averaged(&inline, seen(0, 0, 1, 1)); err == nil ||
		!strings.Contains(err.Error(), "no reference beside its pipelines") {
		t.Error(err)
	}
}

// TestProgramsBesideAreChecked: a missing, misplaced or wrong instruction is refused.
func TestProgramsBesideAreChecked(t *testing.T) {
	replace := func(list schedule.List, at int, in schedule.Instruction) schedule.List {
		out := append(schedule.List{}, list...)
		out[at] = in
		return out
	}
	ur := schedule.Instruction{Pipeline: 2, Kind: schedule.UR}
	for _, c := range []struct {
		why   string
		spoil func(*schedule.Program)
	}{
		{"it applies the steps of all pipelines: p1/0U0 must come before it", func(p *schedule.Program) {
			l := p.Body[0]
			p.Body[0] = append(append(append(schedule.List{}, l[:5]...), l[6]), l[5])
		}},
		{"p2/0U0 is there 0 times", func(p *schedule.Program) { p.Body[0] = p.Body[0][:6] }},
		{"its update is p2/0UR0", func(p *schedule.Program) { p.Body[0] = replace(p.Body[0], 6, ur.As(schedule.U)) }},
		{"which this program has not", func(p *schedule.Program) { p.InOrder = true }},
		{"which this program has not", func(p *schedule.Program) { p.Elastic.Reference = plan.Inline }},
		{"which this program has not", func(p *schedule.Program) {
			p.Body[0] = replace(p.Body[0], 2, schedule.Instruction{Kind: schedule.UR})
		}},
		{"on 2 workers, each of which would see another reference", func(p *schedule.Program) {
			p.Workers = 2
			p.Placement = [][][]int{{{0, 1}}, {{0, 1}}, {{0, 1}}}
		}},
		{"stages [0 1] share a parameter, of which each would see another reference", func(p *schedule.Program) {
			*p = *besideOf(t, 2, 2, 2, 2)
			p.Tied = [][]int{{0, 1}}
		}},
		{`reference "aside"; it is "inline" or "beside"`, func(p *schedule.Program) { p.Elastic.Reference = "aside" }},
	} {
		p := besideOf(t, 1, 1, 2, 1)
		c.spoil(p)
		if _, err := check.Check(p); err == nil || !strings.Contains(err.Error(), c.why) {
			t.Errorf("got %v, want it to say %q", err, c.why)
		}
	}
}

// TestAnyOrderBesideIsAProgram: each update sees a random number of the reference updates issued before it. The
// recorded order becomes a Program that passes Check and whose updates see the same numbers.
func TestAnyOrderBesideIsAProgram(t *testing.T) {
	for seed := range uint64(200) {
		g := rand.New(rand.NewPCG(seed, 91))
		p := besideOf(t, 1+g.IntN(4), 1+g.IntN(4), 2+g.IntN(3), 1+g.IntN(12))
		var all []schedule.Seen
		for w := range p.Workers {
			issued, made := 0, 0
			p.Walk(w, func(in schedule.Instruction) bool {
				switch in.Kind {
				case schedule.UR:
					issued++
				case schedule.U:
					made += g.IntN(issued - made + 1)
					all = append(all, schedule.Seen{Pipeline: int(in.Pipeline), Stage: int(in.Stage), Minibatch: int(in.Micro),
						Version: made})
				}
				return true
			})
		}
		q, err := lower.Averaged(p, all)
		if err == nil {
			_, err = check.Check(q)
		}
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		at := 0
		for w := range q.Workers {
			made := 0
			q.Walk(w, func(in schedule.Instruction) bool {
				if q.IsReference(int(in.Pipeline)) && in.Kind == schedule.U {
					made++
				} else if in.Kind == schedule.U {
					if all[at].Version != made {
						t.Fatalf("seed %d: %v sees %d updates, and saw %d", seed, in, made, all[at].Version)
					}
					at++
				}
				return true
			})
		}
	}
}
