package checkpoint

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
)

// Checkpoint is a checkpoint opened for reading. Its methods may be called from several
// goroutines.
type Checkpoint struct {
	Path     string
	Manifest *Manifest
	files    []*os.File
	indexes  []*Index
	where    map[string]int // tensor -> file
}

// Open opens the checkpoint in a directory, or the latest one of a store's directory, and
// checks all of it: the manifest, every header, every byte's checksum.
func Open(path string) (*Checkpoint, error) {
	if _, err := os.Stat(filepath.Join(path, manifestName)); errors.Is(err, os.ErrNotExist) {
		latest, err := Latest(path)
		if errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("checkpoint: there is no %s; give a checkpoint, or the folder of checkpoints that a run has left", path)
		}
		if err != nil {
			return nil, err
		}
		path = latest
	}
	text, err := os.ReadFile(filepath.Join(path, manifestName))
	if err != nil {
		return nil, fmt.Errorf("checkpoint: %w", err)
	}
	m, err := decodeManifest(text)
	if err != nil {
		return nil, fmt.Errorf("checkpoint: %s: %w", filepath.Join(path, manifestName), err)
	}
	c := &Checkpoint{Path: path, Manifest: m, where: map[string]int{}}
	for _, f := range m.Files {
		if err := c.add(f); err != nil {
			return nil, errors.Join(fmt.Errorf("checkpoint: %s: %w", filepath.Join(path, f.Name), err), c.Close())
		}
	}
	return c, nil
}

// add opens and checks one file.
func (c *Checkpoint) add(want File) error {
	f, err := os.Open(filepath.Join(c.Path, want.Name))
	if err != nil {
		return err
	}
	c.files = append(c.files, f)
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.Size() != want.Bytes {
		return fmt.Errorf("%d bytes; the manifest says %d: the file is cut short or not the one that was written", info.Size(), want.Bytes)
	}
	sum := crc32.New(castagnoli)
	if _, err := io.Copy(sum, f); err != nil {
		return err
	}
	if got := fmt.Sprintf("%08x", sum.Sum32()); got != want.CRC32C {
		return fmt.Errorf("checksum %s; the manifest says %s: the file has changed since it was written", got, want.CRC32C)
	}
	x, err := ReadIndex(f, info.Size())
	if err != nil {
		return err
	}
	if len(x.names) != want.Tensors {
		return fmt.Errorf("%d tensors; the manifest says %d", len(x.names), want.Tensors)
	}
	c.indexes = append(c.indexes, x)
	for _, name := range x.names {
		if other, twice := c.where[name]; twice {
			return fmt.Errorf("tensor %q is in %s too", name, c.Manifest.Files[other].Name)
		}
		c.where[name] = len(c.indexes) - 1
	}
	return nil
}

// Names is every tensor of the checkpoint, sorted.
func (c *Checkpoint) Names() []string {
	names := make([]string, 0, len(c.where))
	for n := range c.where {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// Has says whether a tensor is there.
func (c *Checkpoint) Has(name string) bool {
	_, ok := c.where[name]
	return ok
}

// Tensor reads one tensor, whichever file it is in.
func (c *Checkpoint) Tensor(name string) (Tensor, error) {
	i, ok := c.where[name]
	if !ok {
		return Tensor{}, fmt.Errorf("checkpoint: %s: there is no tensor %q", c.Path, name)
	}
	return c.indexes[i].Read(c.files[i], name)
}

// Close closes the files.
func (c *Checkpoint) Close() error {
	var errs []error
	for _, f := range c.files {
		errs = append(errs, f.Close())
	}
	c.files = nil
	return errors.Join(errs...)
}
