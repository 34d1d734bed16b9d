package prepare

import (
	"errors"
	"fmt"
	"strings"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/run"
	"github.com/millrace-ml/millrace/schedule/family"
)

// CheckRows refuses steps in a row that the job's schedule cannot train, before anything is measured. `done` is the
// number of steps before this run. It accepts a schedule that is not known yet. It goes by the usual limit of a
// Program's steps, because the plan's own may be lower (run.Config.Check).
func CheckRows(j *job.Job, done int) error {
	if _, err := family.Lookup(j.Plan.Schedule); err != nil || j.Plan.Advances() {
		return nil
	}
	return RowsNamed(j, run.Config{
		Plan:       &plan.Plan{Schedule: j.Plan.Schedule},
		Train:      run.Training{Steps: j.Train.Steps, EvalEvery: j.Train.EvalEvery},
		Checkpoint: run.Checkpointing{Every: j.Save.Every, ByStage: j.Save.Mode == job.SaveStage},
	}.CheckRows(done))
}

// RowsNamed marks an error of a run's settings as bad input. If it is about steps in a row, RowsNamed names the job's
// settings that are at fault, and the values that would be right.
func RowsNamed(j *job.Job, err error) error {
	var wrong *run.RowError
	if !errors.As(err, &wrong) {
		return cli.BadInput(err)
	}
	var given, right []string
	for _, s := range []struct {
		key   string
		value int
		near  []int
		ends  bool
	}{
		{"steps", j.Train.Steps, wrong.Steps, true},
		{"eval_every", j.Train.EvalEvery, wrong.EvalEvery, j.Train.EvalEvery > 0},
		{"save_every", j.Save.Every, wrong.SaveEvery, j.Save.Every > 0 && j.Save.Mode != job.SaveStage},
	} {
		if s.ends {
			given = append(given, fmt.Sprintf("%s %d", j.Called(s.key), s.value))
		}
		if len(s.near) > 0 {
			values := strings.ReplaceAll(strings.Trim(fmt.Sprint(s.near), "[]"), " ", " or ")
			right = append(right, j.Called(s.key)+" "+values)
		}
	}
	give := "give " + strings.Join(right, ", or ")
	switch {
	case len(right) > 0:
	case wrong.Most > 0:
		give = fmt.Sprintf("evaluate or save at least every %d steps, and let each row, and the last, have as many as %s "+
			"trains", wrong.Most, wrong.Schedule)
	default:
		give = "evaluate and save after as many steps, or at the end alone, and let the last row have as many"
	}
	return cli.BadInput(fmt.Errorf("%s: %s; %s", strings.Join(given, ", "), wrong.Why(), give))
}
