package checkpoint

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// saved is a checkpoint's directory in a store.
type saved struct {
	steps int
	path  string
	old   bool // another checkpoint of the same step has replaced this one
}

// list returns the checkpoints of a directory, oldest first.
func list(dir string) ([]saved, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("checkpoint: %w", err)
	}
	var found []saved
	for _, e := range entries {
		if steps, ok := stepsOf(e.Name()); ok && e.IsDir() && !strings.HasSuffix(e.Name(), partial) {
			found = append(found, saved{steps, filepath.Join(dir, e.Name()), strings.HasSuffix(e.Name(), replaced)})
		}
	}
	slices.SortFunc(found, func(a, b saved) int {
		if a.steps != b.steps {
			return a.steps - b.steps
		}
		if a.old == b.old {
			return 0
		}
		if a.old {
			return -1
		}
		return 1
	})
	return found, nil
}

// ofTraining returns the checkpoints of a directory that belong to the same training as m, oldest first.
func ofTraining(dir string, m *Manifest) ([]saved, error) {
	found, err := list(dir)
	return slices.DeleteFunc(found, func(f saved) bool {
		_, other, err := readManifest(filepath.Join(f.path, manifestName))
		return err != nil || !other.isOf(m)
	}), err
}

// IsOfAnother reports whether a directory has checkpoints of other trainings than m, and none of m's. Checkpoints with
// unreadable manifests do not count.
func IsOfAnother(dir string, m *Manifest) (bool, error) {
	all, err := list(dir)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	another := false
	for _, f := range all {
		_, other, err := readManifest(filepath.Join(f.path, manifestName))
		switch {
		case err != nil:
		case other.isOf(m):
			return false, nil
		default:
			another = true
		}
	}
	return another, err
}

// isOf reports whether two manifests belong to the same training.
func (m *Manifest) isOf(o *Manifest) bool { return m.training() == o.training() }

// training returns a text that identifies the training.
func (m *Manifest) training() string {
	return fmt.Sprintf("%s, seed %d, %s", m.ModelID, m.Seed, m.Training)
}

// NameOf returns the name of the directory of a checkpoint after this many steps.
func NameOf(steps int) string { return fmt.Sprintf("%s%08d", prefix, steps) }

// stepsOf returns the steps in the name of a checkpoint's or a draft's directory.
func stepsOf(name string) (int, bool) {
	digits, ok := strings.CutPrefix(name, prefix)
	if strings.HasSuffix(digits, partial) || strings.HasSuffix(digits, replaced) {
		digits, _, _ = strings.Cut(digits, ".")
	}
	steps, err := strconv.Atoi(digits)
	return steps, ok && err == nil && steps >= 0
}

// draftsOf returns the paths of a directory's drafts of checkpoints after this many steps.
func draftsOf(dir string, steps int) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("checkpoint: %w", err)
	}
	var all []string
	for _, e := range entries {
		n, ok := stepsOf(e.Name())
		if ok && n == steps && e.IsDir() && strings.HasSuffix(e.Name(), partial) {
			all = append(all, filepath.Join(dir, e.Name()))
		}
	}
	return all, nil
}

// Unfinished returns the names of a directory's drafts for checkpoints after more than this many steps. It leaves out
// drafts that have no files except marks.
func Unfinished(dir string, steps int) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("checkpoint: %w", err)
	}
	var all []string
	for _, e := range entries {
		at, ok := stepsOf(e.Name())
		if !ok || !e.IsDir() || at <= steps || !strings.HasSuffix(e.Name(), partial) || strings.HasSuffix(e.Name(), gone) {
			continue
		}
		files, err := os.ReadDir(filepath.Join(dir, e.Name()))
		if err != nil && !errors.Is(err, os.ErrNotExist) { // if the draft does not exist, another process has removed it
			return nil, fmt.Errorf("checkpoint: %w", err)
		}
		if slices.ContainsFunc(files, func(f os.DirEntry) bool { return !strings.HasPrefix(f.Name(), mark) }) {
			all = append(all, e.Name())
		}
	}
	return all, nil
}

// drop removes a checkpoint or a draft. It first renames the directory, so that no process sees a part of a checkpoint
// or still writes to a draft.
func drop(path string) error {
	to := strings.TrimSuffix(path, partial) + gone
	err := os.Rename(path, to)
	if err == nil || errors.Is(err, os.ErrNotExist) { // renamed here, or by another process before
		err = os.RemoveAll(to)
	} else {
		err = os.RemoveAll(path)
	}
	if err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	return nil
}

// Remove removes all checkpoints and drafts of a directory, and the directory if nothing else is in it.
func Remove(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	others := 0
	for _, e := range entries {
		if _, ok := stepsOf(e.Name()); !ok || !e.IsDir() {
			others++
			continue
		}
		if err := drop(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	if others > 0 {
		return nil
	}
	if err := os.Remove(dir); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	return nil
}

// Within returns the path of the checkpoint that a path names or lies in; empty if there is no such checkpoint. Callers
// put no file there, since it would be removed together with the checkpoint.
func Within(path string) string {
	at, err := filepath.Abs(path)
	if err != nil {
		return ""
	}
	for ; at != filepath.Dir(at); at = filepath.Dir(at) {
		if real, err := filepath.EvalSymlinks(at); err == nil { // a path that does not exist yet cannot be resolved
			at = real
		}
		if _, err := os.Stat(filepath.Join(at, manifestName)); err == nil && namesSteps(at) {
			return at
		}
	}
	return ""
}

// Later returns the names of the checkpoints of a directory with more than this many steps, oldest first.
func Later(dir string, steps int) ([]string, error) {
	found, err := list(dir)
	var names []string
	for _, f := range found {
		if f.steps > steps {
			names = append(names, filepath.Base(f.path))
		}
	}
	return names, err
}

// SetAside moves checkpoints to another directory, which it creates. It moves the last name first. So if it is
// interrupted, the remaining checkpoints have no gap.
func SetAside(dir, to string, names []string) error {
	if err := os.MkdirAll(to, 0o755); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	for _, name := range slices.Backward(names) {
		if err := os.Rename(filepath.Join(dir, name), filepath.Join(to, name)); err != nil {
			return fmt.Errorf("checkpoint: %w", err)
		}
	}
	return errors.Join(syncDir(to), syncDir(dir))
}

// ErrNone matches the errors of Open, Inspect, Among and Latest if there is no checkpoint, complete or damaged, or no
// such directory. A run makes the directory with its first checkpoint.
var ErrNone = errors.New("checkpoint: none is there")

// remedy says what to pass if there is no checkpoint.
const remedy = "give a checkpoint, or the folder of checkpoints that a run has left"

type noneError struct{ text string }

func (e *noneError) Error() string        { return e.text }
func (e *noneError) Is(target error) bool { return target == ErrNone }

func noneIn(dir string) error {
	return &noneError{fmt.Sprintf("checkpoint: %s holds no %s directory; "+remedy, dir, prefix+"N")}
}

// Latest returns the path of the newest checkpoint in a store's directory. If there is none, or no such directory, the
// error matches ErrNone.
func Latest(dir string) (string, error) {
	found, err := list(dir)
	if errors.Is(err, os.ErrNotExist) {
		return "", &noneError{fmt.Sprintf("checkpoint: there is no %s; "+remedy, dir)}
	}
	if err != nil {
		return "", err
	}
	if len(found) == 0 {
		return "", noneIn(dir)
	}
	return found[len(found)-1].path, nil
}
