package metrics

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
)

// JSONL is a Sink that writes each StepValues and each EvaluationValues as a JSON object on a line of its own. It
// writes every line at once, so that the file can be read while the run goes on.
type JSONL struct{ w io.Writer }

// NewJSONL writes to w, which it does not close.
func NewJSONL(w io.Writer) *JSONL { return &JSONL{w} }

// Step writes one line.
func (j *JSONL) Step(v StepValues) error {
	for _, x := range []float64{v.Loss, v.LearningRate, v.GradientNorm, v.StepS, v.SamplesPerSecond, v.Bubble} {
		if math.IsNaN(x) || math.IsInf(x, 0) {
			return fmt.Errorf("report: step %d: JSON has no %v: a run with such a value should stop", v.Step, x)
		}
	}
	return j.line(v)
}

// Evaluation writes one line.
func (j *JSONL) Evaluation(v EvaluationValues) error { return j.line(v) }

// Close does nothing, because nothing is buffered.
func (j *JSONL) Close() error { return nil }

func (j *JSONL) line(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("report: jsonl: %w", err)
	}
	if _, err := j.w.Write(append(b, '\n')); err != nil {
		return fmt.Errorf("report: jsonl: %w", err)
	}
	return nil
}
