package run

import (
	"math"
	"testing"
)

// A run records for each step how long each worker computed, though it keeps only the events of the last steps.
func TestWhatWorkersComputedIsKnownOfEveryStep(t *testing.T) {
	c := small(t, 3, 20)
	c.Keep.Steps = 4
	tl := train(t, c).Timeline
	if len(tl.Computed) != 20 || len(tl.Kept(0)) != 4 {
		t.Fatalf("%d steps are known and %d kept; want 20 and 4", len(tl.Computed), len(tl.Kept(0)))
	}
	if err := tl.Validate(); err != nil {
		t.Error(err)
	}
	for k, known := range tl.Computed {
		mark := tl.Steps[k]
		for w, busy := range known.BusyS {
			if known.Step != mark.Step || busy <= 0 || busy > mark.EndS-mark.StartS {
				t.Errorf("step %d: worker %d computed %v s of step %d's %v s",
					known.Step, w, busy, mark.Step, mark.EndS-mark.StartS)
			}
		}
	}
	known := tl.Computed
	tl.Computed = nil
	for k, byEvents := range tl.StepBusy() {
		for w, busy := range byEvents {
			if k >= 16 && math.Abs(busy-known[k].BusyS[w]) > 1e-9 {
				t.Errorf("step %d: worker %d computed %v s by its events; %v s are noted", k, w, busy, known[k].BusyS[w])
			}
		}
	}
}
