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
	"sync"

	"github.com/millrace-ml/millrace/cmd/internal/together"
	"github.com/millrace-ml/millrace/internal/crash"
	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/launch/setup"
	"github.com/millrace-ml/millrace/run"
	"github.com/millrace-ml/millrace/run/checkpoint"
)

// These are rank 0's questions to the other processes about checkpoints.
const (
	askRun   = "run"         // asks which run a process's folder belongs to
	askHold  = "hold"        // asks a process to lock the folder of the run
	askLook  = "checkpoints" // asks which checkpoints a process has
	askText  = "manifest"    // asks for the manifest of one checkpoint
	askCheck = "checksums"   // asks a process to verify the checksums of a checkpoint's files
	askTake  = "resume"      // asks a process to resume from a checkpoint
)

// spread is the checkpoint that a run resumes from. In a single process, the field `whole` is the entire checkpoint. In
// a run of several processes, Spread is what all processes know about it, and `shelf` holds this process's files.
type spread struct {
	Path  string
	whole *checkpoint.Checkpoint
	*checkpoint.Spread
	shelf *checkpoint.Shelf
	party *together.Party
}

// chosen reports whether a checkpoint has been found.
func (s *spread) chosen() bool { return s != nil && (s.whole != nil || s.Spread != nil) }

// close closes the files of the checkpoint that the run has not taken over.
func (s *spread) close() error {
	switch {
	case s == nil:
		return nil
	case s.whole != nil:
		return s.whole.Close()
	}
	return s.shelf.Close()
}

// shelfAt lists this process's checkpoints at a path. Files whose checksums were verified are not read again.
func (t *training) shelfAt(path string) (*checkpoint.Shelf, error) {
	if t.spread != nil && t.spread.Path == path {
		return t.spread.shelf, nil
	}
	if err := t.spread.close(); err != nil {
		return nil, err
	}
	t.spread = &spread{Path: path, shelf: checkpoint.NewShelf(path), party: t.peers.party}
	return t.spread.shelf, nil
}

// among asks the processes of a run which checkpoints they have at a path.
type among struct {
	*training
	path  string
	shelf *checkpoint.Shelf
}

// wanted is a request to one process.
type wanted struct {
	Path  string
	Known string            // digest of rank 0's checkpoints
	Copy  checkpoint.Copy   // the copy whose manifest is wanted
	Steps int               // step of the checkpoint whose files are wanted
	Files []checkpoint.File // files to check
}

// looked says which checkpoints a process has at the path.
type looked struct {
	Same bool // this process has the same checkpoints as rank 0
	checkpoint.Survey
}

// Look returns which checkpoints each process has at the path. If the launcher has started the run again, Look leaves
// out the checkpoints of a process whose folder belongs to another run, for example on a host that joined later. The
// files of a checkpoint may be on any host, because checksums identify them.
func (a among) Look() ([]checkpoint.Survey, error) {
	own, err := a.shelf.Look()
	if err != nil {
		return nil, err
	}
	others := make([]looked, a.peers.party.World.Size)
	err = a.peers.led.All(askLook, wanted{Path: a.path, Known: own.Digest()}, func(rank int) any { return &others[rank] })
	all := make([]checkpoint.Survey, len(others))
	for rank, one := range others {
		if all[rank] = one.Survey; rank == 0 || one.Same {
			all[rank] = own
		}
		all[rank].Host = a.peers.party.Places[rank].Host
		if a.peers.members != nil && !a.peers.members[rank] {
			all[rank].Copies, all[rank].Damaged = nil, nil
		}
	}
	return all, err
}

func (a among) Text(rank int, of checkpoint.Copy) (text string, err error) {
	if rank == 0 {
		return a.shelf.Text(of)
	}
	err = a.peers.led.Ask(rank, askText, wanted{Path: a.path, Copy: of}, &text)
	return text, err
}

func (a among) Check(steps int, files map[int][]checkpoint.File) (map[int]map[string]checkpoint.Verdict, error) {
	verdicts, errs := make([]map[string]checkpoint.Verdict, a.peers.party.World.Size), make([]error,
		a.peers.party.World.Size)
	var asking sync.WaitGroup
	for rank, files := range files {
		asking.Go(crash.Caught(func() {
			if rank == 0 {
				verdicts[0], errs[0] = a.shelf.Check(a.Context(), steps, files)
				return
			}
			errs[rank] = a.peers.led.Ask(rank, askCheck, wanted{Path: a.path, Steps: steps, Files: files}, &verdicts[rank])
		}))
	}
	asking.Wait()
	all := map[int]map[string]checkpoint.Verdict{}
	for rank := range files {
		all[rank] = verdicts[rank]
	}
	return all, errors.Join(errs...)
}

