package prepare

import (
	"testing"

	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/plan"
)

// TestMoreWorkersThanCoresAreWarnedOf: the warning names the numbers of workers and cores. If a plan is given, its
// devices are the workers, and the job's number of workers is ignored.
func TestMoreWorkersThanCoresAreWarnedOf(t *testing.T) {
	three := &plan.Plan{Stages: []plan.Stage{{Devices: []int{0, 5}}, {Devices: []int{2}}}}
	one := &plan.Plan{Stages: []plan.Stage{{Devices: []int{1}}}}
	for _, c := range []struct {
		workers int
		given   *plan.Plan
		want    string
	}{
		{400, nil, "profile: 400 workers share 2 cores and take turns: expect no measured step faster than with " +
			"--workers 2, whatever is predicted"},
		{2, nil, ""},
		{6, three, "profile: the plan in p.json is for 3 workers, and they share 2 cores and take turns: " +
			"expect no measured step faster than of a plan with --workers 2, whatever is predicted"},
		{400, one, ""},
	} {
		j := &job.Job{}
		j.Machine.Workers, j.Machine.Cores = c.workers, 2
		j.Plan.File, j.Plan.MicroBatch, j.Plan.Batch = "p.json", 1, 1
		p := &Prepared{Job: j, Plan: c.given}
		if got := tooManyFor(j, p.Wanted().Workers, CoresOf(j)); got != c.want {
			t.Errorf("--workers %d, plan %+v: %q, want %q", c.workers, c.given, got, c.want)
		}
	}
}
