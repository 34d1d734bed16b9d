package family

import (
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/check"
	"github.com/millrace-ml/millrace/schedule/lower"
	"github.com/millrace-ml/millrace/schedule/scheduletest"
)

func elastic(t testing.TB, placement [][]int, n, m, iterations int, warmup []int) *schedule.Program {
	t.Helper()
	p, err := Generate("elastic", schedule.Settings{Placement: placement, MicroBatches: m, Repeat: iterations,
		Elastic: plan.NewElastic(n), Warmup: warmup})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestElasticByHand: two pipelines of one micro-batch on two stages; a backward takes twice as long as a forward. In
// the cycle the second stage has no gap: six of its six slots are busy. On the second stage, pipeline 0 is one
// iteration ahead of pipeline 1, never two.
func TestElasticByHand(t *testing.T) {
	p := elastic(t, schedule.Replicated(2, 1), 2, 1, 10, nil)
	var got strings.Builder
	for _, part := range []schedule.Part{p.Prologue, p.Body, p.Epilogue} {
		for _, list := range part {
			for _, in := range list {
				got.WriteString(in.String() + " ")
			}
			got.WriteString("\n")
		}
	}
	const want = `0F0 p1/0F0 0B0 0U0 0F1 p1/0B0 p1/0U0 p2/0U0 
1F0 1B0 p1/1F0 p1/1B0 1U0 1F1 1B1 p1/1U0 p2/1U0 
p1/0F1 0B1 0U1 0F2 p1/0B1 p1/0U1 p2/0U1 
p1/1F1 p1/1B1 1U1 1F2 1B2 p1/1U1 p2/1U1 
p1/0F1 0B1 0U1 p1/0B1 p1/0U1 p2/0U1 
p1/1F1 p1/1B1 1U1 p1/1U1 p2/1U1 
`
	if got.String() != want || p.Repeat != 8 || p.Period != 1 {
		t.Errorf("8 repetitions of\n%sgot %d of\n%s", want, p.Repeat, got.String())
	}
}

// TestElasticOfOne: with one pipeline, elastic averaging is 1F1B with its updates. There is no reference, and no
// iteration begins before the previous one has ended.
func TestElasticOfOne(t *testing.T) {
	p := elastic(t, schedule.Replicated(3, 1), 1, 5, 4, nil)
	plain, err := Generate("1f1b", schedule.Settings{Placement: schedule.Replicated(3, 1), MicroBatches: 5, Repeat: 4})
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Placement) != 1 || p.Prologue != nil || p.Epilogue != nil || p.Repeat != 4 {
		t.Errorf("%s", p.Text())
	}
	a, err := lower.Lower(p, lower.Options{Clip: true})
	if err != nil {
		t.Fatal(err)
	}
	b, err := lower.Lower(plain, lower.Options{Clip: true})
	if err != nil {
		t.Fatal(err)
	}
	if !samePart(a.Body, b.Body) {
		t.Errorf("got\n%s\nwant\n%s", a.Text(), b.Text())
	}
}

func TestElasticRefusals(t *testing.T) {
	with := func(n int, alpha float64, order plan.AveragingOrder) schedule.Settings {
		return schedule.Settings{Placement: schedule.Replicated(2, 1), MicroBatches: 4,
			Elastic: &plan.Elastic{Pipelines: n, Alpha: alpha, Order: order}}
	}
	replicas := schedule.Settings{Placement: [][]int{{0, 1, 2}}, MicroBatches: 2}
	for _, c := range []struct {
		family string
		s      schedule.Settings
		want   string
	}{
		{"elastic", with(0, 0.5, plan.DiluteFirst), "0 pipelines; elastic averaging has 1 to 62"},
		{"elastic", with(63, 0.5, plan.DiluteFirst), "63 pipelines"},
		{"elastic", with(2, 1.5, plan.DiluteFirst), "alpha 1.5"},
		{"elastic", with(2, -0.1, plan.UpdateFirst), "alpha -0.1"},
		{"elastic", with(2, math.NaN(), plan.DiluteFirst), "alpha NaN"},
		{"elastic", with(2, 0.5, "other"), `averaging order "other"`},
		{"1f1b", with(2, 0.5, plan.DiluteFirst), "that is for schedule elastic"},
		{"elastic", replicas, "2 micro-batches for 3 replicas of stage 0"},
		{"elastic", schedule.Settings{Placement: schedule.Replicated(2, 1), MicroBatches: 4, Weights: schedule.Stash},
			`weight policy "stash"`},
	} {
		if _, err := Generate(c.family, c.s); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want it to say %q", c.family, err, c.want)
		}
	}
}

