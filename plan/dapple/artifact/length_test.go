package artifact_test

import (
	"math"
	"testing"

	"github.com/millrace-ml/millrace/internal/shared"
	"github.com/millrace-ml/millrace/plan/dapple/artifact"
)

// TestPipelineLengthAsPublished compares Length with a hundred results of the published script.
func TestPipelineLengthAsPublished(t *testing.T) {
	for _, c := range shared.PipelineLengths(t) {
		got, err := artifact.Length(c.Forward, c.Backward, c.MicroBatches, c.Warmup)
		if err != nil || math.Abs(got-c.Length) > 1e-9*c.Length {
			t.Errorf("%s, M %d, %v: %g, %v; published %g", c.Name, c.MicroBatches, c.Warmup, got, err, c.Length)
		}
	}
}

func TestPipelineLengthRefuses(t *testing.T) {
	for _, c := range []struct {
		forward, backward []float64
		m                 int
		warmup            []int
	}{
		{nil, nil, 1, nil}, {[]float64{1}, []float64{1}, 0, []int{1}}, {[]float64{1}, nil, 1, []int{1}},
		{[]float64{1, 1}, []float64{1, 1}, 2, []int{1, 2}}, {[]float64{1}, []float64{1}, 1, []int{0}},
	} {
		if _, err := artifact.Length(c.forward, c.backward, c.m, c.warmup); err == nil {
			t.Errorf("%v is accepted", c)
		}
	}
}
