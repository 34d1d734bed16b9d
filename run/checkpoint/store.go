package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

const (
	manifestName = "manifest.json"
	prefix       = "step-"
	partial      = ".partial"        // being written, or left by an interrupted run
	gone         = ".gone" + partial // about to be removed
	replaced     = ".replaced"       // the older of two checkpoints of the same step, about to be removed
)

// Store is a folder of checkpoints, one directory each, named after the steps done. Its own checkpoints are those that
// it has written, and those of the run that it continues. The only checkpoints that Prune removes are the store's own
// and those of a run that this run replaces (SetOthersAside). Commit also replaces a checkpoint of the same step.
//
// If several processes write to one folder, each has a Store of it. All processes write their files into the same
// draft. Only one of the processes calls Commit, Continue and Prune.
type Store struct {
	Dir  string
	Keep int // how many of its own checkpoints are kept, the newest ones; 0 keeps all

	own    []string                          // paths of its own checkpoints, oldest first
	older  string                            // folder of the checkpoints of a run that this one replaces; empty if none
	create func(path string) (output, error) // nil means createFile; tests give one that fails
}

// output is a file whose content can be synced to disk.
type output interface {
	io.Writer
	Sync() error
	Close() error
}

// DraftName returns the name of the draft of a checkpoint after this many steps. Open, Inspect and Latest skip a draft,
// and no other run writes to it.
func DraftName(steps int, run uint64) string {
	return fmt.Sprintf("%s%08d.%016x%s", prefix, steps, run, partial)
}

// Draft returns the path of a draft.
func (s *Store) Draft(name string) (string, error) {
	if _, ok := stepsOf(name); !ok || !strings.HasSuffix(name, partial) {
		return "", fmt.Errorf("checkpoint: %q is no name of a draft", name)
	}
	return filepath.Join(s.Dir, name), nil
}

// Drafted reports whether a draft exists under that name.
func (s *Store) Drafted(name string) bool {
	path, err := s.Draft(name)
	if err == nil {
		_, err = os.Stat(path)
	}
	return err == nil
}

// mark is the prefix of a file that a process puts into a draft in its folder; the process's number follows.
const mark = "process-"

// Mark puts a process's mark into a draft, and creates the draft if needed.
func (s *Store) Mark(draft string, process int) error {
	path, err := s.Draft(draft)
	if err != nil {
		return err
	}
	if err := MakeDraft(path); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(path, mark+strconv.Itoa(process)), nil, 0o644); err != nil {
		return failed(filepath.Join(path, mark+strconv.Itoa(process)), err)
	}
	return nil
}

// Marks returns the processes whose marks are in a draft, in any order.
func (s *Store) Marks(draft string) ([]int, error) {
	path, err := s.Draft(draft)
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, fmt.Errorf("checkpoint: %w", err)
	}
	var all []int
	for _, e := range entries {
		number, ok := strings.CutPrefix(e.Name(), mark)
		if n, err := strconv.Atoi(number); ok && err == nil {
			all = append(all, n)
		}
	}
	return all, nil
}

// Continue counts the checkpoint to resume from, and the earlier ones of its training, as the store's own. It does
// nothing if that checkpoint is not in the store's folder. If a crash has left files of it in a draft, the draft gets
// the checkpoint's name.
func (s *Store) Continue(from *Checkpoint) error {
	if !s.Has(from) {
		return nil
	}
	if err := s.adopt(from); err != nil {
		return err
	}
	s.own = nil
	found, err := ofTraining(s.Dir, from.Manifest)
	for _, f := range found {
		if f.steps <= from.Manifest.Steps {
			s.own = append(s.own, f.path)
		}
	}
	return err
}

// Has reports whether a checkpoint is in the store's folder.
func (s *Store) Has(from *Checkpoint) bool {
	here, err := os.Stat(s.Dir)
	there, errThere := os.Stat(filepath.Dir(from.Path))
	return err == nil && errThere == nil && os.SameFile(here, there)
}

