package training

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"path/filepath"

	"github.com/millrace-ml/millrace/cmd/internal/together"
	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/launch/setup"
	"github.com/millrace-ml/millrace/run"
	"github.com/millrace-ml/millrace/run/checkpoint"
)

// What rank 0 asks the others about checkpoints.
const (
	askLook  = "checkpoints" // which they have
	askText  = "manifest"    // for one of them
	askCheck = "checksums"   // of files
	askTake  = "resume"      // to go on from one
)

// spread is a checkpoint with files on several hosts, and those of this process.
type spread struct {
	Path string
	*checkpoint.Spread
	shelf *checkpoint.Shelf
	party *together.Party
}

// among asks the processes of a run what they have at a path.
type among struct {
	*training
	path string
}

func (a among) Look() ([]checkpoint.Survey, error) {
	all := make([]checkpoint.Survey, a.party.World.Size)
	if err := a.others.All(askLook, a.path, func(rank int) any { return &all[rank] }); err != nil {
		return nil, err
	}
	own, err := checkpoint.Look(a.path)
	all[0] = own
	for rank := range all {
		all[rank].Host = a.party.Places[rank].Host
	}
	return all, err
}

// wanted is what is asked of one process.
type wanted struct {
	Path  string
	Copy  checkpoint.Copy
	Steps int
	Files []checkpoint.File
}

func (a among) Text(rank int, of checkpoint.Copy) (text string, err error) {
	if rank == 0 {
		return checkpoint.Text(a.path, of)
	}
	err = a.others.Ask(rank, askText, wanted{Path: a.path, Copy: of}, &text)
	return text, err
}

func (a among) Check(rank, steps int, files []checkpoint.File) (wrong map[string]string, err error) {
	if rank == 0 {
		return checkpoint.Check(a.path, steps, files), nil
	}
	err = a.others.Ask(rank, askCheck, wanted{Path: a.path, Steps: steps, Files: files}, &wrong)
	return wrong, err
}

// find is the checkpoint that a job goes on from: the newest at its path, on whichever hosts that is.
func (t *training) find(j *job.Job) (path string, m *checkpoint.Manifest, err error) {
	if t.others == nil {
		from, err := checkpoint.Open(j.Resume)
		if err != nil {
			return "", nil, err
		}
		return from.Path, from.Manifest, from.Close()
	}
	found, err := checkpoint.Among(j.Resume, among{t, j.Resume})
	if err != nil {
		return "", nil, err
	}
	for _, why := range found.Passed {
		fmt.Fprintf(t.ErrOrStderr(), "millrace: passed over, as it is not whole: %s\n", why)
	}
	if path, m, err = found.At(j.Resume); err != nil {
		return "", nil, err
	}
	t.spread = &spread{Path: j.Resume, Spread: found}
	if err := t.others.All(askTake, t.spread, nil); err != nil {
		return "", nil, err
	}
	return path, m, t.spread.take(t.party)
}

// hasWhole says why there is no checkpoint at a path to go on from.
func (t *training) hasWhole(path string) error {
	if t.others != nil {
		_, err := checkpoint.Among(path, among{t, path})
		return err
	}
	from, err := checkpoint.Open(path)
	if err != nil {
		return err
	}
	return from.Close()
}

// take opens the files that are here, and serves them to the others.
func (s *spread) take(party *together.Party) (err error) {
	if s.shelf, err = s.Shelf(s.Path); err != nil {
		return err
	}
	s.party = party
	party.Serve(func(c net.Conn) {
		if err := s.shelf.Serve(c); err != nil {
			slog.Warn("files of a checkpoint", "error", err)
		}
	})
	return nil
}

// close closes the files. Nobody asks for them any more.
func (s *spread) close() error {
	if s == nil || s.shelf == nil {
		return nil
	}
	return s.shelf.Close()
}

// opens has a run go on from the checkpoint.
func (s *spread) opens(c *run.Config) {
	if s == nil {
		return
	}
	c.Open = func() (*checkpoint.Checkpoint, error) {
		return s.Open(s.shelf, func(process int) (io.ReadWriteCloser, error) { return s.party.Dial(process) })
	}
}

// liesIn says whether a checkpoint lies among those of a job's own folder on this host, or would.
func liesIn(j *job.Job, path string, m *checkpoint.Manifest) (bool, error) {
	dir := filepath.Dir(path)
	if dir != checkpoints(j) && !sameFolder(dir, checkpoints(j)) {
		return false, nil
	}
	another, err := checkpoint.IsOfAnother(dir, m)
	return !another, err
}

// lookers are what a process does for rank 0 while that looks for a checkpoint. into has the one that it takes.
func lookers(party *together.Party, into **spread) map[string]setup.Handler {
	return map[string]setup.Handler{
		askLook: answering(func(path string) (any, error) { return checkpoint.Look(path) }),
		askText: answering(func(w wanted) (any, error) { return checkpoint.Text(w.Path, w.Copy) }),
		askCheck: answering(func(w wanted) (any, error) {
			return checkpoint.Check(w.Path, w.Steps, w.Files), nil
		}),
		askTake: answering(func(s spread) (any, error) {
			if *into != nil {
				return nil, errors.New("it goes on from a checkpoint already")
			}
			*into = &s
			return nil, s.take(party)
		}),
	}
}

// answering is a handler of questions of one type.
func answering[T any](do func(T) (any, error)) setup.Handler {
	return func(_ context.Context, with json.RawMessage) (any, error) {
		var asked T
		if err := json.Unmarshal(with, &asked); err != nil {
			return nil, err
		}
		return do(asked)
	}
}
