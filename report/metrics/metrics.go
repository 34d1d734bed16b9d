package metrics

import (
	"errors"
	"time"
)

// StepValues is the values of one step of a running run. Unknown fields are 0 or nil; sinks leave out most of these.
type StepValues struct {
	Time             time.Time `json:"time"`
	Step             int       `json:"step"` // number of the step, counted from 1
	Loss             float64   `json:"loss"`
	LearningRate     float64   `json:"learning_rate,omitempty"`
	GradientNorm     float64   `json:"gradient_norm,omitempty"` // norm before clipping
	StepS            float64   `json:"step_s"`
	SamplesPerSecond float64   `json:"samples_per_s"`
	Bubble           float64   `json:"bubble"`
	Samples          int64     `json:"samples,omitempty"` // samples seen since the run began
	// These lists are by worker. BusyS is the computing time in this step. PeakBytes is the peak memory so far, and
	// LiveBytes is the memory now. SentBytes and ReceivedBytes count since the run began.
	BusyS         []float64 `json:"busy_s,omitempty"`
	PeakBytes     []int64   `json:"peak_bytes,omitempty"`
	LiveBytes     []int64   `json:"live_bytes,omitempty"`
	SentBytes     []int64   `json:"sent_bytes,omitempty"`
	ReceivedBytes []int64   `json:"received_bytes,omitempty"`
	// LeftS holds the least and the most remaining seconds, if these are known well enough.
	LeftS []float64 `json:"left_s,omitempty"`
	// Stragglers are the current stragglers, by worker. The value is a straggler's computing time, as a multiple of the
	// time in its profile.
	Stragglers map[int]float64 `json:"stragglers,omitempty"`
}

// Worker names a worker's host and stages for readers of metrics.
type Worker struct{ Host, Stage string }

// EvaluationValues is the result of an evaluation of the weights after Step.
type EvaluationValues struct {
	Time time.Time `json:"time"`
	Step int       `json:"step"` // counted from 1: number of steps done
	Loss float64   `json:"evaluation_loss"`
	// Accuracy is the fraction of correct predictions; nil if the model does not count them.
	Accuracy *float64 `json:"evaluation_accuracy,omitempty"`
	// Correct is the number of correct predictions among Samples predictions.
	Correct int `json:"evaluation_correct,omitempty"`
	Samples int `json:"evaluation_samples,omitempty"`
	// Reported is the model's outputs besides its loss, by name; nil for a value that is not finite.
	Reported map[string]*float64 `json:"evaluation_reported,omitempty"`
	Apart    *float64            `json:"reference_apart,omitempty"` // only with elastic averaging; see trace.Evaluation
	LeftS    []float64           `json:"left_s,omitempty"`          // the same as in StepValues
}

// Sink receives the values of a run as they arise. Its methods are called from one goroutine, in order of steps.
type Sink interface {
	Step(StepValues) error
	Evaluation(EvaluationValues) error
	// Close writes what is still buffered. The sink takes no values after it.
	Close() error
}

// Sinks is a Sink that feeds several Sinks. All get the values even if one fails; their errors are joined.
type Sinks []Sink

// Step feeds every sink.
func (s Sinks) Step(v StepValues) error {
	return s.each(func(k Sink) error { return k.Step(v) })
}

// Evaluation feeds every sink.
func (s Sinks) Evaluation(v EvaluationValues) error {
	return s.each(func(k Sink) error { return k.Evaluation(v) })
}

// Close closes every sink.
func (s Sinks) Close() error { return s.each(Sink.Close) }

func (s Sinks) each(do func(Sink) error) error {
	var errs []error
	for _, k := range s {
		errs = append(errs, do(k))
	}
	return errors.Join(errs...)
}
