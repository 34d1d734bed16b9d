package checkpoint

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// Checkpoint is a checkpoint opened for reading. Its methods may be called from several goroutines.
type Checkpoint struct {
	Path     string // path of its directory on this host, which may not exist if other hosts have the files
	Manifest *Manifest
	text     []byte // the manifest's text
	newer    bool   // a later checkpoint may be complete even if this host has only its draft (Spread.Newer)
	parts    []*part
	where    map[string][]section // by tensor, in ascending order of rows
	names    rowNames
	ctx      context.Context // Interrupt ends it
	cancel   context.CancelCauseFunc
	open     []io.Closer // closed by Close
	closing  sync.Once
}

func newCheckpoint(path string, m *Manifest, text []byte) *Checkpoint {
	c := &Checkpoint{Path: path, Manifest: m, text: text, where: map[string][]section{}, names: m.rowNames()}
	c.ctx, c.cancel = context.WithCancelCause(context.Background())
	return c
}

// part is a file of a checkpoint, on this host or another. When any of its content is first needed, the file is
// compared with its checksum and its header is read.
type part struct {
	want File
	find func(context.Context) (io.ReaderAt, error) // finds the undamaged file

	once  sync.Once
	from  io.ReaderAt
	index *Index
	err   error
}

// begin finds the undamaged file and reads its header, once.
func (p *part) begin(ctx context.Context) error {
	p.once.Do(func() {
		if p.from, p.err = p.find(ctx); p.err == nil {
			p.index, p.err = p.want.header(p.from)
		}
	})
	return p.err
}

// header reads a file's list of tensors. It returns an error if their number is not the number in the manifest.
func (f File) header(from io.ReaderAt) (*Index, error) {
	x, err := ReadIndex(from, f.Bytes)
	if err == nil && len(x.names) != f.Tensors {
		err = fmt.Errorf("%d tensors; the manifest says %d", len(x.names), f.Tensors)
	}
	return x, err
}

// add adds a part with tensors of these names.
func (c *Checkpoint) add(p *part, names []string) error {
	for _, name := range names {
		tensor, first, end, _ := c.names.of(name)
		sections, twice := put(c.where[tensor], section{len(c.parts), name, first, end})
		if twice != nil {
			return fmt.Errorf("tensor %q is in %s too", name, c.fileOf(*twice, p))
		}
		c.where[tensor] = sections
	}
	c.parts = append(c.parts, p)
	return nil
}

// fileOf returns the name of a section's file. This may be the file of `adding`, which is not in c.parts yet.
func (c *Checkpoint) fileOf(s section, adding *part) string {
	if s.part < len(c.parts) {
		adding = c.parts[s.part]
	}
	return adding.want.Name
}

// maxManifest bounds the text of a manifest that is read. A plan of thousands of stages is far smaller.
const maxManifest = 64 << 20

// DamagedError says that the newest checkpoint of a directory cannot be read. No older one is used in its place:
// that is the user's decision.
type DamagedError struct {
	Err   error  // what is wrong, with the checkpoint's name
	Whole string // the newest complete checkpoint before it; empty if none
}

func (e *DamagedError) Error() string {
	if e.Whole == "" {
		return e.Err.Error() + "; no checkpoint before it is whole"
	}
	return fmt.Sprintf("%v; the newest whole one before it is %s", e.Err, e.Whole)
}

func (e *DamagedError) Unwrap() error { return e.Err }

// Open opens the checkpoint in a directory, or the latest one of a store's directory. It checks all of it: the
// manifest, every header, and every file's checksum. If the latest checkpoint of a directory is damaged, the error
// is a DamagedError.
func Open(path string) (*Checkpoint, error) {
	if _, err := os.Stat(filepath.Join(path, manifestName)); !errors.Is(err, os.ErrNotExist) || namesSteps(path) {
		return open(named(path))
	}
	found, err := list(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, &noneError{fmt.Sprintf("checkpoint: there is no %s; "+remedy, path)}
	}
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, noneIn(path)
	}
	last := len(found) - 1
	c, err := open(found[last].path)
	if err == nil {
		return c, nil
	}
	damaged := &DamagedError{Err: err}
	for _, s := range slices.Backward(found[:last]) {
		if older, err := open(s.path); err == nil {
			damaged.Whole = s.path
			return nil, errors.Join(damaged, older.Close())
		}
	}
	return nil, damaged
}

