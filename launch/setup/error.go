package setup

import (
	"fmt"

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
type StoppedError struct{ Name string }

func (e *StoppedError) Error() string {
	return e.Name + " was told to stop before the run began"
}

// Config is what a process brings to a setup.
type Config struct {
	// Name is how errors call the process of a rank.
	Name func(rank int) string
	// Class says what kind of error one is, for the other processes to know.
	Class func(error) string
}

// stopped is the Class of what a StoppedError says to the others.
const stopped = "stopped"

// failedOf is an error as it goes to other processes. rank is the process's that says so.
func (c Config) failedOf(rank int, err error) *control.Failed {
	switch e := err.(type) {
	case *Error:
		return &control.Failed{Process: e.Rank, Text: e.Text, Class: e.Class}
	case *StoppedError:
		return &control.Failed{Process: rank, Text: e.Name, Class: stopped}
	case *control.LostError:
		return &control.Failed{Process: rank, Text: e.Error(), Lost: e}
	}
	return &control.Failed{Process: rank, Text: err.Error(), Class: c.Class(err)}
}
