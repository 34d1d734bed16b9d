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
	"regexp"
	"slices"
	"strings"
	"syscall"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Seal returns the text of a manifest that lists these files.
func Seal(m Manifest, files []File) ([]byte, error) {
	m.Version = Version
	m.Files = slices.SortedFunc(slices.Values(files), func(a, b File) int { return strings.Compare(a.Name, b.Name) })
	text, err := m.encode()
	if err != nil {
		return nil, err
	}
	if _, err := decodeManifest(text); err != nil {
		return nil, fmt.Errorf("checkpoint: manifest: %w", err)
	}
	return text, nil
}

// MakeDraft creates a draft's directory, if it does not exist.
func MakeDraft(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return failed(dir, err)
	}
	return nil
}

// WriteFile writes one stage's tensors into a draft's directory and waits until they are on disk. Several goroutines
// and processes may write files of different names concurrently.
func WriteFile(dir, name string, tensors []Tensor) (File, error) {
	return writeTensors(createFile, dir, name, tensors)
}

func createFile(path string) (output, error) {
	f, err := os.Create(path)
	return counted{f}, err
}

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

// write creates a file and syncs it to disk.
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

// runNumber matches the run's number in a DraftName. Errors leave the number out, because it does not help their
// readers.
var runNumber = regexp.MustCompile(`\.[0-9a-f]{16}\.partial`)

// failed adds the file to an error of writing, and advice if the disk is full.
func failed(path string, err error) error {
	var at *fs.PathError
	if errors.As(err, &at) {
		err = at.Err // without its path, because the path is added below
	}
	remedy := ""
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG) {
		remedy = "; the checkpoints before it are whole: make room or keep fewer, and resume"
	}
	return fmt.Errorf("checkpoint: write %s: %w%s", runNumber.ReplaceAllString(path, partial), err, remedy)
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
