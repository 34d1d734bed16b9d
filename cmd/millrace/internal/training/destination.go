package training

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/report/folder"
	"github.com/millrace-ml/millrace/run/checkpoint"
)

// checkOut checks before any measurement whether a run may write to its folder. `run` is the launcher's name of the
// run, and `from` is what it resumes from.
func checkOut(j *job.Job, run string, from *resumption) error {
	if err := cli.CheckFolder("--out", j.Output.Folder); err != nil {
		return err
	}
	if within := checkpoint.Within(j.Output.Folder); within != "" {
		return cli.BadInput(fmt.Errorf("--out %s: %s is a checkpoint, and what is in one goes with it; give another "+
			"folder", j.Output.Folder, within))
	}
	dir := checkpoints(j)
	old, err := checkpoint.Later(dir, -1)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return cli.BadInput(fmt.Errorf("--out: %w", err))
	}
	switch {
	case from != nil && from.here:
		return mayGoOn(j)
	case j.Output.Overwrite:
		return nil
	case len(old) == 0:
		return leftOf(j, run)
	case from.at() != "":
		return cli.BadInput(fmt.Errorf("%s has checkpoints of another run than %s is of: "+
			"give another --out, or write over them with --overwrite",
			j.Output.Folder, from.path))
	}
	return cli.BadInput(fmt.Errorf("%s has checkpoints of an earlier run: go on from them with --resume %s, "+
		"write over them with --overwrite, or give another --out", j.Output.Folder, dir))
}

// mayGoOn refuses a folder whose contents cannot be read, because a run cannot continue there. It is called before
// anything in the folder is moved.
func mayGoOn(j *job.Job) error {
	if err := folder.Readable(j.Output.Folder); err != nil {
		return cli.BadInput(fmt.Errorf("--out %s: the run cannot go on there: %w; give another --out", j.Output.Folder, err))
	}
	return nil
}

// leftOf refuses a folder in which another run, started by a launcher, left files of a checkpoint that it had not
// finished saving. Other hosts may have committed that checkpoint. Such files of a single process, or of an earlier
// start of this run, belong to no checkpoint and are not refused.
func leftOf(j *job.Job, run string) error {
	was := readRecord(j.Output.Folder).Run
	if was == "" || was == run {
		return nil
	}
	drafts, err := checkpoint.Unfinished(checkpoints(j), -1)
	if err == nil && len(drafts) > 0 {
		err = fmt.Errorf("%s has files of a checkpoint that was being saved when an earlier run ended (%s), of which other "+
			"hosts may have the rest: go on from it with those, write over it with --overwrite, or give another --out",
			j.Output.Folder, drafts[0])
	}
	return cli.BadInput(err)
}

// TakeFolder makes a run's folder if it does not exist, and locks it until the file is closed or the process ends.
func TakeFolder(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, cli.BadInput(fmt.Errorf("--out: %w", err))
	}
	return holdFolder(dir)
}

// holdFolder is TakeFolder for an existing folder; without one it returns nil.
func holdFolder(dir string) (*os.File, error) {
	f, busy, err := lockFolder(dir)
	if busy {
		err = errors.Join(underWay(dir), f.Close())
	}
	if err != nil {
		return nil, err
	}
	return f, nil
}

// lockFolder opens an existing folder and locks it; without one it returns nil. `busy` means that another process has
// locked it. On a file system without such locks, every process succeeds.
func lockFolder(dir string) (f *os.File, busy bool, err error) {
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return nil, false, nil
	}
	if f, err = os.Open(dir); err != nil {
		return nil, false, cli.BadInput(fmt.Errorf("--out: %w", err))
	}
	return f, errors.Is(syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB), syscall.EWOULDBLOCK), nil
}

func underWay(dir string) error {
	return cli.BadInput(fmt.Errorf("--out %s: another run is under way there; give another folder, or wait for its end",
		dir))
}

// held describes the run's folder as a process sees it.
type held struct {
	Holds  bool   // this process holds the lock
	Busy   bool   // another process, of this run or of another run, holds the lock
	Folder uint64 // the folder's number on the file system; equal for hosts that share the file system
}

// folderHeld identifies an open folder and says whether this process holds its lock; it returns zero if f is nil.
func folderHeld(f *os.File, busy bool) (held, error) {
	if f == nil {
		return held{}, nil
	}
	info, err := f.Stat()
	if err != nil {
		return held{}, err
	}
	h := held{Holds: !busy, Busy: busy}
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		h.Folder = s.Ino
	}
	return h, nil
}

// hold locks the run's folder if it exists. Of several processes that share the folder, one gets the lock.
func (t *training) hold(dir string) (held, error) {
	f, busy, err := lockFolder(dir)
	if err != nil {
		return held{}, err
	}
	h, err := folderHeld(f, busy)
	if t.fellow = busy; busy {
		return h, errors.Join(err, f.Close())
	}
	t.folder = f
	return h, err
}

// holdOthers has every other process lock the run's folder on its host, unless the run is a dry run. It refuses a
// folder that another run has locked, before anything is written on any host.
func (t *training) holdOthers(j *job.Job) error {
	if t.dry {
		return nil
	}
	own, err := folderHeld(t.folder, false)
	if err != nil {
		return err
	}
	all := make([]held, t.peers.party.World.Size)
	all[0] = own
	if err := t.peers.led.All(askHold, j.Output.Folder, func(rank int) any { return &all[rank] }); err != nil {
		return err
	}
	for rank, one := range all {
		ours := func(o held) bool { return o.Holds && o.Folder == one.Folder }
		if one.Busy && !slices.ContainsFunc(all, ours) {
			return cli.BadInput(fmt.Errorf("%s: %w", t.peers.party.Name(rank), underWay(j.Output.Folder)))
		}
	}
	return nil
}

// isOwn reports whether a job resumes from the checkpoints of its own existing folder. A run that was killed before
// its first checkpoint leaves none there.
func isOwn(j *job.Job) bool {
	return isFolder(j.Output.Folder) && filepath.Clean(j.Save.Resume) == checkpoints(j)
}

// sameFolder reports whether two paths name the same folder.
func sameFolder(a, b string) bool {
	one, err := os.Stat(a)
	other, errB := os.Stat(b)
	return err == nil && errB == nil && os.SameFile(one, other)
}
