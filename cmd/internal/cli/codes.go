package cli

import (
	"errors"
	"strconv"
	"syscall"

	"github.com/millrace-ml/millrace/data/arrays"
	"github.com/millrace-ml/millrace/launch"
	"github.com/millrace-ml/millrace/launch/rendezvous"
	"github.com/millrace-ml/millrace/launch/setup"
	"github.com/millrace-ml/millrace/nn"
	"github.com/millrace-ml/millrace/run/control"
)

// These are exit codes. Package launch decides from the exit code whether it may help to start the run again.
const (
	ExitFailed   = 1
	ExitBadInput = 2
	ExitStopped  = 128 + int(syscall.SIGTERM) // the process ends because another process was told to stop
)

// ExitError carries an exit code up to main.
type ExitError struct {
	Code int
	err  error
}

func (e *ExitError) Error() string { return e.err.Error() }
func (e *ExitError) Unwrap() error { return e.err }

// BadInput marks an error as one that the user can correct: exit code 2.
func BadInput(err error) error {
	if err == nil {
		return nil
	}
	return &ExitError{ExitBadInput, err}
}

// Exit returns an error with the given exit code.
func Exit(code int, err error) error { return &ExitError{code, err} }

// CodeOf returns the exit code for an error, which may have happened in another process.
func CodeOf(err error) int {
	var exit *ExitError
	var stopped *Stopped
	var said *setup.Error
	var left *setup.StoppedError
	var lost *control.LostError
	var refused *rendezvous.Refused
	var failed *control.Failed
	class := ""
	switch {
	case errors.As(err, &exit):
		return exit.Code
	case errors.As(err, &stopped):
		return stopped.code()
	case errors.As(err, &said):
		class = said.Class
	case errors.As(err, &left):
		return ExitStopped
	case errors.As(err, &lost):
		return launch.LostPeer
	case errors.As(err, &refused) && refused.Retry:
		return launch.LostPeer
	case errors.As(err, &refused):
		return ExitBadInput
	case errors.As(err, new(*arrays.ValueError)), errors.As(err, new(*nn.IndexError)), errors.As(err, new(*nn.ShapeError)):
		return ExitBadInput // a fault of the user's data or network that was found during the work
	case errors.As(err, &failed):
		class = failed.Class
	}
	if code, err := strconv.Atoi(class); err == nil {
		return code
	}
	return ExitFailed
}

// ClassOf returns the kind of an error as text. Another process that receives this text can find the exit code from it
// (see CodeOf).
func ClassOf(err error) string {
	if errors.As(err, new(*Stopped)) {
		return setup.Stopped
	}
	return strconv.Itoa(CodeOf(err))
}