// named returns a checkpoint's path under the name that its store gave it. It resolves links and paths like ".".
func named(path string) string {
	full, err := filepath.Abs(path)
	if err == nil {
		full, err = filepath.EvalSymlinks(full)
	}
	if namesSteps(path) || err != nil || !namesSteps(full) {
		return path
	}
	return full
}

// namesSteps reports whether a path has the name of a single checkpoint.
func namesSteps(path string) bool {
	_, ok := stepsOf(filepath.Base(path))
	return ok
}

// beside names up to four other checkpoints in the folder of a path, the newest first.
func beside(path string) string {
	all, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "step-*", manifestName)) // an error leaves no names
	slices.Reverse(all)
	var names []string
	for _, at := range all[:min(4, len(all))] {
		names = append(names, filepath.Base(filepath.Dir(at)))
	}
	if len(names) == 0 {
		return ""
	}
	return "; beside it are " + strings.Join(names, ", ")
}

// open opens one checkpoint and checks it.
func open(path string) (*Checkpoint, error) {
	at := filepath.Join(path, manifestName)
	text, m, err := readManifest(at)
	if _, gone := os.Stat(path); errors.Is(gone, os.ErrNotExist) {
		return nil, fmt.Errorf("checkpoint: there is no %s%s", path, beside(path))
	}
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("checkpoint: %s has no %s: it is none, or not whole", path, manifestName)
	}
	if err != nil {
		return nil, fmt.Errorf("checkpoint: %s: %w", at, err)
	}
	if steps, ok := stepsOf(filepath.Base(path)); ok && steps != m.Steps {
		return nil, fmt.Errorf("checkpoint: %s: steps is %d, and the folder is that of %d steps: "+
			"one of the two has changed since it was written",
			at, m.Steps, steps)
	}
	c := newCheckpoint(path, m, text)
	for _, f := range m.Files {
		if err := c.takeFile(f); err != nil {
			return nil, errors.Join(fmt.Errorf("checkpoint: %s: %w", filepath.Join(path, f.Name), err), c.Close())
		}
	}
	return c, nil
}

// takeFile adds a file of the checkpoint's own directory and reads it to its end.
func (c *Checkpoint) takeFile(f File) error {
	one, err := openFile(filepath.Join(c.Path, f.Name), f)
	if errors.Is(err, os.ErrNotExist) && f.Host != "" {
		return fmt.Errorf("it is not here, and was written on host %s: %w", f.Host, err)
	}
	if err != nil {
		return err
	}
	c.open = append(c.open, one)
	p := &part{want: f, find: func(ctx context.Context) (io.ReaderAt, error) { return one, one.check(ctx) }}
	if err := p.begin(c.ctx); err != nil {
		return err
	}
	return c.add(p, p.index.names)
}

// readManifest reads and checks the manifest in a file.
func readManifest(path string) ([]byte, *Manifest, error) {
	f, size, err := openRegular(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	if size > maxManifest {
		return nil, nil, fmt.Errorf("%d bytes; a manifest has at most %d", size, int64(maxManifest))
	}
	text, err := io.ReadAll(io.LimitReader(f, maxManifest))
	if err != nil {
		return nil, nil, err
	}
	m, err := decodeManifest(text)
	return text, m, err
}

// openRegular opens a regular file. It refuses anything else, because opening or reading a pipe or device may never
// end.
func openRegular(path string) (*os.File, int64, error) {
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("it is no regular file (%v)", info.Mode().Type())
	}
	if err != nil {
		return nil, 0, err
	}
	f, err := os.Open(path)
	return f, info.Size(), err
}

