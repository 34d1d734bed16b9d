// Package document reads and writes the files of profiles, plans, timelines and other values.
//
// Input: a value, or the bytes of a JSON object with a version. Output: the file, written completely or not at all, or
// the value. It refuses truncated files, other versions and unknown fields, which would be lost at the next writing. It
// also refuses files that are too long or would need too much memory, and paths that are no files (Open says which).
// Errors say what is wrong. The errors of a Store also name its package and say what the user can do.
package document

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// ErrCut matches the error for a text that is not a complete JSON object.
var ErrCut = errors.New("not a whole JSON object")

// Unmarked returns a text without the byte order mark that some editors add.
func Unmarked(text []byte) []byte { return bytes.TrimPrefix(text, []byte("\ufeff")) }

// Decode decodes text, a JSON object of the given version, into a pointer. It checks the version first, because a file
// of another version may have other fields.
func Decode(text []byte, version int, into any) error {
	text = Unmarked(text)
	if err := Bounded(text, MaxObjects); err != nil {
		return err
	}
	var head struct {
		Version *int `json:"version"`
	}
	var other *json.UnmarshalTypeError
	switch err := json.Unmarshal(text, &head); {
	case errors.As(err, &other) && other.Field == "":
		return fmt.Errorf("%w (it is of type %s)", ErrCut, other.Value)
	case err != nil:
		return fmt.Errorf("%w (%w)", ErrCut, err)
	}
	if head.Version == nil {
		return fmt.Errorf("version is none; this millrace reads version %d", version)
	}
	if *head.Version != version {
		return fmt.Errorf("version is %d; this millrace reads version %d", *head.Version, version)
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	return inWords(dec.Decode(into))
}

// inWords says which JSON value was wrong, without the Go type.
func inWords(err error) error {
	var kind *json.UnmarshalTypeError
	if errors.As(err, &kind) {
		return fmt.Errorf("%s is a JSON %s, which it cannot be", cmp.Or(kind.Field, "it"), kind.Value)
	}
	if err == nil {
		return nil
	}
	if unknown, is := strings.CutPrefix(err.Error(), "json: unknown field "); is {
		return fmt.Errorf("unknown field %s; a file of another kind, or of a newer millrace, has such", unknown)
	}
	return err
}

// unfinished holds the temporary files that are being written. A process that is about to end keeps it locked, so that
// no more files are begun.
var unfinished = struct {
	sync.Mutex
	paths map[string]bool
}{paths: map[string]bool{}}

// begin creates the temporary file for `path`, in the same folder.
func begin(path string) (*os.File, error) {
	unfinished.Lock()
	defer unfinished.Unlock()
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err == nil {
		unfinished.paths[f.Name()] = true
	}
	return f, err
}

// end removes a temporary file that was not renamed.
func end(sibling string) {
	unfinished.Lock()
	defer unfinished.Unlock()
	_ = os.Remove(sibling) // the file is gone already if it was renamed
	delete(unfinished.paths, sibling)
}

// Abandon removes half-written files and all Scratch folders, for a process that ends at once. No Write or Scratch
// begins after it.
func Abandon() {
	unfinished.Lock()
	dropped()
	abandonScratch()
}

// Drop removes half-written files, for a process that ends soon. Their writers get an error.
func Drop() {
	unfinished.Lock()
	defer unfinished.Unlock()
	dropped()
}

// dropped removes the temporary files. The caller holds the lock.
func dropped() {
	for path := range unfinished.paths {
		_ = os.Remove(path) // the file may have been renamed already
	}
}

// Write writes a temporary file and renames it to `path` once it is complete and on disk. A reader of `path` sees
// either the old file or the new file. Errors name `path`, not the temporary file.
func Write(path string, write func(io.Writer) error) error {
	f, err := begin(path)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, bare(err))
	}
	defer end(f.Name())
	// CreateTemp makes files that only their owner may read. Files written here are not secret, so everybody may read
	// them.
	err = errors.Join(write(f), f.Chmod(0o644), f.Sync())
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, bare(err))
	}
	return nil
}

// Until returns a writer that fails with the context's cause once the context has ended. It is for files that take
// long to write.
func Until(ctx context.Context, w io.Writer) io.Writer { return until{ctx, w} }

type until struct {
	ctx context.Context
	to  io.Writer
}

func (u until) Write(text []byte) (int, error) {
	if err := context.Cause(u.ctx); err != nil {
		return 0, err
	}
	return u.to.Write(text)
}

// WriteText writes a text.
func WriteText(path, text string) error {
	return Write(path, func(w io.Writer) error {
		_, err := io.WriteString(w, text)
		return err
	})
}

// WriteJSON writes a value as indented JSON.
func WriteJSON(path string, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return Write(path, func(w io.Writer) error {
		_, err := w.Write(append(text, '\n'))
		return err
	})
}

// bare returns the system's error without the file name.
func bare(err error) error {
	var path *os.PathError
	var link *os.LinkError
	switch {
	case errors.As(err, &path):
		return path.Err
	case errors.As(err, &link):
		return link.Err
	}
	return err
}
