package metrics

import (
	"errors"
	"time"
)

// StepValues is what a run says of one step while it lasts. Fields that the run does
// not know are 0 or nil, and sinks leave them out.
type StepValues struct {
	Time             time.Time `json:"time"`
	Step             int       `json:"step"` // from 1
	Loss             float64   `json:"loss"`
	LearningRate     float64   `json:"learning_rate,omitempty"`
	GradientNorm     float64   `json:"gradient_norm,omitempty"` // before clipping
	StepS            float64   `json:"step_s"`
	SamplesPerSecond float64   `json:"samples_per_s"`
	Bubble           float64   `json:"bubble"`
	Samples          int64     `json:"samples,omitempty"` // seen since the run began
	// By worker, computing in this step; memory, at most so far and now; and what it has sent to others and has come to
	// it since the run began.
	BusyS         []float64 `json:"busy_s,omitempty"`
	PeakBytes     []int64   `json:"peak_bytes,omitempty"`
	LiveBytes     []int64   `json:"live_bytes,omitempty"`
	SentBytes     []int64   `json:"sent_bytes,omitempty"`
	ReceivedBytes []int64   `json:"received_bytes,omitempty"`
	// LeftS is between how many seconds the run takes from here on, where that is known well enough to be said.
	LeftS []float64 `json:"left_s,omitempty"`
	// Stragglers are the workers that are, with how many times as long as their profiles say they computed.
	Stragglers map[int]float64 `json:"stragglers,omitempty"`
}

// Worker is where a worker is and what it holds, as a reader of metrics wants it named.
type Worker struct{ Host, Stage string }

// EvaluationValues is what a held-out set said of the weights after Step.
type EvaluationValues struct {
	Time time.Time `json:"time"`
	Step int       `json:"step"` // from 1: so many are done
	Loss float64   `json:"evaluation_loss"`
	// Accuracy is the part of the predictions that was right; nil where the model does not count them.
	Accuracy *float64 `json:"evaluation_accuracy,omitempty"`
	// Correct of so many Samples, as it counts them: predictions.
	Correct int `json:"evaluation_correct,omitempty"`
	Samples int `json:"evaluation_samples,omitempty"`
	// Reported is what the model yields behind its loss, by name: nil for what was no finite number.
	Reported map[string]*float64 `json:"evaluation_reported,omitempty"`
	Apart    *float64            `json:"reference_apart,omitempty"` // of elastic averaging: see trace.Evaluation
	LeftS    []float64           `json:"left_s,omitempty"`          // as of a step
}

// Sink takes the values of a run as they come. Its methods are called from one
// goroutine, in order of steps.
type Sink interface {
	Step(StepValues) error
	Evaluation(EvaluationValues) error
	// Close writes what is still held back. The sink takes nothing after it.
	Close() error
}

// Sinks is one Sink that feeds several. A sink that fails does not keep values from the
// others; the errors come back joined.
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
