package training

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/launch"
)

// workersFlag is the flag for the number of workers in each process.
const workersFlag = "workers-per-process"

// worldOf returns the world of this process. `each` is the value of the workers flag if the flag is given; the
// environment must agree with it.
func worldOf(c *cobra.Command, each int) (*launch.World, error) {
	w, err := launch.FromEnv(os.Environ())
	if err != nil || !c.Flags().Changed(workersFlag) {
		return w, err
	}
	switch said := w.WorkersPerProcess; {
	case each < 1 || each > launch.MaxSize:
		return nil, fmt.Errorf("--%s is %d; give 1 to %d", workersFlag, each, launch.MaxSize)
	case said > 0 && said != each:
		return nil, fmt.Errorf("--%s is %d, and %s says %d; leave one of them out", workersFlag, each, launch.WorkersVar,
			said)
	}
	w.WorkersPerProcess = each
	return w, nil
}

// workersOf sets a job's number of workers to `workers`, the number that its processes have together. It refuses a job
// that asks for another number.
func workersOf(j *job.Job, w *launch.World, workers int) error {
	if j.Given("workers") && j.Machine.Workers != workers {
		return fmt.Errorf("--workers is %d, and there are %s; leave it out", j.Machine.Workers, counted(w))
	}
	j.Machine.Workers = workers
	j.Give("workers")
	return nil
}

// counted describes in words the processes of a world and their workers.
func counted(w *launch.World) string {
	return fmt.Sprintf("%s (processes %d, workers of each %d)", terminal.Count(w.Workers(), "worker"), w.Size,
		w.Workers()/w.Size)
}
