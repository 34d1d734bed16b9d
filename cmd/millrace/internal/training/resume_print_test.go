package training

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/run/checkpoint"
)

// TestResumeSaysWhichPlanItTrains: if a resumed run trains another plan than the checkpoint's, the output names this
// plan and the reason. If the plan is the same, the output does not name it.
func TestResumeSaysWhichPlanItTrains(t *testing.T) {
	m, err := model.Build("mlp", nil)
	if err != nil {
		t.Fatal(err)
	}
	two := func(cut int) *plan.Plan {
		return &plan.Plan{Schedule: "1f1b", MicroBatches: 4, MicroBatch: 8, Stages: []plan.Stage{
			{LastLayer: cut - 1, Devices: []int{0}}, {FirstLayer: cut, LastLayer: 3, Devices: []int{1}}}}
	}
	other := two(2)
	other.Schedule = "afab"
	one := &plan.Plan{Schedule: "dp", MicroBatches: 4, MicroBatch: 8,
		Stages: []plan.Stage{{LastLayer: 3, Devices: []int{0}}}}
	at := filepath.Join(t.TempDir(), "checkpoints", "step-00000040")
	r := &resumption{path: at, manifest: &checkpoint.Manifest{Plan: two(1)}}
	for _, c := range []struct {
		flags []string
		pl    *plan.Plan
		want  string
	}{
		{[]string{"stages", "resume"}, two(1), ""},
		{[]string{"stages", "resume", "workers"}, one, "changed: the plan, one worker, 4 micro-batches of 8 (was 1f1b, " +
			"2 stages, 4 micro-batches of 8): as --workers and --stages ask\n"},
		{nil, one, "changed: the plan, one worker, 4 micro-batches of 8 (was 1f1b, 2 stages, 4 micro-batches of 8): for 1 " +
			"worker instead of 2\n"},
		{[]string{"split"}, two(2), "changed: the plan, 1f1b, 2 stages, 4 micro-batches of 8, cut before head (was 1f1b, " +
			"2 stages, 4 micro-batches of 8, cut before dense1): as --split asks\n"},
		{[]string{"schedule"}, other, "changed: the plan, afab, 2 stages, 4 micro-batches of 8, cut before head (was 1f1b, " +
			"2 stages, 4 micro-batches of 8, cut before dense1): as --schedule asks\n"},
		{[]string{"steps"}, two(2), "changed: the plan, 1f1b, 2 stages, 4 micro-batches of 8, cut before head (was 1f1b, " +
			"2 stages, 4 micro-batches of 8, cut before dense1): chosen anew, from what is measured of this machine now\n"},
	} {
		if got := r.replanned(c.flags, c.pl, m); got != c.want {
			t.Errorf("%v: got %q, want %q", c.flags, got, c.want)
		}
	}
	file := filepath.Join(filepath.Dir(filepath.Dir(at)), "plan.json")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	want := "changed: the plan, 1f1b, 2 stages, 4 micro-batches of 8, cut before head (was 1f1b, 2 stages, 4 " +
		"micro-batches of 8, cut before dense1): chosen anew, from what is measured of this machine now; --plan " + file +
		" keeps the one before\n"
	if got := r.replanned(nil, two(2), m); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if r.manifest = nil; r.replanned(nil, one, m) != "" || (*resumption)(nil).replanned(nil, one, m) != "" {
		t.Error("a training from its beginning speaks of an earlier plan")
	}
}