// SetOthersAside moves checkpoints that are not the store's own to a folder beside the store's. Prune removes them
// later if this run replaces the run that wrote them. It replaces that run if it resumes from no checkpoint of this
// folder, or if the folder has only checkpoints of other trainings. The removal waits until this run has a checkpoint
// in the folder. SetOthersAside also moves the drafts of later checkpoints, if these may be complete together with
// files on other hosts (Spread.Newer).
func (s *Store) SetOthersAside(from *Checkpoint) error {
	found, err := list(s.Dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	var others []string
	for _, f := range found {
		if !slices.Contains(s.own, f.path) {
			others = append(others, filepath.Base(f.path))
		}
	}
	if err == nil && from != nil && from.newer {
		var drafts []string
		drafts, err = Unfinished(s.Dir, from.Manifest.Steps)
		others = append(others, drafts...)
	}
	if err != nil || len(others) == 0 {
		return err
	}
	for n := 1; ; n++ {
		aside := filepath.Join(filepath.Dir(s.Dir), fmt.Sprintf("aside-%d", n))
		err := os.Mkdir(aside, 0o755)
		if errors.Is(err, os.ErrExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("checkpoint: %w", err)
		}
		to := filepath.Join(aside, filepath.Base(s.Dir))
		another := from == nil || !s.Has(from)
		if !another {
			if another, err = IsOfAnother(s.Dir, from.Manifest); err != nil {
				return err
			}
		}
		if another {
			s.older = to
		}
		return SetAside(s.Dir, to, others)
	}
}

// adopt completes the checkpoint to resume from, if the folder has some of its files. If only the manifest is damaged
// or missing, adopt writes it again. Otherwise, if a draft has any of the files, adopt commits the draft. The result
// then replaces another checkpoint of that step.
func (s *Store) adopt(from *Checkpoint) error {
	final := filepath.Join(s.Dir, NameOf(from.Manifest.Steps))
	text, _, unreadable := readManifest(filepath.Join(final, manifestName))
	if unreadable == nil && bytes.Equal(text, from.text) {
		return nil
	}
	has := func(dir string) bool {
		return slices.ContainsFunc(from.Manifest.Files, func(f File) bool { return f.isIn(dir) })
	}
	if unreadable != nil && has(final) {
		return errors.Join(s.seal(final, from.text), syncDir(final))
	}
	drafts, err := draftsOf(s.Dir, from.Manifest.Steps)
	for _, draft := range drafts {
		if has(draft) {
			_, err := s.Commit(filepath.Base(draft), from.text)
			return err
		}
	}
	return err
}

// Commit writes a draft's manifest (see Seal), gives the checkpoint its name, and returns its path. After an error no
// older checkpoint is lost, and the draft still exists unless it has the checkpoint's name already. A second Commit of
// the same draft changes nothing.
func (s *Store) Commit(draft string, manifest []byte) (string, error) {
	path, err := s.Draft(draft)
	if err != nil {
		return "", err
	}
	steps, _ := stepsOf(draft)
	final := filepath.Join(s.Dir, NameOf(steps))
	m, err := decodeManifest(manifest)
	if err != nil {
		return "", fmt.Errorf("checkpoint: manifest: %w", err)
	}
	if m.Steps != steps {
		return "", fmt.Errorf("checkpoint: a manifest of step %d for draft %s", m.Steps, draft)
	}
	if err := MakeDraft(path); err != nil { // there is no draft if no process with this folder wrote a file
		return "", err
	}
	if err := s.seal(path, manifest); err != nil {
		return "", err
	}
	if err := s.name(path, final, manifest); err != nil {
		return "", err
	}
	s.own = append(slices.DeleteFunc(s.own, func(path string) bool { return path == final }), final)
	return final, nil
}

// seal writes a manifest into a directory.
func (s *Store) seal(dir string, manifest []byte) error {
	create := createFile
	if s.create != nil {
		create = s.create
	}
	return write(create, filepath.Join(dir, manifestName), func(w io.Writer) error {
		_, err := w.Write(manifest)
		return err
	})
}

// name gives a complete draft with this manifest its checkpoint's name.
func (s *Store) name(draft, final string, manifest []byte) error {
	if err := syncDir(draft); err != nil {
		return err
	}
	// A checkpoint of the same step may exist. An earlier run wrote it, before this run resumed from an older
	// checkpoint. It gets another name here, and is removed only once the new one is complete. Latest knows both names.
	old := final + replaced
	if _, err := os.Stat(final); err == nil {
		if err := os.RemoveAll(old); err != nil {
			return fmt.Errorf("checkpoint: %w", err)
		}
		if err := os.Rename(final, old); err != nil {
			return fmt.Errorf("checkpoint: %w", err)
		}
		// If the checkpoint that was just renamed has the same manifest, another process has committed it, without
		// knowing that the folder is shared. This draft then has none of the files.
		if text, _, err := readManifest(filepath.Join(old, manifestName)); err == nil && bytes.Equal(text, manifest) {
			if err := os.Rename(old, final); err != nil {
				return fmt.Errorf("checkpoint: %w", err)
			}
			return errors.Join(drop(draft), syncDir(s.Dir))
		}
	}
	if err := os.Rename(draft, final); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	if err := syncDir(s.Dir); err != nil {
		return err
	}
	if err := os.RemoveAll(old); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	return nil
}

// Abandon removes a draft that will not become a checkpoint. All processes that share the folder may call it.
func (s *Store) Abandon(draft string) error {
	path, err := s.Draft(draft)
	if err != nil {
		return err
	}
	return drop(path)
}

// Prune removes all drafts, which belong to finished runs. It also removes the oldest of the store's own checkpoints
// beyond Keep. Once the store has a checkpoint of its own, Prune also removes the checkpoints that SetOthersAside
// moved, if this run replaces the run that wrote them.
func (s *Store) Prune() error { return s.PruneBehind(math.MaxInt) }

// PruneBehind is like Prune, but keeps the drafts of checkpoints after more than this many steps, which are being
// written.
func (s *Store) PruneBehind(steps int) error {
	for s.Keep > 0 && len(s.own) > s.Keep {
		if err := drop(s.own[0]); err != nil {
			return err
		}
		s.own = s.own[1:]
	}
	if s.older != "" && len(s.own) > 0 {
		if err := errors.Join(Remove(s.older), os.Remove(filepath.Dir(s.older))); err != nil {
			return fmt.Errorf("checkpoint: %w", err)
		}
		s.older = ""
	}
	entries, err := os.ReadDir(s.Dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		of, ok := stepsOf(e.Name())
		if ok && of <= steps && e.IsDir() && strings.HasSuffix(e.Name(), partial) {
			err = errors.Join(err, os.RemoveAll(filepath.Join(s.Dir, e.Name())))
		}
	}
	if err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	return nil
}
