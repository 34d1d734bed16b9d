package checkpoint

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// Shelf gives access to the checkpoints at a path on this host. A file is opened on request, compared with its
// checksum once, and stays open until the Shelf is closed. Its methods may be called from several goroutines.
type Shelf struct {
	dir    string // the checkpoint folder
	only   int    // number of steps if the path names one checkpoint; -1 otherwise
	ctx    context.Context
	cancel context.CancelCauseFunc

	mu       sync.Mutex
	files    map[wanted]*local
	manifest *Manifest // of the checkpoint to resume from; nil until known
}

// wanted is a file of a checkpoint after this many steps.
type wanted struct {
	steps int
	File
}

// NewShelf returns the Shelf of a path; see Folder.
func NewShelf(path string) *Shelf {
	s := &Shelf{files: map[wanted]*local{}}
	s.dir, s.only = folder(path)
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	return s
}

// folder returns the checkpoint folder of a path, and the number of steps if the path names one checkpoint; -1
// otherwise.
func folder(path string) (string, int) {
	path = named(Folder(path))
	if steps, ok := stepsOf(filepath.Base(path)); ok {
		return filepath.Dir(path), steps
	}
	return path, -1
}

// NamesOne reports whether a path names one checkpoint rather than a folder.
func NamesOne(path string) bool {
	_, only := folder(path)
	return only >= 0
}

// Close closes the files and ends all reads. A second call does nothing.
func (s *Shelf) Close() error {
	s.cancel(errEnded)
	s.mu.Lock()
	defer s.mu.Unlock()
	var all error
	for _, f := range s.files {
		all = errors.Join(all, f.Close())
	}
	s.files = nil
	return all
}

// Survey lists the checkpoint files in a process's folder, using only manifests and the names and lengths of files.
type Survey struct {
	Host    string  `json:"host,omitempty"`   // its name in errors
	Folder  string  `json:"folder,omitempty"` // the folder's path
	Copies  []Copy  `json:"copies,omitempty"`
	Files   []Held  `json:"files,omitempty"`
	Damaged []Fault `json:"damaged,omitempty"`
}

// Digest returns a text that differs for different Surveys.
func (s *Survey) Digest() string {
	text, _ := json.Marshal(s) // only strings and numbers, so no error
	return digest(text)
}

// Copy describes a readable manifest in a directory that has the name of the manifest's checkpoint.
type Copy struct {
	Steps    int    `json:"steps"`
	SHA256   string `json:"sha256"`   // digest of the manifest's text
	Training string `json:"training"` // identifies the training that the checkpoint belongs to
}

// Held is a file of a checkpoint, or of a draft that a crash has left.
type Held struct {
	Steps int    `json:"steps"`
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
}

// Fault is a checkpoint with an unreadable manifest, and the reason.
type Fault struct {
	Steps int    `json:"steps"`
	Why   string `json:"why"`
}

// Look lists what is at the path: a checkpoint, or a folder of them. A missing path gives an empty Survey.
func (s *Shelf) Look() (Survey, error) {
	var all Survey
	entries, err := os.ReadDir(s.dir)
	if errors.Is(err, os.ErrNotExist) {
		return all, nil
	}
	if err != nil {
		return all, fmt.Errorf("checkpoint: %w", err)
	}
	all.Folder = s.dir
	for _, e := range entries {
		steps, ok := stepsOf(e.Name())
		if !ok || !e.IsDir() || s.only >= 0 && steps != s.only {
			continue
		}
		at := filepath.Join(s.dir, e.Name())
		if !strings.HasSuffix(e.Name(), partial) {
			text, m, err := readManifest(filepath.Join(at, manifestName))
			switch {
			case err != nil:
				all.Damaged = append(all.Damaged, Fault{steps, fmt.Sprintf("%s: %v", at, unnamed(err))})
			case m.Steps != steps:
				all.Damaged = append(all.Damaged, Fault{steps, fmt.Sprintf("%s: its manifest is of step %d", at, m.Steps)})
			default:
				all.Copies = append(all.Copies, Copy{steps, digest(text), m.training()})
			}
		}
		files, err := os.ReadDir(at)
		if err != nil {
			return all, fmt.Errorf("checkpoint: %w", err)
		}
		for _, f := range files {
			if info, err := os.Stat(filepath.Join(at, f.Name())); err == nil && info.Mode().IsRegular() {
				all.Files = append(all.Files, Held{steps, f.Name(), info.Size()})
			}
		}
	}
	return all, nil
}

// unnamed removes the path from an error, because the caller adds it.
func unnamed(err error) error {
	var at *os.PathError
	if errors.As(err, &at) {
		return at.Err
	}
	return err
}

