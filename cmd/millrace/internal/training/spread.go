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

// What rank 0 asks the others about checkpoints.
const (
	askRun   = "run"         // which their folder is of
	askHold  = "hold"        // to hold it
	askLook  = "checkpoints" // which they have
	askText  = "manifest"    // for one of them
	askCheck = "checksums"   // of files
	askTake  = "resume"      // to go on from one
)

// spread is the checkpoint at a path that a run goes on from: of a process that is alone all of it, else what every
// process is told of it, and the files of this one.
type spread struct {
	Path  string
	whole *checkpoint.Checkpoint
	*checkpoint.Spread
	shelf *checkpoint.Shelf
	party *together.Party
}

// chosen says whether there is one by now.
func (s *spread) chosen() bool { return s != nil && (s.whole != nil || s.Spread != nil) }

// close closes what no run has opened.
func (s *spread) close() error {
	switch {
	case s == nil:
		return nil
	case s.whole != nil:
		return s.whole.Close()
	}
	return s.shelf.Close()
}

// shelfAt lists the checkpoints that this process has at a path. Files whose checksums were verified are not read
// again.
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

// among asks the processes of a run what they have at a path.
type among struct {
	*training
	path  string
	shelf *checkpoint.Shelf
}

// wanted is a request to one process.
type wanted struct {
	Path  string
	Known string            // the digest of what rank 0 has
	Copy  checkpoint.Copy   // of which manifest the text is wanted
	Steps int               // of which checkpoint files are wanted
	Files []checkpoint.File // that are to be checked
}

// looked is what a process has.
type looked struct {
	Same bool // as rank 0
	checkpoint.Survey
}

// Look leaves out which checkpoints a process has whose folder is of another run than the one that is to go on: a host
// that has joined. Files may be anywhere: they are held against their checksums.
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

// choose finds the newest checkpoint at a path, on whichever hosts that is. A second time for a path it has it.
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

// find is the checkpoint that a job goes on from, which every process takes.
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

// take serves the files that are here to the others.
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

// opens has a run go on from the checkpoint.
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

// liesIn says whether a checkpoint lies among those of a job's own folder on this host, or would.
func liesIn(j *job.Job, path string, m *checkpoint.Manifest) (bool, error) {
	dir := filepath.Dir(path)
	if dir != checkpoints(j) && !sameFolder(dir, checkpoints(j)) {
		return false, nil
	}
	another, err := checkpoint.IsOfAnother(dir, m)
	return !another, err
}

// membersOf says of each process whether the folder of a job, as it has it, is a run's.
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

// lookers are what a process does for rank 0 while that looks for a checkpoint.
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

// answering is a handler of questions of one type.
func answering[T any](do func(context.Context, T) (any, error)) setup.Handler {
	return func(ctx context.Context, with json.RawMessage) (any, error) {
		var asked T
		if err := json.Unmarshal(with, &asked); err != nil {
			return nil, err
		}
		return do(ctx, asked)
	}
}
