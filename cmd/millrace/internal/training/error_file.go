package training

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/internal/document"
	"github.com/millrace-ml/millrace/launch"
	"github.com/millrace-ml/millrace/report/folder"
	"github.com/millrace-ml/millrace/run/checkpoint"
	"github.com/millrace-ml/millrace/run/control"
	"github.com/millrace-ml/millrace/run/process"
	"github.com/millrace-ml/millrace/stage/optim"
)

const errorVersion = 1

// errorFile is the content of error.json, which says why a run failed. No such file is written if the run ended well or
// was stopped, or if it failed because of bad input or a full disk.
type errorFile struct {
	Version    int       `json:"version"`
	Time       time.Time `json:"time"`
	Start      string    `json:"start,omitempty"` // identifies the start of the run; only a start's first error stays
	Rank       int       `json:"rank"`            // of the process that wrote the file
	Host       string    `json:"host"`
	Cause      string    `json:"cause"`
	ExitCode   int       `json:"exit_code"`
	Retry      bool      `json:"retry"` // another start may help
	Lost       *lostRank `json:"lost,omitempty"`
	Steps      *int      `json:"steps,omitempty"`      // steps done in all; nil if this process does not know
	Checkpoint string    `json:"checkpoint,omitempty"` // the last checkpoint that was committed
}

// lostRank is the process that was lost.
type lostRank struct {
	Rank int    `json:"rank"`
	Name string `json:"name"`
	Why  string `json:"why"`
	// Due is what other processes were waiting for from the lost process; nil if none was waiting.
	Due *control.Due `json:"due,omitempty"`
}

// leaveError writes into the run's folder why the run failed, except in the cases that errorFile lists. Usually only
// rank 0 writes the file. If rank 0 is lost, every other process writes it on its own host. Without an error,
// leaveError removes the file of an earlier start.
func (t *training) leaveError(rank int, err error) error {
	if t.ending.out == "" {
		return err
	}
	path := filepath.Join(t.ending.out, folder.ErrorName)
	if err == nil {
		if rank > 0 && t.ending.isSaid(path) {
			return nil
		}
		return dropError(path)
	}
	var stopped *cli.Stopped
	code := cli.CodeOf(err)
	lost := lostOf(err)
	switch {
	case errors.As(err, &stopped), code == cli.ExitStopped, code == cli.ExitBadInput, isFull(err):
		return err
	case rank > 0 && (lost == nil || lost.Rank != 0):
		return err
	case t.ending.isSaid(path): // this start has already written an error; its first cause stays
		return err
	}
	f := errorFile{Version: errorVersion, Time: time.Now().UTC(), Start: t.ending.start, Rank: rank, Cause: err.Error(),
		ExitCode: code, Retry: launch.Retry(code), Lost: lost, Steps: t.ending.steps, Checkpoint: t.ending.saved}
	if f.Host, _ = os.Hostname(); t.peers.party != nil {
		f.Host = t.peers.party.Places[rank].Host
	}
	if t.ending.ran || rank > 0 { // a checkpoint may be newer: after a loss during a commit, nobody reports it
		f.Checkpoint = cmp.Or(newest(filepath.Join(t.ending.out, "checkpoints")), f.Checkpoint)
	}
	failed := os.MkdirAll(t.ending.out, 0o755)
	if failed == nil {
		failed = document.WriteJSON(path, f)
	}
	if failed != nil {
		return errors.Join(err, fmt.Errorf("the reason is not in %s: %w", path, failed))
	}
	return err
}

// isSaid reports whether a process of this start of the run has written why the run failed.
func (n *ending) isSaid(path string) bool {
	f, ok := readError(path)
	return ok && n.start != "" && f.Start == n.start
}

// lostOf returns the process that was lost; nil if none was.
func lostOf(err error) *lostRank {
	var lost *control.LostError
	if !errors.As(err, &lost) {
		return nil
	}
	return &lostRank{lost.Process, lost.Name, lost.Why, lost.Due}
}

// newest finds the last checkpoint in a folder by its name, because there is no time to read checkpoints. It returns ""
// if there is none.
func newest(dir string) string {
	names, err := checkpoint.Later(dir, 0)
	if err != nil || len(names) == 0 {
		return ""
	}
	return filepath.Join(dir, names[len(names)-1])
}

// dropError removes the file that an earlier start has left. It keeps a file of that name that millrace did not
// write.
func dropError(path string) error {
	if _, ok := readError(path); !ok {
		return nil
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) { // another process may remove it first
		return err
	}
	return nil
}

// readError reads the file. It returns false if the file is missing or another program wrote it.
func readError(path string) (f errorFile, ok bool) {
	text, err := os.ReadFile(path)
	ok = err == nil && document.Decode(text, errorVersion, &f) == nil
	return f, ok
}

// ended records how far the run got. `ran` says that the run has written to its folder.
func (n *ending) ended(ran bool, steps int, saved string) {
	n.ran, n.steps, n.saved = ran, &steps, saved
}

// faultOf adds to an error what is left of the run, if the run diverged or the disk was full. Such errors are
// failures, not bad input.
func faultOf(err error, saved string) error {
	diverged := errors.Is(err, process.ErrNotFinite) || errors.Is(err, optim.ErrRange)
	switch full := isFull(err); {
	case !diverged && !full:
		return err
	case saved != "":
		return fmt.Errorf("%w; the last checkpoint is %s", err, saved)
	case diverged:
		return fmt.Errorf("%w; no checkpoint was saved before it (--save-every)", err)
	default:
		return fmt.Errorf("%w; no checkpoint was saved before it: make room and begin again", err)
	}
}

// isFull reports whether an error means that the disk or the user's quota was full.
func isFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG)
}
