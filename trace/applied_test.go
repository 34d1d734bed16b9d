package trace_test

import (
	"testing"

	"github.com/millrace-ml/millrace/trace"
)

// TestStaleness uses updates 0 to 3 of a training, and updates 10 to 12 after a checkpoint.
func TestStaleness(t *testing.T) {
	for _, c := range []struct {
		of     []trace.Applied
		median float64
		most   int
	}{
		{nil, 0, 0},
		{[]trace.Applied{{Step: 1, Version: 0}, {Step: 0, Version: 0}, {Step: 3, Version: 1}, {Step: 2, Version: 0}}, 1, 3},
		{[]trace.Applied{{Step: 11, Version: 10}, {Step: 10, Version: 10}, {Step: 12, Version: 12}}, 0, 1},
	} {
		if median, most := trace.Staleness(c.of); median != c.median || most != c.most {
			t.Errorf("%v: %v and %d; want %v and %d", c.of, median, most, c.median, c.most)
		}
	}
}

// TestBehind: pipelines in steps 0, 1, 2 and 9 are pulled towards the reference after 0, 1, 0 and 7 of its updates.
func TestBehind(t *testing.T) {
	seen := []trace.Seen{{Step: 0}, {Step: 1, Version: 1}, {Step: 2, Version: 0}, {Step: 9, Version: 7}}
	if median, most := trace.Behind(seen); median != 1 || most != 2 {
		t.Errorf("%v and %d; want 1 and 2", median, most)
	}
	if median, most := trace.Behind(nil); median != 0 || most != 0 {
		t.Errorf("of nothing: %v and %d", median, most)
	}
}

// Here two trainers take 3 s a step, and one starts a second after the other. Each makes two steps, pauses, and makes
// two more. From 7 s to 20 s neither trains. Before and after this pause, the ends of steps are 1, 2 and 1 s apart.
func TestPaceWhereWorkersGoTheirOwnWay(t *testing.T) {
	tl := trace.Timeline{Workers: 3, Stream: true, Applied: make([]trace.Applied, 8)}
	for k, start := range []float64{0, 1, 3, 4, 20, 21, 23, 24} {
		tl.Steps = append(tl.Steps, trace.StepMark{Step: k, StartS: start, EndS: start + 3})
		busy := []float64{0, 0, 0.5}
		busy[k%2] = 2
		tl.Computed = append(tl.Computed, trace.Computed{Step: k, BusyS: busy})
	}
	for k, want := range []float64{1.5, 1, 1.5, 1.5, 1, 1, 1.5, 1.5} {
		// A step's distance is the time from the end of the step before it to its own end. Took is the mean distance of
		// this step and the step before it. A step that begins after a pause has no distance and is left out of the
		// mean. The first step of all takes half of its own 3 s, because there are two trainers.
		if got := tl.Took(0)[k]; got != want {
			t.Errorf("step %d took %v; want %v", k, got, want)
		}
	}
	steps, stepS, busy := tl.Steady(0)
	want := (1 + 2 + 1 + 1 + 2 + 1) / 6.0
	if len(steps) != 6 || stepS != want || busy[0] != 1 || busy[1] != 1 || busy[2] != 0.5 {
		t.Errorf("%d steps of %v, want %v; busy %v", len(steps), stepS, want, busy)
	}
}
