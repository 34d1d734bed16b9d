package document

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
)

// Store reads and writes files of one type, T. A room has a Store for each type that it keeps in files, and says in it
// what only the room knows: its name, its limits, its checks and its remedies.
//
// Every error of a Store begins with Room; those of files name the file. Write refuses what Read would refuse, so that
// no file is written that cannot be read again.
type Store[T any] struct {
	Room    string // begins every error: "profile"
	Bytes   int64  // longer files are refused
	Missing string // what to do where there is no file: "make one with: millrace profile"; empty: nothing is said
	// Decode makes a value of a file's text, or says why there is none. Its errors begin with the room.
	Decode func(text []byte) (*T, error)
	// Check says why a value must not be written. Its errors begin with the room. nil: every value may be.
	Check func(v *T) error
	// Encode writes a value to w, which becomes the file of this path. nil: it is written as indented JSON.
	Encode func(w io.Writer, v *T, path string) error
	// InFile adds the file's path to an error of Decode. nil: at the end, in parentheses.
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

// From reads r to its end and decodes what it read.
func (s *Store[T]) From(r io.Reader) (*T, error) {
	text, err := ReadAll(r, s.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.Room, err)
	}
	return s.Decode(text)
}

// Write checks a value and writes its file, whole or not at all.
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

// Versioned makes the Decode of a Store whose files are JSON objects with a version. It refuses texts that are none,
// with remedy, which says how to get another file, and values that check finds something wrong with.
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
