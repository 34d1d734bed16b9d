package trace

import (
	"math"
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

// What stands between two steps makes neither longer, and a stream's steps are as far apart as their ends.
func TestStepTimeAndPeriod(t *testing.T) {
	apart := &Timeline{Steps: []StepMark{{0, 0, 9}, {1, 9, 11}, {2, 18, 20}, {3, 20.05, 22.05}, {4, 30, 32}}}
	stream := &Timeline{Stream: true, Steps: []StepMark{{0, 0, 9}, {1, 1, 11}, {2, 3, 13}, {3, 5, 15}}}
	for _, c := range []struct {
		what         string
		t            *Timeline
		skip         int
		step, period float64
	}{
		{"nothing", &Timeline{}, 0, 0, 0},
		{"one step", &Timeline{Steps: []StepMark{{0, 1, 4}}}, 0, 3, 3},
		{"one step of a stream", &Timeline{Stream: true, Steps: []StepMark{{0, 1, 4}}}, 0, 3, 3},
		{"evaluations between steps", apart, 1, 2, 2.05},
		{"evaluations between all steps", &Timeline{Steps: []StepMark{{0, 0, 2}, {1, 7, 9}}}, 0, 2, 2},
		{"a stream", stream, 1, 2, 2},
	} {
		if step, period := c.t.StepTime(c.skip), c.t.Period(c.skip); math.Abs(step-c.step) > 1e-9 || math.Abs(period-c.period) > 1e-9 {
			t.Errorf("%s: a step takes %v and adds %v; want %v and %v", c.what, step, period, c.step, c.period)
		}
	}
}
