package bench

import (
	"math"
	"testing"

	"github.com/millrace-ml/millrace/trace"
)

// Each part of a step is the total time of one kind of instruction on one worker. The rest of the step is waiting.
func TestStepParts(t *testing.T) {
	made := func(scale float64) *trace.Timeline {
		tl := &trace.Timeline{Workers: 2, Steps: []trace.StepMark{{Step: 0, EndS: 100}}}
		for _, step := range []int{1, 2} {
			at := float64(10 * step)
			add := func(w int, lane trace.Lane, kind string, start, end float64) {
				tl.Events = append(tl.Events, trace.Event{Worker: w, Lane: lane, Kind: kind, Step: step,
					StartS: at + start*scale, EndS: at + end*scale})
			}
			add(0, trace.Compute, "F", 0, 1)
			add(0, trace.Comm, "SF", 1, 4) // a transfer, which does not keep the worker busy
			add(0, trace.Compute, "F", 1, 2)
			add(1, trace.Compute, "B", 1, 3)
			tl.Steps = append(tl.Steps, trace.StepMark{Step: step, StartS: at, EndS: at + 4*scale})
		}
		return tl
	}
	want := []stepPart{
		{0, "F", 2, 2, 1}, {0, waiting, 0, 2, 1},
		{1, "B", 1, 2, 1}, {1, waiting, 0, 2, 1},
	}
	got := StepParts(made(1), made(0.5), 1, 1)
	if len(got) != len(want) {
		t.Fatalf("parts %+v, want %+v", got, want)
	}
	for i, w := range want {
		g := got[i]
		if math.Abs(g.PredictedS-w.PredictedS) > 1e-9 || math.Abs(g.MeasuredS-w.MeasuredS) > 1e-9 ||
			g.Worker != w.Worker || g.Kind != w.Kind || g.Count != w.Count {
			t.Errorf("part %d: %+v, want %+v", i, g, w)
		}
	}
}
