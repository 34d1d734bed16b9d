package setup

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/millrace-ml/millrace/run/control"
)

// Error is an error of one process, in the form in which all processes of the run report it.
type Error struct {
	Rank  int
	Name  string // name of the process
	Text  string
	Class string // kind of error, from Config.Class
}

func (e *Error) Error() string { return fmt.Sprintf("%s: %s", e.Name, e.Text) }

// StoppedError says that a process was told to stop before the run began.
type StoppedError struct {
	Rank int
	Name string // name of the process
}

func (e *StoppedError) Error() string {
	return e.Name + " was told to stop before the run began"
}

// Config holds what a process contributes to a setup.
type Config struct {
	// Name returns the name of a rank's process, for errors.
	Name func(rank int) string
	// Class returns the kind of an error, for the other processes: Stopped, or a value of the caller's choice.
	Class func(error) string
	Log   *slog.Logger // rank 0 logs which processes it waits for
}

// Stopped is the Class of an error that says that a process was told to stop.
const Stopped = "stopped"

// failedOf returns an error in the form in which it is sent. rank is the process that reports it.
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

// errorOf returns the error that failedOf has encoded.
func (c Config) errorOf(f *control.Failed) error {
	switch {
	case f.Lost != nil:
		return f.Lost
	case f.Class == Stopped:
		return &StoppedError{f.Process, c.Name(f.Process)}
	}
	return &Error{Rank: f.Process, Name: c.Name(f.Process), Text: f.Text, Class: f.Class}
}