func digest(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// Text returns a manifest that Look has found.
func (s *Shelf) Text(of Copy) (string, error) {
	for _, name := range []string{NameOf(of.Steps), NameOf(of.Steps) + replaced} {
		text, _, err := readManifest(filepath.Join(s.dir, name, manifestName))
		if err == nil && digest(text) == of.SHA256 {
			return string(text), nil
		}
	}
	return "", fmt.Errorf("checkpoint: the manifest of step %d in %s has changed meanwhile", of.Steps, s.dir)
}

// Verdict is the result of Check for a file.
type Verdict struct {
	Wrong   string   `json:"wrong,omitempty"`   // why it is damaged; empty if it is not
	Tensors []string `json:"tensors,omitempty"` // names of its tensors
}

// Check compares files with their checksums and returns the result for each. If the context ends first, it returns the
// context's error.
func (s *Shelf) Check(ctx context.Context, steps int, files []File) (map[string]Verdict, error) {
	all := map[string]Verdict{}
	for _, f := range files {
		var v Verdict
		one, err := s.take(steps, f)
		if err == nil {
			err = one.check(ctx)
		}
		if err == nil {
			var x *Index
			if x, err = f.header(one); err == nil {
				v.Tensors = x.names
			}
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err != nil {
			v.Wrong = err.Error()
		}
		all[f.Name] = v
	}
	return all, nil
}

// take opens a file with the right length, from a checkpoint or from drafts of it. If there are several such files,
// local.check finds the one with the right checksum. take holds the lock, so it does not read the file: that would
// delay requests for other files.
func (s *Shelf) take(steps int, f File) (*local, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.files == nil {
		return nil, errEnded
	}
	key := wanted{steps, f}
	if one := s.files[key]; one != nil {
		return one, nil
	}
	one, err := lying(s.dir, steps, f)
	if err == nil {
		s.files[key] = one
	}
	return one, err
}

// lying opens every copy of a file that has the right length. Copies may be in the checkpoint, in an older checkpoint
// of the same step that this checkpoint replaces, and in drafts.
func lying(dir string, steps int, want File) (*local, error) {
	dirs, err := draftsOf(dir, steps)
	if err != nil {
		return nil, err
	}
	dirs = append([]string{filepath.Join(dir, NameOf(steps)), filepath.Join(dir, NameOf(steps)+replaced)}, dirs...)
	var first error
	found := &local{want: want}
	for _, at := range dirs {
		f, err := openFile(filepath.Join(at, want.Name), want)
		if err == nil {
			found.copies = append(found.copies, f.copies...)
		} else if first == nil || errors.Is(first, os.ErrNotExist) {
			first = err
		}
	}
	if len(found.copies) == 0 {
		return nil, first
	}
	return found, nil
}

// At returns the path of a checkpoint after this many steps, whether it exists or not.
func (s *Shelf) At(steps int) string { return filepath.Join(s.dir, NameOf(steps)) }

// Take makes the Shelf serve the files of the checkpoint to resume from. It returns the path of the checkpoint on
// this host, whether it exists or not, and its manifest.
func (s *Shelf) Take(from *Spread) (path string, m *Manifest, err error) {
	if m, err = decodeManifest([]byte(from.Manifest)); err != nil {
		return "", nil, fmt.Errorf("checkpoint: manifest: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.manifest = m
	return s.At(m.Steps), m, nil
}

// listed returns a file from the manifest of the checkpoint to resume from, and the steps of that checkpoint. It
// returns nil if the manifest has no file of that name.
func (s *Shelf) listed(name string) (*File, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.manifest == nil {
		return nil, 0
	}
	for _, f := range s.manifest.Files {
		if f.Name == name {
			return &f, s.manifest.Steps
		}
	}
	return nil, s.manifest.Steps
}

// Open opens a spread checkpoint; closing the checkpoint closes the Shelf. If a file is undamaged on the process's own
// host, the process reads it there. Otherwise it reads the file over a connection to a process that has it. Nothing is
// read or connected before a tensor is needed.
func (s *Shelf) Open(from *Spread, rank int, dial func(process int) (io.ReadWriteCloser, error)) (*Checkpoint, error) {
	path, m, err := s.Take(from)
	if err != nil {
		return nil, err
	}
	c := newCheckpoint(path, m, []byte(from.Manifest))
	c.open, c.newer = []io.Closer{s}, from.Newer
	there := map[int]*remote{}
	for _, f := range m.Files {
		process, ok := from.Where[f.Name]
		if !ok {
			return nil, errors.Join(fmt.Errorf("checkpoint: no process has %s of step %d", f.Name, m.Steps), c.Close())
		}
		if there[process] == nil {
			there[process] = &remote{ctx: c.ctx, process: process, silence: silence,
				dial: func() (io.ReadWriteCloser, error) { return dial(process) }}
		}
		p := &part{want: f, find: func(ctx context.Context) (io.ReaderAt, error) {
			here, err := s.take(m.Steps, f)
			if err == nil {
				err = here.check(ctx)
			}
			if err == nil || process == rank || ctx.Err() != nil {
				return here, err
			}
			return &elsewhere{of: there[process], want: f}, nil // this host has no copy, or a damaged one
		}}
		if err := c.add(p, from.Tensors[f.Name]); err != nil {
			return nil, errors.Join(fmt.Errorf("checkpoint: %s: %w", filepath.Join(path, f.Name), err), c.Close())
		}
	}
	return c, nil
}
