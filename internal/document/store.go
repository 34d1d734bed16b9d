package document

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
)

// Store reads and writes the documents of one noun; a room has one for each noun that it keeps in files.
//
// Every error begins with the room, and says which file it is of. What is read was decoded, and what is
// written was checked, so that nothing is written that would not be read.
type Store[T any] struct {
	Room    string // begins every error
	Bytes   int64  // most that are read
	Missing string // what to do about a file that is not there, behind the error that says so
	// Decode makes the value of a text, and refuses what none is made of. Its errors begin with the room.
	Decode func(text []byte) (*T, error)
	// Check refuses what is not to be written; its errors begin with the room. nil: there is nothing to
	// refuse.
	Check func(v *T) error
	// Encode writes a value for a file of this name. nil: as indented JSON.
	Encode func(w io.Writer, v *T, path string) error
	// InFile names the file in an error of Decode. nil: behind it, in parentheses.
	InFile func(err error, path string) error
}

// Read reads a file.
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

// From reads a document to the end of r.
func (s *Store[T]) From(r io.Reader) (*T, error) {
	text, err := ReadAll(r, s.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.Room, err)
	}
	return s.Decode(text)
}

// Write writes a file, whole or not at all.
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

// Versioned is the Decode of a JSON object of a version that check finds nothing wrong with. again says how
// to make another where a text is none.
func Versioned[T any](room string, version int, again string, check func(*T) error) func(text []byte) (*T, error) {
	return func(text []byte) (*T, error) {
		v := new(T)
		if err := Decode(text, version, v); err != nil {
			return nil, fmt.Errorf("%s: cannot read it: %w; %s", room, err, again)
		}
		if err := check(v); err != nil {
			return nil, err
		}
		return v, nil
	}
}
