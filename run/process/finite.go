package process

import (
	"errors"
	"fmt"
	"math"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/run/control"
	"github.com/millrace-ml/millrace/trace"
)

// ErrNotFinite matches every error about a number that is not finite: a loss, a gradient norm, or weights about to be
// saved. The run's settings or its data should be changed; the earlier checkpoints remain.
var ErrNotFinite = errors.New("run: not finite")

// LossError reports a loss that is not finite. It matches ErrNotFinite.
type LossError struct {
	Step       int // index of the step, or of the step before the evaluation
	Stage      int
	Micro      int
	Value      float64
	Evaluation bool // the loss of test data
}

func (e *LossError) Error() string {
	of := fmt.Sprintf("the loss of step %d", trace.StepNumber(e.Step))
	if e.Evaluation {
		of = fmt.Sprintf("the evaluation loss after step %d", trace.StepNumber(e.Step))
	}
	remedy := "lower the learning rate or clip gradients"
	if e.Step == 0 && !e.Evaluation { // there was no update before
		remedy = "no update was before it: the data (millrace data show) or the model has numbers that are not finite"
	}
	return fmt.Sprintf("%s, micro-batch %d is %v on stage %d; %s", of, e.Micro, e.Value, e.Stage, remedy)
}

// Is makes a LossError match ErrNotFinite.
func (e *LossError) Is(target error) bool { return target == ErrNotFinite }

// notFiniteError reports a number that is not finite and is not a loss.
type notFiniteError struct{ text string }

func (e *notFiniteError) Error() string        { return e.text }
func (e *notFiniteError) Is(target error) bool { return target == ErrNotFinite }

// classNotFinite is the class name that processes send for an ErrNotFinite.
const classNotFinite = "not finite"

// FailedOf converts an error to the form in which it is sent to other processes.
func (j *Job) FailedOf(err error) control.Failed {
	f := control.Failed{Process: j.World.Rank, Text: err.Error(), Err: err}
	switch {
	case errors.Is(err, ErrNotFinite):
		f.Class = classNotFinite
	case j.Class != nil:
		f.Class = j.Class(err)
	}
	errors.As(err, &f.Lost)
	return f
}

// ErrorOf converts a received failure to an error. For a failure of this process it returns the original error.
func ErrorOf(w *World, f *control.Failed) error {
	if f.Err != nil {
		return f.Err
	}
	return &remoteError{w.Name(f.Process), f}
}

// remoteError is an error of another process.
type remoteError struct {
	process string
	failed  *control.Failed
}

func (e *remoteError) Error() string { return fmt.Sprintf("%s (%s)", e.failed.Text, e.process) }

// Is makes a remoteError match ErrNotFinite if the other process's error matched it.
func (e *remoteError) Is(target error) bool {
	return target == ErrNotFinite && e.failed.Class == classNotFinite
}

// Unwrap returns the failure, so that errors.As finds the control.Failed.
func (e *remoteError) Unwrap() error { return e.failed }

// isFinite reports whether x is neither NaN nor infinite.
func isFinite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// finite reports whether all numbers of a tensor are finite. Integers always are.
func finite(dtype engine.DType, data []byte) bool {
	switch dtype {
	case engine.Float32:
		return allFinite(engine.Numbers[float32](data))
	case engine.Float64:
		return allFinite(engine.Numbers[float64](data))
	}
	return true
}

func allFinite[T float32 | float64](xs []T) bool {
	for _, x := range xs {
		if !isFinite(float64(x)) {
			return false
		}
	}
	return true
}
