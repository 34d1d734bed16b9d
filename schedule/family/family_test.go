package family

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/check"
	"github.com/millrace-ml/millrace/schedule/lower"
	"github.com/millrace-ml/millrace/schedule/scheduletest"
)

// TestNamedDepths checks the named depths of DAPPLE §5.3 and BaPipe Table II for four stages, before they are limited
// to the number of micro-batches.
func TestNamedDepths(t *testing.T) {
	for name, want := range map[string][]int{
		"gpipe": {9, 9, 9, 9}, "p_a": {4, 3, 2, 1}, "sno": {4, 3, 2, 1}, "P_B": {7, 5, 3, 1}, "so": {8, 6, 4, 2},
	} {
		f, err := Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		if got := f.Warmup(4, 9); !slices.Equal(got, want) {
			t.Errorf("%s: depths %v, want %v", name, got, want)
		}
	}
}

func TestEveryFamilyIsDescribed(t *testing.T) {
	for _, f := range All() {
		if f.Doc == "" || f.Admits == nil || f.Generate == nil {
			t.Errorf("family %s lacks a part", f.Name)
		}
	}
}

func TestFromPlan(t *testing.T) {
	name, s := schedule.FromPlan(&plan.Plan{
		Schedule: "1f1b", Replication: "split", Weights: "sync", MicroBatch: 4, MicroBatches: 6,
		Stages: []plan.Stage{
			{Devices: []int{7, 2}, Warmup: 3, Recompute: plan.KeepInput},
			{Devices: []int{4}, Warmup: 1},
		},
	})
	want := schedule.Settings{
		Placement: [][]int{{2, 0}, {1}}, MicroBatches: 6, Warmup: []int{3, 1},
		Recompute: []plan.Recompute{plan.KeepInput, plan.KeepAll}, Replication: schedule.Split,
		Weights: schedule.Sync,
	}
	if d := cmp.Diff(want, s); d != "" || name != "1f1b" {
		t.Error(name, d)
	}
	if _, s = schedule.FromPlan(&plan.Plan{Stages: []plan.Stage{{Devices: []int{0}}}}); s.Warmup != nil {
		t.Errorf("a plan without depths gave %v", s.Warmup)
	}
	some := &plan.Plan{Schedule: "1f1b", Replication: "split", MicroBatches: 4, Stages: []plan.Stage{
		{Devices: []int{0}, Warmup: 3}, {Devices: []int{1}}}}
	if name, s = schedule.FromPlan(some); s.Warmup == nil {
		t.Error("a depth that a plan gives is forgotten")
	}
	if _, err := Generate(name, s); err == nil || !strings.Contains(err.Error(), "K_1 is 0") {
		t.Errorf("a plan with a depth of one stage alone: %v", err)
	}
}

