package prepare

import (
	"io"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/plan"
)

// preparedFor prepares a job for a model and batches of 32 samples.
func preparedFor(t *testing.T, model string, set func(j *job.Job)) (*Prepared, error) {
	t.Helper()
	j := job.Default()
	j.Model.Name, j.Plan.Batch = model, 32
	set(&j)
	c := &cobra.Command{}
	c.SetErr(io.Discard)
	c.SetContext(t.Context())
	if err := j.Complete(); err != nil {
		t.Fatal(err)
	}
	return Prepare(c, &j, false)
}

// TestAPlanOnDevicesThatAreNotThere: a given plan for four workers is refused with fewer, before anything is measured.
// The error names the plan's file, and the setting that says how many devices there are. With groups of two devices,
// four workers need eight devices.
func TestAPlanOnDevicesThatAreNotThere(t *testing.T) {
	path := filepath.Join(t.TempDir(), "plan.json")
	prepared := func(set func(j *job.Job)) (*Prepared, error) { return preparedFor(t, "mlp", set) }
	p, err := prepared(func(j *job.Job) { j.Machine.Cluster, j.Plan.Stages, j.Plan.Schedule = "dapple-c:4", 4, "1f1b" })
	if err != nil {
		t.Fatal(err)
	}
	p.Plan.Hardware = nil // as in a plan that was made for this machine
	if err := p.Plan.Write(path); err != nil {
		t.Fatal(err)
	}
	two := func(j *job.Job) { j.Machine.Workers = 2; j.Give("workers") }
	said := "the plan in " + path + " has a worker on device 3, counted from 0; "
	grouped := filepath.Join(t.TempDir(), "grouped.json")
	p.Plan.Tensor = &plan.Tensor{Devices: 2}
	if err := p.Plan.Write(grouped); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		cluster, want string
		set           func(j *job.Job)
	}{
		{"", said + "workers takes 2 devices: give 4 or more, or plan again", two},
		{"dapple-c", said + "workers takes 2 devices of dapple-c: give 4 or more, or plan again", two},
		{"dapple-c:2", said + "dapple-c:2 has 2 devices: name the cluster that it is for, or plan again",
			func(*job.Job) {}},
		{"dgx-a100", "the plan in " + grouped + " has a worker on device 3, counted from 0; workers takes 4 devices of " +
			"dgx-a100 in groups of 2: give 8 or more, or plan again", func(j *job.Job) {
			j.Plan.File, j.Machine.Workers = grouped, 4
			j.Give("workers")
		}},
	} {
		_, err := prepared(func(j *job.Job) { j.Machine.Cluster, j.Plan.File = c.cluster, path; c.set(j) })
		if err == nil || err.Error() != c.want {
			t.Errorf("on %q: %v; want %s", c.cluster, err, c.want)
		}
	}
}

// A plan in bf16 for groups of four devices gets the prediction that it was made with. The job need not name the plan's
// cluster. Another precision, and other groups, are refused.
func TestGivenPlansKeepTheirDevices(t *testing.T) {
	path := filepath.Join(t.TempDir(), "plan.json")
	prepared := func(cluster string, set func(j *job.Job)) (*Prepared, error) {
		return preparedFor(t, "gpt", func(j *job.Job) { j.Machine.Cluster = cluster; set(j) })
	}
	given := func(j *job.Job) { j.Plan.File = path }
	p, err := prepared("dgx-a100", func(j *job.Job) { j.Machine.Precision, j.Machine.Tensor = "bf16", []int{4} })
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Plan.Write(path); err != nil {
		t.Fatal(err)
	}
	for _, cluster := range []string{"dgx-a100", ""} {
		again, err := prepared(cluster, given)
		if err != nil {
			t.Fatalf("on %q: %v", cluster, err)
		}
		if got, want := again.Plan.Predicted.StepS, p.Plan.Predicted.StepS; math.Abs(got-want) > 1e-9*want ||
			again.Plan.LowerBound == nil || again.Plan.Precision != "bf16" || again.Plan.Tensor == nil ||
			again.Plan.Tensor.Devices != 4 {
			t.Errorf("on %q: %v s in %q by %+v; planned were %v s", cluster, got, again.Plan.Precision, again.Plan.Tensor, want)
		}
	}
	elsewhere, err := prepared("dgx-h100", given)
	if err != nil {
		t.Fatal(err)
	}
	if kept := p.Plan; kept.LowerBound == nil || elsewhere.Plan.LowerBound != nil || len(elsewhere.Plan.Rivals) > 0 ||
		!strings.HasPrefix(strings.Join(elsewhere.Plan.Why, "|"), "the plan's file predicts a step of ") {
		t.Errorf("planned with %+v; on other devices %+v, %q", kept.LowerBound, elsewhere.Plan.LowerBound,
			elsewhere.Plan.Why)
	}
	for want, set := range map[string]func(j *job.Job){
		"precision is f16; the plan": func(j *job.Job) { j.Machine.Precision = "f16"; j.Give("precision") },
		"tensor is [8]; the plan":    func(j *job.Job) { j.Machine.Tensor = []int{8}; j.Give("tensor") },
		"sequence_parallel is true":  func(j *job.Job) { j.Machine.SequenceParallel = true; j.Give("sequence_parallel") },
	} {
		if _, err := prepared("dgx-a100", func(j *job.Job) { given(j); set(j) }); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
	p.Plan.Tensor = nil // a plan of single devices, whose hardware still has groups
	if err := p.Plan.Write(path); err != nil {
		t.Fatal(err)
	}
	if _, err := prepared("", given); err == nil ||
		!strings.Contains(err.Error(), "those of dgx-a100 in groups of 4 are of 4") {
		t.Errorf("single devices on groups: %v", err)
	}
}
