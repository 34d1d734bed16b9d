package training

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/run/checkpoint"
)

// checkOut says before anything is measured whether a run may write to its folder. from is what it goes on
// from.
func checkOut(j *job.Job, from *resumption) error {
	if err := cli.CheckFolder("--out", j.Out); err != nil {
		return err
	}
	if within := checkpoint.Within(j.Out); within != "" {
		return cli.BadInput(fmt.Errorf("--out %s: %s is a checkpoint, and what is in one goes with it; give another "+
			"folder",
			j.Out, within))
	}
	dir := checkpoints(j)
	old, err := checkpoint.Later(dir, -1) // drafts are no checkpoints
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return cli.BadInput(fmt.Errorf("--out: %w", err))
	}
	switch {
	case len(old) == 0 || j.Overwrite || from != nil && from.here:
		return nil
	case from.at() != "":
		return cli.BadInput(fmt.Errorf("%s has checkpoints of another run than %s is of: "+
			"give another --out, or write over them with --overwrite",
			j.Out, from.path))
	}
	return cli.BadInput(fmt.Errorf("%s has checkpoints of an earlier run: go on from them with --resume %s, "+
		"write over them with --overwrite, or give another --out", j.Out, dir))
}

// TakeFolder makes a run's folder, where it is not there, and holds it until it is closed or the process
// ends.
func TakeFolder(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, cli.BadInput(fmt.Errorf("--out: %w", err))
	}
	return holdFolder(dir)
}

// holdFolder is takeFolder of a folder that is there, else nil. A folder that another run holds is refused. A
// file system that knows no such locks has every run hold it.
func holdFolder(dir string) (*os.File, error) {
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return nil, nil
	}
	f, err := os.Open(dir)
	if err != nil {
		return nil, cli.BadInput(fmt.Errorf("--out: %w", err))
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, errors.Join(cli.BadInput(fmt.Errorf("--out %s: another run is under way there; "+
			"give another folder, or wait for its end", dir)), f.Close())
	}
	return f, nil
}