func TestSettingsRefused(t *testing.T) {
	for _, c := range []struct {
		family string
		s      schedule.Settings
		want   string
	}{
		{"1f1b", schedule.Settings{MicroBatches: 1}, "there are no stages"},
		{"1f1b", schedule.Settings{Placement: schedule.Replicated(2, 1)}, "0 micro-batches; give 1 to"},
		{"1f1b", schedule.Settings{Placement: [][]int{{0}, {}}, MicroBatches: 1}, "stage 1 is on no worker"},
		{"1f1b", schedule.Settings{Placement: [][]int{{0}, {2}}, MicroBatches: 1}, "worker 1 has no stage"},
		{"1f1b", schedule.Settings{Placement: [][]int{{0}, {0}}, MicroBatches: 1}, "worker 0 holds stages 0 and 1"},
		{"1f1b", schedule.Settings{Placement: schedule.Replicated(2, 1), MicroBatches: 4, Warmup: []int{0, 1}},
			"K_0 is 0"},
		{"1f1b", schedule.Settings{Placement: schedule.Replicated(2, 1), MicroBatches: 4, Warmup: []int{1}},
			"1 warm-up depths for 2 stages"},
		{"1f1b", schedule.Settings{Placement: schedule.Replicated(2, 1), MicroBatches: 4, Weights: "stash"},
			"weight policy \"stash\""},
		{"dp", schedule.Settings{Placement: schedule.Replicated(2, 1), MicroBatches: 4},
			"2 stages; data parallelism has one"},
		{"single", schedule.Settings{Placement: [][]int{{0, 1}}, MicroBatches: 4}, "it has one, on one worker"},
		{"1f1b", schedule.Settings{Placement: schedule.Replicated(2, 1), MicroBatches: 4, Repeat: -1}, "-1 steps"},
		{"1f1b", schedule.Settings{Placement: schedule.Replicated(2, 1), MicroBatches: 4, Repeat: 1 << 26},
			"67108864 steps of 4 micro-batches"},
		{"1f1b", schedule.Settings{Placement: schedule.Replicated(2, 1), MicroBatches: 4, Replication: "half"},
			"replication \"half\""},
		{"1f1b", schedule.Settings{Placement: [][]int{{0}, {math.MaxInt}}, MicroBatches: 4}, "stage 1 is on worker 9"},
		{"1f1b", schedule.Settings{Placement: [][]int{{0}, {-1}}, MicroBatches: 4}, "stage 1 is on worker -1"},
		{"1f1b-rr", schedule.Settings{Placement: schedule.Replicated(2, 1), MicroBatches: 1,
			Warmup: []int{math.MaxInt, 1}}, "K_0 is 9223372036854775807"},
		{"1f1b-rr", schedule.Settings{Placement: [][]int{{0, 1, 2}, {3, 4, 5}}, MicroBatches: 2},
			"2 micro-batches for 3 replicas of stage 0"},
		{"fbp-as", schedule.Settings{Placement: schedule.Replicated(2, 1), MicroBatches: 3, Warmup: []int{2, 2}},
			"depths must fall from stage to stage"},
		// Stage 0 runs micro-batches 0 and 1 first; replica 0 of stage 1 needs micro-batches 0 and 2 before a backward.
		{"1f1b", schedule.Settings{Placement: [][]int{{0}, {1, 2}}, MicroBatches: 4, Warmup: []int{2, 2}},
			"unequal replicas"},
	} {
		if _, err := Generate(c.family, c.s); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want it to say %q", err, c.want)
		}
	}
}

// TestProperties: each family's General, Whole, Halves, Undivided and Deepest match the Programs that it generates.
func TestProperties(t *testing.T) {
	for _, f := range All() {
		if f.General != "" {
			if _, err := Lookup(f.General); err != nil {
				t.Errorf("%s is a choice of %s: %v", f.Name, f.General, err)
			}
		}
		const workers, micros = 4, 8
		s := schedule.Settings{Placement: f.Placement(workers, 2), MicroBatches: micros, Repeat: 8}
		if _, err := Generate(f.Name, s); (err != nil) != f.Whole {
			t.Errorf("%s with several micro-batches: %v; it says whole is %v", f.Name, err, f.Whole)
		}
		if f.Whole {
			s.MicroBatches = 1
		}
		p, err := Generate(f.Name, s)
		if err != nil {
			t.Fatal(err)
		}
		halves := slices.ContainsFunc(slices.Concat(p.Body...),
			func(in schedule.Instruction) bool { return in.Kind == schedule.I })
		if halves != f.Halves {
			t.Errorf("%s splits backwards: %v, it says %v", f.Name, halves, f.Halves)
		}
		if alone := len(s.Placement) == 1; alone != f.Undivided {
			t.Errorf("%s has %d stages on %d workers; it says undivided is %v", f.Name, len(s.Placement), workers,
				f.Undivided)
		}
		if deepest := f.Warmup != nil && f.Warmup(workers, 100)[workers-1] == 100; deepest != f.Deepest {
			t.Errorf("the last stage of %s runs all forwards first: %v, it says %v", f.Name, deepest, f.Deepest)
		}
	}
}

