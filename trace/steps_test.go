package trace

import (
	"slices"
	"testing"
)

// Steps of a stream are as long as one more of them takes.
func TestStepTimes(t *testing.T) {
	tl := &Timeline{Steps: []StepMark{{Step: 0, StartS: 0, EndS: 3}, {Step: 1, StartS: 2, EndS: 5}, {Step: 2, StartS: 4, EndS: 6}}}
	for _, c := range []struct {
		stream bool
		n      int
		want   []float64
	}{{false, 3, []float64{3, 3, 2}}, {false, 1, []float64{2}}, {true, 3, []float64{2, 1}}, {true, 9, []float64{2, 1}}, {true, 1, []float64{2}}, {true, 0, nil}} {
		tl.Stream = c.stream
		if got := tl.StepTimes(c.n); !slices.Equal(got, c.want) {
			t.Errorf("stream %v, the last %d: %v, want %v", c.stream, c.n, got, c.want)
		}
	}
}
