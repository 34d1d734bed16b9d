package setup

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/millrace-ml/millrace/run/control"
)

// Error is what one process of the run has found wrong, as all others have it.
type Error struct {
	Rank  int
	Name  string // of the process
	Text  string
	Class string // what kind of error it is, as Config.Class says
}

func (e *Error) Error() string { return fmt.Sprintf("%s: %s", e.Name, e.Text) }

// StoppedError says that a process was told to stop before the run had begun.
type StoppedError struct {
	Rank int
	Name string // of the process
}

func (e *StoppedError) Error() string {
	return e.Name + " was told to stop before the run began"
}

// Config is what a process brings to a setup.
type Config struct {
	// Name is how errors call the process of a rank.
	Name func(rank int) string
	// Class says what kind of error one is, for the other processes to know: Stopped, or what it likes.
	Class func(error) string
	Log   *slog.Logger // is told by rank 0 who is waited for
}

// Stopped is the Class of an error with which a process is told to stop.
const Stopped = "stopped"

// failedOf is an error as it goes to other processes. rank is the process's that says so.
func (c Config) failedOf(rank int, err error) *control.Failed {
	f := &control.Failed{Process: rank, Text: err.Error()}
	var left *StoppedError
	switch said, is := err.(*Error); {
	case is:
		f.Process, f.Text, f.Class = said.Rank, said.Text, said.Class
	case errors.As(err, &left):
		f.Process, f.Class = left.Rank, Stopped
	case !errors.As(err, &f.Lost):
		f.Class = c.Class(err)
	}
	return f
}

// errorOf is what failedOf has made of an error.
func (c Config) errorOf(f *control.Failed) error {
	switch {
	case f.Lost != nil:
		return f.Lost
	case f.Class == Stopped:
		return &StoppedError{f.Process, c.Name(f.Process)}
	}
	return &Error{Rank: f.Process, Name: c.Name(f.Process), Text: f.Text, Class: f.Class}
}
