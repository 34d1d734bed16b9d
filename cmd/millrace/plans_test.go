package main

import (
	"path/filepath"
	"testing"

	"github.com/millrace-ml/millrace/cmd/internal/clitest"
	"github.com/millrace-ml/millrace/plan"
)

// planOf returns the plan that `plan` with these flags writes. Paths are those seen from this package.
func planOf(t *testing.T, flags string) *plan.Plan {
	t.Helper()
	p := &clitest.Program{Dir: ".", Cache: t.TempDir()}
	out := filepath.Join(t.TempDir(), "plan.json")
	if code, said := started(t, p, "plan -o "+out+" "+flags); code != 0 {
		t.Fatalf("plan %s: exit %d: %s", flags, code, said)
	}
	pl, err := plan.Read(out)
	if err != nil {
		t.Fatal(err)
	}
	return pl
}

// A plan is no faster if the schedule, or the number of stages too, is fixed to those of a good plan. The search must
// find that plan's three stages from plans with others, and under an order with split backwards.
func TestFixedSettingsGiveNoFasterPlan(t *testing.T) {
	t.Parallel()
	var steps []float64
	for _, fixed := range []string{"", "--schedule zb-h1", "--schedule zb-h1 --stages 3"} {
		steps = append(steps, planOf(t, "--model gnmt --cluster dgx-h100 --batch 256 --micro-batches 4 "+fixed).
			Predicted.StepS)
	}
	for _, fixed := range steps[1:] {
		if fixed < steps[0]*(1-0.005) {
			t.Errorf("steps take %.4g s with nothing, a schedule, and its stages fixed", steps)
		}
	}
}

// With 2 % more memory, a plan is not several times slower. The larger limit lies between the memory that estimates
// count and what simulations count: plans that recompute fit it by estimate only.
func TestMoreMemoryGivesNoSlowerPlan(t *testing.T) {
	t.Parallel()
	step := func(limit string) float64 {
		return planOf(t, "--model gpt --batch 64 --cluster ../../examples/two-nodes.yaml --memory-limit "+limit).
			Predicted.StepS
	}
	if less, more := step("16986931B"), step("17326669B"); more > less {
		t.Errorf("with 2 %% more memory a step takes %.3g s, not %.3g", more, less)
	}
}

// Families whose depths are not searched choose replicas, recompute and small batches too. Each limit is a little above
// what a search found when this test was written.
func TestFamiliesWithoutSearchedDepths(t *testing.T) {
	t.Parallel()
	for flags, most := range map[string]float64{
		"--weights 2bw": 7.1e-3, "--weights 2bw --split 5,10": 12.9e-3, "--schedule 1f1b-rr --stages 3": 8.5e-3,
		"--schedule zb-h2 --memory-limit 30MiB": 41e-3,
	} {
		got := planOf(t, "--model gpt --batch 64 --cluster ../../examples/two-nodes.yaml "+flags).Predicted.StepS
		if got > most {
			t.Errorf("%s: a step takes %.4g s, want at most %g", flags, got, most)
		}
	}
}
