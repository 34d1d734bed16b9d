package document

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
)

// Store reads and writes files of one type, T. A package, here called a room, has a Store for each type that it keeps
// in files. The fields of the Store hold what only this package knows: its name, limits, checks and remedies.
//
// Every error of a Store begins with Room, unless InFile puts the file first. Errors about files name the file. Write
// refuses the values that Check refuses, so that a written file can be read again, if it is not longer than Bytes.
type Store[T any] struct {
	Room    string // prefix of every error: "profile"
	Bytes   int64  // longer files are refused
	Missing string // what to do if there is no file: "make one with: millrace profile"; may be empty
	// Decode returns the value of a file's text, or an error that begins with the room.
	Decode func(text []byte) (*T, error)
	// Check returns an error, beginning with the room, if a value must not be written. nil allows every value.
	Check func(v *T) error
	// Encode writes a value to w, for the file at `path`. If Encode is nil, the value is written as indented JSON.
	Encode func(w io.Writer, v *T, path string) error
	// InFile adds the file's path to an error of Decode. If InFile is nil, the path is added at the end, in
	// parentheses.
	InFile func(err error, path string) error
}

// Read reads and decodes a file.
func (s *Store[T]) Read(path string) (*T, error) {
	text, err := Read(path, s.Bytes)
	switch {
	case errors.Is(err, fs.ErrNotExist) && s.Missing != "":
		return nil, fmt.Errorf("%s: %w; %s", s.Room, err, s.Missing)
	case err != nil:
		return nil, fmt.Errorf("%s: %w", s.Room, err)
	}
	v, err := s.Decode(text)
	switch {
	case err != nil && s.InFile != nil:
		return nil, s.InFile(err, path)
	case err != nil:
		return nil, fmt.Errorf("%w (in %s)", err, path)
	}
	return v, nil
}

// From reads r to its end and decodes the text.
func (s *Store[T]) From(r io.Reader) (*T, error) {
	text, err := ReadAll(r, s.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.Room, err)
	}
	return s.Decode(text)
}

// Write checks a value and writes its file, completely or not at all.
func (s *Store[T]) Write(path string, v *T) error {
	if s.Check != nil {
		if err := s.Check(v); err != nil {
			return err
		}
	}
	write := func() error { return WriteJSON(path, v) }
	if s.Encode != nil {
		write = func() error { return Write(path, func(w io.Writer) error { return s.Encode(w, v, path) }) }
	}
	if err := write(); err != nil {
		return fmt.Errorf("%s: %w", s.Room, err)
	}
	return nil
}

// Versioned returns a Decode for a Store whose files are JSON objects with a version. It refuses other texts with an
// error that ends in `remedy`, which says how to get another file. It also refuses values for which `check` returns an
// error.
func Versioned[T any](room string, version int, remedy string, check func(*T) error) func(text []byte) (*T, error) {
	return func(text []byte) (*T, error) {
		v := new(T)
		if err := Decode(text, version, v); err != nil {
			return nil, fmt.Errorf("%s: cannot read it: %w; %s", room, err, remedy)
		}
		if err := check(v); err != nil {
			return nil, err
		}
		return v, nil
	}
}