// TestOlderVersions: on a straight pipeline, a stream keeps as many older versions as its policy declares.
func TestOlderVersions(t *testing.T) {
	for _, w := range []schedule.Policy{schedule.Stash, schedule.Latest} {
		p, err := Generate("1f1b-rr", schedule.Settings{Placement: schedule.Replicated(4, 1), MicroBatches: 1,
			Repeat: 20, Weights: w})
		if err == nil {
			p, err = lower.Lower(p, lower.Options{})
		}
		if err != nil {
			t.Fatal(err)
		}
		for worker := range p.Workers {
			kept, most := 0, 0
			change := p.Copies(worker)
			p.Walk(worker, func(in schedule.Instruction) bool {
				kept += change[in]
				most = max(most, kept)
				return true
			})
			if got := w.OlderVersions(4 - worker); got != most {
				t.Errorf("%s keeps %d older versions on stage %d; it says %d", w, most, worker, got)
			}
		}
	}
	for w, want := range map[schedule.Policy]int{schedule.Sync: 0, schedule.Elastic: 0, schedule.DoubleBuffered: 1,
		schedule.Vertical: 2} {
		if got := w.OlderVersions(3); got != want || w.OlderVersions(1) != 0 || w.OlderVersions(0) != 0 {
			t.Errorf("%s keeps %d older versions for 3 minibatches in flight, and %d for none", w, got,
				w.OlderVersions(0))
		}
	}
}

// TestWhatIsWrittenPassesCheck: for random settings, a generated and lowered Program runs to its end and has the
// requested number of minibatches.
func TestWhatIsWrittenPassesCheck(t *testing.T) {
	families, tried := All(), 0
	for seed := range uint64(6000) {
		g := rand.New(rand.NewPCG(seed, 23))
		f, w := families[g.IntN(len(families))], 1+g.IntN(5)
		placements := [][][]int{f.Placement(w, 2), f.Placement(w, 3), schedule.Replicated(w, 2), schedule.Replicated(w, 3),
			{{0, 1}, {2}}, {{0}, {1, 2}}, {{0, 1}, {2, 3, 4}}, {{0, 1, 2}, {3, 4}, {5}}}
		s := schedule.Settings{Placement: placements[g.IntN(len(placements))], MicroBatches: 1 + g.IntN(8),
			Repeat: 1 + g.IntN(16), Weights: f.policies()[g.IntN(len(f.policies()))],
			Replication: []schedule.Replication{schedule.Split, schedule.RoundRobin}[g.IntN(2)]}
		if s.Weights.Averages() {
			s.Elastic = plan.NewElastic(1 + g.IntN(3))
		}
		if g.IntN(2) == 0 {
			s.Warmup = scheduletest.Depths(g.IntN, len(s.Placement), s.MicroBatches)
		}
		p, err := Generate(f.Name, s)
		if err != nil {
			continue // the family does not take these settings
		}
		o := lower.Options{Clip: g.IntN(2) == 0, PostValidate: g.IntN(2) == 0}
		if len(s.Placement) > 1 && g.IntN(3) == 0 {
			o.Tied = [][]int{{0, len(s.Placement) - 1}}
		}
		q, err := lower.Lower(p, o)
		if err != nil {
			continue // lowering does not take these options
		}
		if tried++; q.Minibatches() != s.Repeat {
			t.Errorf("%s %+v: %d minibatches", f.Name, s, q.Minibatches())
		}
		if _, err := check.Check(q); err != nil {
			t.Errorf("%s %+v %+v: %v", f.Name, s, o, err)
		}
	}
	if t.Log(tried); tried < 2000 {
		t.Errorf("%d programs were tried", tried)
	}
}

// Minibatches are divided among the fewest Programs that can have them together.
func TestDivided(t *testing.T) {
	for least := range 6 {
		for each := range 4 {
			f := Family{Least: least, Each: each}
			longest := f.Longest(9)
			if !f.Trains(longest) || longest > max(9, least) || f.Trains(longest+1) && longest < 9 {
				t.Fatalf("%d, %d: the longest is %d", least, each, longest)
			}
			fewest := map[int]int{0: 0} // by minibatches, the fewest Programs
			for n := 1; n < 60; n++ {
				for one := 1; one <= min(n, longest); one++ {
					if rest, ok := fewest[n-one]; ok && f.Trains(one) && (fewest[n] == 0 || rest+1 < fewest[n]) {
						fewest[n] = rest + 1
					}
				}
				first, programs := f.Divided(n, longest)
				if programs != fewest[n] || programs > 0 && (!f.Trains(first) || fewest[n-first] != programs-1) {
					t.Errorf("%d, %d: %d minibatches: first %d of %d; want %d", least, each, n, first, programs, fewest[n])
				}
			}
		}
	}
}