// TestElasticCorruptions: Check refuses changed lists and settings with these errors.
func TestElasticCorruptions(t *testing.T) {
	for _, c := range []struct {
		why    string
		change func(*schedule.Program)
		want   string
	}{
		{"the reference is updated too soon", func(p *schedule.Program) { swap(p.Body[0], "p1/0U0", "p2/0U0") },
			"p1/0U0 must come before it"},
		{"no update of the reference", func(p *schedule.Program) { drop(p.Body, 1, "p2/1U0") },
			"it would see an older reference"},
		{"an update of a pipeline is left out", func(p *schedule.Program) { drop(p.Body, 0, "0U0") },
			"0U0 must come before it"},
		{"an update before its gradient", func(p *schedule.Program) { swap(p.Body[1], "1B1", "1U0") }, "not there yet"},
		{"the reference trains", func(p *schedule.Program) { p.Body[0][0].Pipeline = 2 }, "which does not train"},
		{"one pipeline less", func(p *schedule.Program) { p.Placement = p.Placement[:2] }, "it places 2 pipelines"},
		{"the reference on other workers", func(p *schedule.Program) { p.Placement[2] = [][]int{{1}, {0}} },
			"lies on other workers"},
		{"no settings", func(p *schedule.Program) { p.Elastic = nil }, "without its settings"},
		{"another policy", func(p *schedule.Program) { p.Weights = schedule.Sync }, "they belong to"},
	} {
		p := elastic(t, schedule.Replicated(2, 1), 2, 2, 1, nil)
		p.Repeat = 3
		if _, err := check.Check(p); err != nil {
			t.Fatal(err)
		}
		p.Placement = slices.Clone(p.Placement)
		c.change(p)
		if _, err := check.Check(p); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want it to say %q", c.why, err, c.want)
		}
	}
}

func find(list schedule.List, text string) int {
	return slices.IndexFunc(list, func(in schedule.Instruction) bool { return in.String() == text })
}

func swap(list schedule.List, a, b string) {
	i, j := find(list, a), find(list, b)
	list[i], list[j] = list[j], list[i]
}

func drop(part schedule.Part, worker int, text string) {
	i := find(part[worker], text)
	part[worker] = slices.Delete(part[worker], i, i+1)
}

func TestElasticPrograms(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		stages := rapid.IntRange(1, 5).Draw(t, "stages")
		placement, replication := schedule.Replicated(stages, 1), schedule.RoundRobin
		if rapid.Bool().Draw(t, "replicated") {
			placement, replication = scheduletest.Replicas(scheduletest.Drawn(t), stages)
		}
		m := rapid.IntRange(1, 7).Draw(t, "micro-batches")
		for _, on := range placement {
			m = max(m, len(on))
		}
		n := rapid.IntRange(1, 5).Draw(t, "pipelines")
		iterations := rapid.IntRange(1, 30).Draw(t, "iterations")
		s := schedule.Settings{Placement: placement, Replication: replication, MicroBatches: m, Repeat: iterations,
			Elastic: plan.NewElastic(n)}
		if rapid.Bool().Draw(t, "deep") {
			s.Warmup = scheduletest.Depths(scheduletest.Drawn(t), stages, m)
		}
		p, err := Generate("elastic", s)
		if err != nil {
			if strings.Contains(err.Error(), "unequal replicas") {
				t.Skip("depths that plain 1F1B refuses too")
			}
			t.Fatal(err)
		}
		if p.Minibatches() != iterations {
			t.Fatalf("%d iterations were asked for; the program has %d", iterations, p.Minibatches())
		}
		o := lower.Options{Clip: rapid.Bool().Draw(t, "clip")}
		if stages > 1 && rapid.Bool().Draw(t, "tied") {
			o.Tied = [][]int{{0, stages - 1}}
		}
		lowered, err := lower.Lower(p, o)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := check.Check(lowered); err != nil {
			t.Fatalf("%v\n%s", err, lowered.Text())
		}
		whole := *lowered // it is played to the end, without the shortcut for repeated bodies
		if _, err := scheduletest.Draw(&whole, scheduletest.UnitSlots); err != nil {
			t.Fatal(err)
		}
		sees(t, lowered)
		again, err := schedule.ParseText(strings.NewReader(lowered.Text()))
		if err != nil || again.Text() != lowered.Text() {
			t.Fatalf("its text reads back otherwise: %v", err)
		}
	})
}

// sees walks every list and counts the updates before each update. Iteration t's update of a pipeline must come after t
// updates of the reference. The reference's update t must come after t+1 updates of every pipeline.
func sees(t *rapid.T, p *schedule.Program) {
	n := p.Elastic.Pipelines
	for w := range p.Workers {
		updates := make([]int, n+1)
		p.Walk(w, func(in schedule.Instruction) bool {
			if in.Kind != schedule.U {
				return true
			}
			if int(in.Micro) != updates[in.Pipeline] {
				t.Fatalf("worker %d: %v is its pipeline's update number %d", w, in, updates[in.Pipeline])
			}
			updates[in.Pipeline]++
			if int(in.Pipeline) < n && n > 1 && updates[n] != int(in.Micro) {
				t.Fatalf("worker %d: %v sees the reference after %d updates", w, in, updates[n])
			}
			if int(in.Pipeline) == n && slices.Min(updates[:n]) != int(in.Micro)+1 {
				t.Fatalf("worker %d: %v comes behind %v updates", w, in, updates[:n])
			}
			return true
		})
		if n == 1 {
			updates = updates[:1]
		}
		for _, u := range updates {
			if u != p.Minibatches() {
				t.Fatalf("worker %d updates %v times in %d iterations", w, updates, p.Minibatches())
			}
		}
	}
}
