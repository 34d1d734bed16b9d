package cli

import (
	"errors"
	"fmt"
	"syscall"
	"testing"

	"github.com/millrace-ml/millrace/data/arrays"
	"github.com/millrace-ml/millrace/launch/rendezvous"
	"github.com/millrace-ml/millrace/launch/setup"
	"github.com/millrace-ml/millrace/nn"
	"github.com/millrace-ml/millrace/run/control"
)

// More text around an error does not change its exit code. If one process ends with an input error or the loss of a
// process, the other processes end with the same code. If one process was told to stop, the others end with code 143.
func TestCodesOfErrors(t *testing.T) {
	lost := control.NewLost(1, "process 1", errors.New("it is silent"))
	for _, c := range []struct {
		err  error
		code int
	}{
		{errors.New("a bug"), 1},
		{BadInput(errors.New("no such file")), 2},
		{&arrays.ValueError{Row: 7, Err: errors.New("50")}, 2},
		{&nn.IndexError{Greatest: 50, To: 49}, 2},
		{&nn.ShapeError{}, 2},
		{Exit(7, errors.New("another program's")), 7},
		{&Stopped{syscall.SIGINT}, 130},
		{lost, 3},
		{&setup.Error{Name: "rank 1", Class: ClassOf(BadInput(errors.New("no such file")))}, 2},
		{&setup.Error{Name: "rank 1", Class: ClassOf(lost)}, 3},
		{&setup.Error{Name: "rank 1", Class: "none"}, 1},
		{&control.Failed{Text: "no such file", Class: ClassOf(BadInput(errors.New("no such file")))}, 2},
		{&control.Failed{Text: "it is silent", Class: ClassOf(lost), Lost: lost}, 3},
		{&control.Failed{Text: "a bug", Class: "not finite"}, 1},
		{&setup.StoppedError{Name: "rank 1"}, 143},
		{&rendezvous.Refused{Reasons: []string{"rank 1 is missing"}, Retry: true}, 3},
		{&rendezvous.Refused{Reasons: []string{"two of rank 1"}}, 2},
	} {
		for _, err := range []error{c.err, fmt.Errorf("train: %w", c.err), errors.Join(c.err, errors.New("and more"))} {
			if code := CodeOf(err); code != c.code {
				t.Errorf("%v: code %d; want %d", err, code, c.code)
			}
		}
	}
}

// The error of a process that was told to stop has the class setup.Stopped, even if the error is wrapped. Other
// processes recognise it by this class.
func TestAStopIsOfItsOwnClass(t *testing.T) {
	for _, err := range []error{&Stopped{syscall.SIGINT}, fmt.Errorf("train: %w", &Stopped{syscall.SIGHUP})} {
		if class := ClassOf(err); class != setup.Stopped {
			t.Errorf("%v is of class %q", err, class)
		}
	}
}
