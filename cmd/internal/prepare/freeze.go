package prepare

import (
	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/model"
)

// freeze freezes the parts of the model that the job names. That changes the model's ID, so that the model does not
// share profiles and plans with the unfrozen model.
func freeze(j *job.Job, m *model.Model) error {
	if len(j.Model.Freeze) == 0 {
		return nil
	}
	return cli.BadInput(m.Freeze(j.Model.Freeze))
}
