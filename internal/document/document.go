// Package document reads and writes the files of values: profiles, plans, timelines and others.
//
// In: a value, or the bytes of a JSON object with a version. Out: the file, written whole or not at all, or the value.
// Refused: a file cut short, another version, unknown fields (they would be lost at the next writing), and what is no
// regular file, is too long, or would need too much memory. Errors say what is wrong; a Store adds which room's file
// it is, and what to do about it.
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

// ErrCut is matched by the error for text that is no whole JSON object.
var ErrCut = errors.New("not a whole JSON object")

// Unmarked is a text without the byte order mark that some editors put in front of it.
func Unmarked(text []byte) []byte { return bytes.TrimPrefix(text, []byte("\ufeff")) }

// Decode reads text, a JSON object of that version, into a pointer. The version is
// looked at first: a file of another one may have other fields.
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

// inWords says which JSON was wrong, without the Go type that it was to be read into.
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

// unfinished are the siblings that files are being written through. Whoever ends the process
// keeps it locked, so that none is begun any more.
var unfinished = struct {
	sync.Mutex
	paths map[string]bool
}{paths: map[string]bool{}}

// begin makes the sibling that path is written through.
func begin(path string) (*os.File, error) {
	unfinished.Lock()
	defer unfinished.Unlock()
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err == nil {
		unfinished.paths[f.Name()] = true
	}
	return f, err
}

// end removes a sibling that did not take the name of its file.
func end(sibling string) {
	unfinished.Lock()
	defer unfinished.Unlock()
	_ = os.Remove(sibling) // it has its file's name where all went well
	delete(unfinished.paths, sibling)
}

// Abandon removes what is half-written and all folders of Scratch, for a process that ends at once. No Write and no
// Scratch begins after it.
func Abandon() {
	unfinished.Lock()
	dropped()
	abandonScratch()
}

// Drop removes what is half-written, for a process that ends soon: who writes it fails.
func Drop() {
	unfinished.Lock()
	defer unfinished.Unlock()
	dropped()
}

// dropped removes the siblings. The caller holds the lock.
func dropped() {
	for path := range unfinished.paths {
		_ = os.Remove(path) // it may have its file's name already
	}
}

// Write writes a file through a sibling that takes its name once it is whole and on
// the disk: whoever reads path sees the old file or the new one. Errors name path and
// not the sibling, which nobody asked for.
func Write(path string, write func(io.Writer) error) error {
	f, err := begin(path)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, bare(err))
	}
	defer end(f.Name())
	// CreateTemp makes files that only their owner reads; these are no secret.
	err = errors.Join(write(f), f.Chmod(0o644), f.Sync())
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, bare(err))
	}
	return nil
}

// Until is a writer that fails with the context's cause once the context has ended: for files that take long to write.
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

// bare is what the system said, without the name it was said of.
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
