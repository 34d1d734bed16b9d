package programs_test

import (
	"cmp"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/schedule/programs"
)

// TestBuild checks a Program by hand: two stages on devices 3 and 1, two micro-batches, layers 0 and 3 tied, two steps
// with clipping.
func TestBuild(t *testing.T) {
	p := &plan.Plan{
		Schedule: "1f1b", Weights: "sync", Replication: "split", MicroBatch: 1, MicroBatches: 2,
		Stages: []plan.Stage{{FirstLayer: 0, LastLayer: 1, Devices: []int{3}},
			{FirstLayer: 2, LastLayer: 3, Devices: []int{1}}},
	}
	got, err := programs.Build(p, [][]int{{0, 3}, {2, 3}}, true, 2)
	if err != nil {
		t.Fatal(err)
	}
	_, lists, _ := strings.Cut(got.Text(), "\nbody\n")
	want := "0: 1RF0 1F0 1B0 1SB0 1RF1 1F1 1B1 1SB1 1TG0 1GN0 1U0\n" +
		"1: 0F0 0SF0 0F1 0SF1 0RB0 0B0 0RB1 0B1 0TG0 0GN0 0U0\n"
	if lists != want {
		t.Errorf("got\n%swant\n%s", lists, want)
	}
	if got.Repeat != 2 || len(got.Tied) != 1 || !got.Clip || got.PostValidate {
		t.Errorf("%d steps, ties %v, clip %v, post-validation %v", got.Repeat, got.Tied, got.Clip, got.PostValidate)
	}
	p.PostValidate = true
	if later, err := programs.Build(p, nil, true, 2); err != nil || !later.PostValidate ||
		later.Settles() != schedule.PV {
		t.Errorf("updates are not validated later: %v", err)
	}
	p.Stages[1].Warmup, p.Stages[0].Warmup = 2, 1
	if _, err := programs.Build(p, nil, false, 1); err == nil ||
		!strings.Contains(err.Error(), "depths must not grow") {
		t.Errorf("depths that deadlock: %v", err)
	}
}

// TestAtLeast: a stream from outside, on two replicas and one more stage, has a prologue and an epilogue with four
// minibatches together, and a body of two. So it can have 4, 6, 8, ... steps.
func TestAtLeast(t *testing.T) {
	written, err := family.Generate("1f1b-rr", schedule.Settings{Placement: [][]int{{0, 1}, {2}}, MicroBatches: 1,
		Weights: schedule.Stash, Repeat: 8})
	if err != nil {
		t.Fatal(err)
	}
	outside := *written
	outside.Name = "from-outside"
	if err := family.RegisterProgram(&outside); err != nil {
		t.Fatal(err)
	}
	p := &plan.Plan{Schedule: outside.Name, Weights: "stash", Replication: "round_robin", MicroBatch: 1, MicroBatches: 1,
		Stages: []plan.Stage{{Devices: []int{0, 1}}, {FirstLayer: 1, LastLayer: 1, Devices: []int{2}}}}
	for steps, want := range map[int]int{1: 4, 4: 4, 5: 6, 6: 6, 9: 10} {
		got, err := programs.AtLeast(p, nil, false, steps)
		if err != nil || got.Minibatches() != want {
			t.Errorf("at least %d steps: %v, %v; want %d", steps, got, err, want)
		}
	}
	if _, err := programs.Build(p, nil, false, 5); err == nil || !strings.Contains(err.Error(),
		"5 minibatches in a row; this program trains 4, or more by a multiple of 2") {
		t.Errorf("5 steps: %v", err)
	}
	p.Schedule = "1f1b-rr"
	if got, err := programs.AtLeast(p, nil, false, 5); err != nil || got.Minibatches() != 5 {
		t.Errorf("the family itself: %v, %v", got, err)
	}
}

// A plan knows as well as its Program whether steps overlap.
func TestPlansKnowWhetherStepsOverlap(t *testing.T) {
	for _, policy := range append(schedule.Policies(), "") {
		for _, pipelines := range []int{1, 2} {
			pl := &plan.Plan{Weights: string(policy)}
			if policy.Averages() {
				pl.Elastic = &plan.Elastic{Pipelines: pipelines}
			}
			p := &schedule.Program{Weights: cmp.Or(policy, schedule.Sync), Elastic: pl.Elastic}
			if pl.Overlaps() != p.Overlaps() {
				t.Errorf("%q with %d pipelines: the plan says %v, the Program %v", policy, pipelines, pl.Overlaps(), p.Overlaps())
			}
		}
	}
}
