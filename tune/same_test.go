package tune

import (
	"slices"
	"testing"

	"github.com/millrace-ml/millrace/plan"
)

// TestAPlanIsNoRivalOfItself: of five kinds, three have the best plan, and two have one other plan. The best plan then
// has a single rival, which names both of its kinds.
func TestAPlanIsNoRivalOfItself(t *testing.T) {
	of := func(kind string, warmup int, planner, why string) Rival {
		stages := []plan.Stage{{Devices: []int{0}, Warmup: warmup}, {FirstLayer: 1, LastLayer: 2, Devices: []int{1}}}
		return Rival{Kind: kind, Why: why, Predicted: plan.Predicted{StepS: 1, MemoryBytes: []int64{1, 1}},
			Plan: &plan.Plan{Schedule: "1f1b", Stages: stages, MicroBatches: 4, MicroBatch: 8, Planner: planner}}
	}
	all := []Rival{of("straight pipeline", 2, "auto", ""), of("1f1b", 2, "auto", "as fast"),
		of("dapple", 2, "dapple", "as fast"), of("model parallel", 1, "auto", "waits"),
		of("replicated 1f1b", 1, "auto", "waits")}
	best := all[0].Plan
	if also := unite(all, best); !slices.Equal(also, []string{"straight pipeline", "dapple"}) {
		t.Errorf("the best plan is also of the kinds %q", also)
	}
	for i, want := range []string{"", "straight pipeline", "straight pipeline", "replicated 1f1b", ""} {
		if all[i].Same != want || want != "" && all[i].Why != "the same plan as "+want {
			t.Errorf("%s has the plan of %q, since it %q; want %q", all[i].Kind, all[i].Same, all[i].Why, want)
		}
	}
	const why = "waits; the same plan as model parallel"
	if kept := rivalsOf(best, all); len(kept) != 1 || kept[0].Kind != "replicated 1f1b" || kept[0].Why != why {
		t.Errorf("rivals %+v; want one, %q", kept, why)
	}
}
