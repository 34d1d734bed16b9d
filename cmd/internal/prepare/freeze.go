package prepare

import (
	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/model"
)

// freeze has what a job freezes not learn. The model's ID is another by it, and so are profiles and plans.
func freeze(j *job.Job, m *model.Model) error {
	if len(j.Model.Freeze) == 0 {
		return nil
	}
	return cli.BadInput(m.Freeze(j.Model.Freeze))
}
