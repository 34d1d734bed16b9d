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

// jobFile is what names the file of a job.
const jobFile = "job file"

// What makes the files that flags name and no room reads by itself.
const (
	makesJob     = "its keys are in job/schema.json, and those of flags with _ in place of -"
	makesModel   = "docs/models.md has one to begin with"
	makesNetwork = "python3 python/millrace_export.py SPEC.py:build -o MODEL writes one"
	makesProgram = "millrace schedule --text writes one, and train leaves program.txt in its --out"
)

// missing refuses a file that is not there, and says what makes one; an empty path is no file.
func missing(what, path, makes string) error {
	if _, err := os.Stat(path); path != "" && errors.Is(err, fs.ErrNotExist) {
		if what == jobFile && slices.Contains(model.Names(), path) {
			makes = "a model is named with --model " + path
		}
		return cli.BadInput(fmt.Errorf("%s %s: there is no such file; %s", what, path, makes))
	}
	return nil
}

// checkFiles refuses what a job names and would be read only once everything is measured.
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
