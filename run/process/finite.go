package process

import (
	"errors"
	"fmt"
	"math"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/run/control"
	"github.com/millrace-ml/millrace/trace"
)

// ErrNotFinite is what every error is of a run whose numbers have left the finite ones: a
// loss, a gradient norm, weights about to be saved. Such a run has settings to be mended;
// the checkpoints before it stay.
var ErrNotFinite = errors.New("run: not finite")

// LossError is a loss that is not finite. It is an ErrNotFinite.
type LossError struct {
	Step       int // index of the step, or of the one before the evaluation
	Stage      int
	Micro      int
	Value      float64
	Evaluation bool // the loss is that of the test data
}

func (e *LossError) Error() string {
	of := fmt.Sprintf("the loss of step %d", trace.StepNumber(e.Step))
	if e.Evaluation {
		of = fmt.Sprintf("the evaluation loss after step %d", trace.StepNumber(e.Step))
	}
	remedy := "lower the learning rate or clip gradients"
	if e.Step == 0 && !e.Evaluation { // no update was before it
		remedy = "no update was before it: the data (millrace data show) or the model has numbers that are not finite"
	}
	return fmt.Sprintf("%s, micro-batch %d is %v on stage %d; %s", of, e.Micro, e.Value, e.Stage, remedy)
}

// Is makes a LossError an ErrNotFinite.
func (e *LossError) Is(target error) bool { return target == ErrNotFinite }

// notFiniteError says of something else than a loss that it is not finite.
type notFiniteError struct{ text string }

func (e *notFiniteError) Error() string        { return e.text }
func (e *notFiniteError) Is(target error) bool { return target == ErrNotFinite }

// classNotFinite is what an ErrNotFinite of another process is of.
const classNotFinite = "not finite"

// FailedOf is an error as this process tells it to others.
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

// ErrorOf is what a process was told as an error: the very one, where it is of this process.
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

// Is makes numbers that are not finite an ErrNotFinite, wherever they were met.
func (e *remoteError) Is(target error) bool {
	return target == ErrNotFinite && e.failed.Class == classNotFinite
}

// Unwrap is the failure by which errors.As knows its kind.
func (e *remoteError) Unwrap() error { return e.failed }

// isFinite says whether x is a number and not infinite.
func isFinite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// finite says whether all numbers of a tensor are finite. Integers are.
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
