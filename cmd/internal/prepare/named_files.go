package prepare

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/model"
)

// jobFile is the name of the job file in errors.
const jobFile = "job file"

// These texts say how to make a file that a flag names. They are for files that no other package checks.
const (
	makesJob     = "its keys are in job/schema.json, and those of flags with _ in place of -"
	makesModel   = "docs/models.md has one to begin with"
	makesNetwork = "python3 python/millrace_export.py SPEC.py:build -o MODEL writes one"
	makesProgram = "millrace schedule --text writes one, and train leaves program.txt in its --out"
)

// missing refuses a file that does not exist, and says how to make one. An empty path is accepted.
func missing(what, path, makes string) error {
	if _, err := os.Stat(path); path != "" && errors.Is(err, fs.ErrNotExist) {
		if what == jobFile && slices.Contains(model.Names(), path) {
			makes = "a model is named with --model " + path
		}
		return cli.BadInput(fmt.Errorf("%s %s: there is no such file; %s", what, path, makes))
	}
	return nil
}

// checkFiles refuses files of a job that would otherwise be read only after the measurements.
func checkFiles(j *job.Job) error {
	if err := missing("--program", j.Plan.Program, makesProgram); err != nil {
		return err
	}
	if j.Machine.Wire != "" {
		_, err := wiredAs(j)
		return cli.BadInput(err)
	}
	return nil
}
