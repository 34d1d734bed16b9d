package training

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/internal/document"
	"github.com/millrace-ml/millrace/launch"
	"github.com/millrace-ml/millrace/run/checkpoint"
	"github.com/millrace-ml/millrace/run/control"
)

// ErrorName is the file in a run's folder that says why the run has failed. A run that ends well leaves none, nor
// does one that was told to stop.
const ErrorName = "error.json"

const errorVersion = 1

// errorFile is the content of that file.
type errorFile struct {
	Version    int       `json:"version"`
	Time       time.Time `json:"time"`
	Start      string    `json:"start,omitempty"` // of the run: of one start the first reason stays
	Rank       int       `json:"rank"`            // of the process that says so
	Host       string    `json:"host"`
	Cause      string    `json:"cause"`
	ExitCode   int       `json:"exit_code"`
	Retry      bool      `json:"retry"` // another start may help
	Lost       *lostRank `json:"lost,omitempty"`
	Steps      *int      `json:"steps,omitempty"`      // done in all, where this process knows
	Checkpoint string    `json:"checkpoint,omitempty"` // the last one that was committed
}

// lostRank is a process that was lost.
type lostRank struct {
	Rank int    `json:"rank"`
	Name string `json:"name"`
	Why  string `json:"why"`
	// What others had waited for of it, where somebody had.
	Due *control.Due `json:"due,omitempty"`
}

// leaveError says in the run's folder why it has failed. Rank 0 does, and where that is lost everybody else: each in
// the folder as its own host has it.
func (t *training) leaveError(rank int, err error) error {
	if t.ending.out == "" {
		return err
	}
	path := filepath.Join(t.ending.out, ErrorName)
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
	case t.ending.isSaid(path): // another process has written it: the first cause stays
		return err
	}
	f := errorFile{Version: errorVersion, Time: time.Now().UTC(), Start: t.ending.start, Rank: rank, Cause: err.Error(),
		ExitCode: code, Retry: launch.Retry(code), Lost: lost, Steps: t.ending.steps, Checkpoint: t.ending.saved}
	if f.Host, _ = os.Hostname(); t.peers.party != nil {
		f.Host = t.peers.party.Places[rank].Host
	}
	if t.ending.ran || rank > 0 { // a process that is lost as one is committed leaves nobody to say that it is whole
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

// isSaid says whether a process of this start of the run has said why it has failed.
func (n *ending) isSaid(path string) bool {
	f, ok := readError(path)
	return ok && n.start != "" && f.Start == n.start
}

// lostOf is the process that was lost; nil where none was.
func lostOf(err error) *lostRank {
	var lost *control.LostError
	if !errors.As(err, &lost) {
		return nil
	}
	return &lostRank{lost.Process, lost.Name, lost.Why, lost.Due}
}

// newest is the last checkpoint of a folder, by its name: there is no time to read it. Empty where there is none.
func newest(dir string) string {
	names, err := checkpoint.Later(dir, 0)
	if err != nil || len(names) == 0 {
		return ""
	}
	return filepath.Join(dir, names[len(names)-1])
}

// dropError removes what an earlier start has left. Another file of that name is somebody else's.
func dropError(path string) error {
	if _, ok := readError(path); !ok {
		return nil
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) { // another process may be faster
		return err
	}
	return nil
}

// readError reads the file; false where another program wrote it, or it is missing.
func readError(path string) (f errorFile, ok bool) {
	text, err := os.ReadFile(path)
	ok = err == nil && document.Decode(text, errorVersion, &f) == nil
	return f, ok
}

// ended notes how far the run came. ran says that its folder is its own.
func (n *ending) ended(ran bool, steps int, saved string) {
	n.ran, n.steps, n.saved = ran, &steps, saved
}