// choose finds the newest checkpoint at a path on any host. It remembers the result for the path.
func (t *training) choose(path string) error {
	if t.spread.chosen() && t.spread.Path == path {
		return nil
	}
	if t.peers.led == nil {
		whole, err := checkpoint.Open(path)
		if err == nil {
			err, t.spread = t.spread.close(), &spread{Path: path, whole: whole}
		}
		return err
	}
	shelf, err := t.shelfAt(path)
	if err == nil {
		t.spread.Spread, err = checkpoint.Among(path, among{t, path, shelf})
	}
	return err
}

// find returns the checkpoint from which a job resumes in every process.
func (t *training) find(path string) (at string, m *checkpoint.Manifest, err error) {
	if err := t.choose(path); err != nil {
		return "", nil, err
	}
	if s := t.spread; s.whole != nil {
		return s.whole.Path, s.whole.Manifest, nil
	}
	for _, why := range t.spread.Passed {
		fmt.Fprintf(t.ErrOrStderr(), "millrace: passed over, as it is not whole: %s\n", why)
	}
	if err := t.peers.led.All(askTake, t.spread, nil); err != nil {
		return "", nil, err
	}
	return t.spread.take()
}

// take opens this process's part of the checkpoint, and serves its files to the other processes.
func (s *spread) take() (at string, m *checkpoint.Manifest, err error) {
	if at, m, err = s.shelf.Take(s.Spread); err != nil {
		return "", nil, err
	}
	s.party.Serve(func(c net.Conn) {
		if err := s.shelf.Serve(c); err != nil {
			slog.Warn("files of a checkpoint", "error", err)
		}
	})
	return at, m, nil
}

// opens makes a run resume from the checkpoint.
func (s *spread) opens(c *run.Config) (err error) {
	switch {
	case !s.chosen():
	case s.whole != nil:
		c.Resume.Open = s.whole
	default:
		c.Resume.Open, err = s.shelf.Open(s.Spread, s.party.World.Rank,
			func(process int) (io.ReadWriteCloser, error) { return s.party.Dial(process) })
	}
	return err
}

// liesIn reports whether a checkpoint is in the job's own folder on this host, or would be there if this host had it.
// If that folder has checkpoints of another training, the result is false.
func liesIn(j *job.Job, path string, m *checkpoint.Manifest) (bool, error) {
	dir := filepath.Dir(path)
	if dir != checkpoints(j) && !sameFolder(dir, checkpoints(j)) {
		return false, nil
	}
	another, err := checkpoint.IsOfAnother(dir, m)
	return !another, err
}

// membersOf returns for each process whether its folder of the job belongs to this run.
func (t *training) membersOf(j *job.Job, run string) ([]bool, error) {
	runs := []string{readRecord(j.Output.Folder).Run}
	if t.peers.led != nil {
		runs = append(runs, make([]string, t.peers.party.World.Size-1)...)
		if err := t.peers.led.All(askRun, j.Output.Folder, func(rank int) any { return &runs[rank] }); err != nil {
			return nil, err
		}
	}
	members := make([]bool, len(runs))
	for rank, of := range runs {
		members[rank] = of == run
	}
	return members, nil
}

// lookers returns the handlers with which a process helps rank 0 to find a checkpoint.
func (t *training) lookers() map[string]setup.Handler {
	at := func(do func(context.Context, *checkpoint.Shelf, wanted) (any, error)) setup.Handler {
		return answering(func(ctx context.Context, w wanted) (any, error) {
			shelf, err := t.shelfAt(w.Path)
			if err != nil {
				return nil, err
			}
			return do(ctx, shelf, w)
		})
	}
	return map[string]setup.Handler{
		askRun:  answering(func(_ context.Context, out string) (any, error) { return readRecord(out).Run, nil }),
		askHold: answering(func(_ context.Context, out string) (any, error) { return t.hold(out) }),
		askLook: at(func(_ context.Context, s *checkpoint.Shelf, w wanted) (any, error) {
			own, err := s.Look()
			if err == nil && own.Digest() == w.Known {
				return looked{Same: true}, nil
			}
			return looked{Survey: own}, err
		}),
		askText: at(func(_ context.Context, s *checkpoint.Shelf, w wanted) (any, error) { return s.Text(w.Copy) }),
		askCheck: at(func(ctx context.Context, s *checkpoint.Shelf, w wanted) (any, error) {
			return s.Check(ctx, w.Steps, w.Files)
		}),
		askTake: answering(func(_ context.Context, s spread) (any, error) {
			if t.spread.chosen() {
				return nil, errors.New("it goes on from a checkpoint already")
			}
			if _, err := t.shelfAt(s.Path); err != nil {
				return nil, err
			}
			t.spread.Spread = s.Spread
			_, _, err := t.spread.take()
			return nil, err
		}),
	}
}

// answering returns a handler for questions of one type.
func answering[T any](do func(context.Context, T) (any, error)) setup.Handler {
	return func(ctx context.Context, with json.RawMessage) (any, error) {
		var asked T
		if err := json.Unmarshal(with, &asked); err != nil {
			return nil, err
		}
		return do(ctx, asked)
	}
}
