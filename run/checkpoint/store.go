package checkpoint

import (
	"bufio"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

const (
	manifestName = "manifest.json"
	prefix       = "step-"
	partial      = ".partial"  // being written, or left by a run that was cut short
	replaced     = ".replaced" // the older one of two for the same step, about to go
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Store is a directory of checkpoints, one directory each, named after the steps done. It drops
// none but its own: those that it has written, and those of the run that it continues.
type Store struct {
	Dir  string
	Keep int // how many of its own are kept, the newest ones; 0 keeps all

	own    []string                          // their paths, oldest first
	create func(path string) (output, error) // os.Create; tests make it fail
}

// output is what a file needs to be to be written safely.
type output interface {
	io.Writer
	Sync() error
	Close() error
}

// Draft is a checkpoint being written. Its name is not one that readers look at.
type Draft struct {
	store *Store
	path  string
	final string
	files []File
}

// Dir is where its files are to be written.
func (d *Draft) Dir() string { return d.path }

// Add takes files that WriteFile has written, in whichever process.
func (d *Draft) Add(files ...File) { d.files = append(d.files, files...) }

// Continue makes the checkpoint that a run goes on from, and those of its run before it, the store's own,
// where they lie in its directory.
func (s *Store) Continue(from *Checkpoint) error {
	here, err := os.Stat(s.Dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	there, errThere := os.Stat(filepath.Dir(from.Path))
	if err = errors.Join(err, errThere); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	if !os.SameFile(here, there) {
		return nil
	}
	found, err := list(s.Dir)
	for _, f := range found {
		if f.steps > from.Manifest.Steps {
			continue
		}
		m, unreadable := readManifest(filepath.Join(f.path, manifestName))
		if unreadable == nil && m.ModelID == from.Manifest.ModelID && m.Seed == from.Manifest.Seed {
			s.own = append(s.own, f.path)
		}
	}
	return err
}

// Holds says whether a checkpoint is one of the store's own.
func (s *Store) Holds(path string) bool {
	return slices.ContainsFunc(s.own, func(own string) bool { return filepath.Base(own) == filepath.Base(path) })
}

// Begin starts a checkpoint after `steps` steps. What an earlier run left half-written
// under the same name is removed.
func (s *Store) Begin(steps int) (*Draft, error) {
	final := filepath.Join(s.Dir, fmt.Sprintf("%s%08d", prefix, steps))
	d := &Draft{store: s, path: final + partial, final: final}
	if err := os.RemoveAll(d.path); err != nil {
		return nil, fmt.Errorf("checkpoint: %w", err)
	}
	if err := os.MkdirAll(d.path, 0o755); err != nil {
		return nil, fmt.Errorf("checkpoint: %w", err)
	}
	return d, nil
}

// WriteFile writes one stage's tensors into a Draft's directory and waits until they are on disk. Several
// goroutines, and processes, may write files of different names at once.
func WriteFile(dir, name string, tensors []Tensor) (File, error) {
	return writeTensors(createFile, dir, name, tensors)
}

func createFile(path string) (output, error) { return os.Create(path) }

func writeTensors(create func(path string) (output, error), dir, name string, tensors []Tensor) (File, error) {
	if !plainName(name) || name == manifestName {
		return File{}, fmt.Errorf("checkpoint: %q is no name for a file of tensors", name)
	}
	sum := crc32.New(castagnoli)
	var size counter
	err := write(create, filepath.Join(dir, name), func(w io.Writer) error {
		buffered := bufio.NewWriterSize(io.MultiWriter(w, sum, &size), 1<<20)
		if err := Write(buffered, tensors, nil); err != nil {
			return err
		}
		return buffered.Flush()
	})
	if err != nil {
		return File{}, err
	}
	return File{Name: name, Bytes: int64(size), CRC32C: fmt.Sprintf("%08x", sum.Sum32()), Tensors: len(tensors)}, nil
}

type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

// write makes a file and leaves it on disk, synced.
func write(create func(path string) (output, error), path string, fill func(io.Writer) error) error {
	f, err := create(path)
	if err != nil {
		return failed(path, err)
	}
	if err := fill(f); err != nil {
		return errors.Join(failed(path, err), f.Close())
	}
	if err := f.Sync(); err != nil {
		return errors.Join(failed(path, err), f.Close())
	}
	if err := f.Close(); err != nil {
		return failed(path, err)
	}
	return nil
}

// failed says which file could not be written, and what to do where the disk is full.
func failed(path string, err error) error {
	var at *fs.PathError
	if errors.As(err, &at) {
		err = at.Err // the path is said once
	}
	remedy := ""
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG) {
		remedy = "; the checkpoints before it are whole: make room or keep fewer, and resume"
	}
	return fmt.Errorf("checkpoint: write %s: %w%s", path, err, remedy)
}

// Commit writes the manifest and gives the checkpoint its name, then drops the store's oldest
// ones beyond Keep. It returns the checkpoint's path. After an error the draft is gone
// and everything older is as it was.
func (d *Draft) Commit(m Manifest) (string, error) {
	m.Version = Version
	m.Files = slices.SortedFunc(slices.Values(d.files), func(a, b File) int { return strings.Compare(a.Name, b.Name) })
	if err := d.commit(&m); err != nil {
		return "", errors.Join(err, d.Abort())
	}
	s := d.store
	s.own = append(slices.DeleteFunc(s.own, func(path string) bool { return path == d.final }), d.final)
	return d.final, errors.Join(s.prune(), d.sweep())
}

// sweep removes what a run that was killed left half-written, of no more steps than this checkpoint's.
func (d *Draft) sweep() error {
	entries, err := os.ReadDir(d.store.Dir)
	for _, e := range entries {
		name, left := strings.CutSuffix(e.Name(), partial)
		if left && strings.HasPrefix(name, prefix) && name <= filepath.Base(d.final) { // steps have leading zeros
			err = errors.Join(err, os.RemoveAll(filepath.Join(d.store.Dir, e.Name())))
		}
	}
	if err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	return nil
}

func (d *Draft) commit(m *Manifest) error {
	text, err := m.encode()
	if err != nil {
		return err
	}
	if _, err := decodeManifest(text); err != nil {
		return fmt.Errorf("checkpoint: manifest: %w", err)
	}
	create := createFile
	if d.store.create != nil {
		create = d.store.create
	}
	err = write(create, filepath.Join(d.path, manifestName), func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
	if err != nil {
		return err
	}
	if err := syncDir(d.path); err != nil {
		return err
	}
	// A checkpoint of the same step, left by a run that was resumed from an older one,
	// gives way only once the new one is whole; Latest knows both names.
	old := d.final + replaced
	if _, err := os.Stat(d.final); err == nil {
		if err := os.RemoveAll(old); err != nil {
			return fmt.Errorf("checkpoint: %w", err)
		}
		if err := os.Rename(d.final, old); err != nil {
			return fmt.Errorf("checkpoint: %w", err)
		}
	}
	if err := os.Rename(d.path, d.final); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	if err := syncDir(d.store.Dir); err != nil {
		return err
	}
	if err := os.RemoveAll(old); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	return nil
}

// Abort removes the draft.
func (d *Draft) Abort() error {
	if err := os.RemoveAll(d.path); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	return nil
}

func syncDir(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	if err := f.Sync(); err != nil {
		return errors.Join(fmt.Errorf("checkpoint: %s: %w", path, err), f.Close())
	}
	return f.Close()
}

func (s *Store) prune() error {
	for s.Keep > 0 && len(s.own) > s.Keep {
		if err := drop(s.own[0]); err != nil {
			return err
		}
		s.own = s.own[1:]
	}
	return nil
}