// local is a file on this host. If there are several candidates, check finds the first undamaged one.
type local struct {
	copies []counted
	want   File

	mu      sync.Mutex
	checked bool
	wrong   error // result of check
	chosen  int
}

// openFile opens a file that has the manifest's length.
func openFile(path string, want File) (*local, error) {
	f, size, err := openRegular(path)
	if err != nil {
		return nil, err
	}
	if size != want.Bytes {
		return nil, errors.Join(fmt.Errorf("%d bytes; the manifest says %d: the file is cut short or not the one that was "+
			"written", size, want.Bytes), f.Close())
	}
	return &local{copies: []counted{{f}}, want: want}, nil
}

// ReadAt reads the chosen file; check must have been called.
func (f *local) ReadAt(into []byte, at int64) (int, error) {
	return f.copies[f.chosen].ReadAt(into, at)
}

func (f *local) Close() (err error) {
	for _, c := range f.copies {
		err = errors.Join(err, c.Close())
	}
	return err
}

// check compares the whole file with its checksum, once. If the file could not be read, the next call tries again. If
// the context ends first, it returns the context's error.
func (f *local) check(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.checked {
		return f.wrong
	}
	var wrong, unread error
	for i, c := range f.copies {
		got, err := checksumOf(ctx, c, f.want.Bytes)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			unread = cmp.Or(unread, err)
		case got == f.want.CRC32C:
			f.chosen, f.checked = i, true
			return nil
		case wrong == nil:
			wrong = fmt.Errorf("checksum %s; the manifest says %s: the file has changed since it was written", got,
				f.want.CRC32C)
		}
	}
	if unread != nil {
		return unread
	}
	f.wrong, f.checked = wrong, true
	return wrong
}

// checksumOf returns the checksum of n bytes.
func checksumOf(ctx context.Context, of io.ReaderAt, n int64) (string, error) {
	sum := crc32.New(castagnoli)
	from := io.NewSectionReader(of, 0, n)
	for ctx.Err() == nil {
		n, err := io.CopyN(sum, from, 1<<20)
		if err != nil && !errors.Is(err, io.EOF) {
			return "", err
		}
		if n == 0 {
			break
		}
	}
	return fmt.Sprintf("%08x", sum.Sum32()), ctx.Err()
}

// isIn reports whether a directory has this file, undamaged.
func (f File) isIn(dir string) bool {
	one, err := openFile(filepath.Join(dir, f.Name), f)
	if err != nil {
		return false
	}
	defer one.Close()
	return one.check(context.Background()) == nil
}

// Names returns the names of all tensors of the checkpoint, sorted.
func (c *Checkpoint) Names() []string {
	names := make([]string, 0, len(c.where))
	for n := range c.where {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// Tensor reads one tensor, from whichever files have it or its rows.
func (c *Checkpoint) Tensor(name string) (Tensor, error) {
	dtype, shape, in, err := c.described(name)
	if err != nil {
		return Tensor{}, err
	}
	t := Tensor{Name: name, DType: dtypes[dtype], Shape: shape}
	for _, s := range in {
		p := c.parts[s.part]
		one, err := p.index.Read(p.from, s.name)
		if err != nil {
			return Tensor{}, err
		}
		if len(in) == 1 {
			t.Data = one.Data // the only section is not copied
		} else {
			t.Data = append(t.Data, one.Data...)
		}
	}
	return t, nil
}

// Close closes the files, and the Shelf if the checkpoint came from one. Manifest and Path can still be used. A second
// call does nothing.
func (c *Checkpoint) Close() (err error) {
	c.Interrupt()
	c.closing.Do(func() {
		for _, f := range c.open {
			err = errors.Join(err, f.Close())
		}
	})
	return err
}

// Interrupt ends connections to other processes and comparisons with checksums. Tensors that need one of these cannot
// be read afterwards.
func (c *Checkpoint) Interrupt() { c.cancel(errEnded) }

var errEnded = errors.New("nobody wants it any more")
