package run

import (
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/engine/ref"
	"github.com/millrace-ml/millrace/trace"
	"github.com/millrace-ml/millrace/wire/pipe"
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

// TestANormOfOneStageIsPartOfItsUpdate: a model that is one stage has nobody to wait for with its gradient norm. The
// update computes the norm, so that no gap is a wait for it. Replicas still wait for the sum of their gradients. With
// two stages, updates wait for the norm.
func TestANormOfOneStageIsPartOfItsUpdate(t *testing.T) {
	one, two := small(t, 1, 20), small(t, 2, 20)
	several := one
	several.Plan = replicated(one.Plan, len(one.Model.Layers), 2)
	late := small(t, 1, 4)
	late.Engine = ref.Lazy(ref.Lateness{Seed: 5, OneIn: 1, Most: 300 * time.Microsecond})
	for name, k := range map[string]struct {
		c     Config
		waits map[string]bool // by kind: whether something may wait for it
	}{
		"one worker": {one, nil}, "two replicas": {several, map[string]bool{"AR": true}},
		"a late device": {late, map[string]bool{"F": true, "B": true, "U": true}},
		"two stages":    {two, map[string]bool{"GN": true, "SF": true, "SB": true}},
	} {
		result := train(t, k.c)
		tl := &result.Timeline
		if err := tl.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		waited, norms := map[string]bool{}, 0
		backwards := map[int]float64{} // by step: the end of the last backward
		for _, e := range tl.Events {
			if e.Kind == "B" {
				backwards[e.Step] = max(backwards[e.Step], e.EndS)
			}
		}
		for _, e := range tl.Events {
			if e.Kind == "GN" {
				if norms++; name == "a late device" && e.StartS < backwards[e.Step] {
					t.Errorf("%s: %s begins at %v, before the last backward ends at %v", name, e.Instruction, e.StartS,
						backwards[e.Step])
				}
			}
			if f, ok := trace.ParseFields(e.BlockedBy); ok {
				if waited[f.Kind] = true; !k.waits[f.Kind] {
					t.Errorf("%s: %s waited for %s", name, e.Instruction, e.BlockedBy)
				}
			}
		}
		if norms == 0 || name == "two stages" && !waited["GN"] {
			t.Errorf("%s: %d norms are recorded, waits for %v", name, norms, waited)
		}
		for _, gaps := range trace.AllGaps(tl) {
			if idle := trace.Idle(gaps)[trace.WaitReduce]; name == "one worker" && idle > 0 {
				t.Errorf("%s waited %v s for a collective", name, idle)
			}
		}
	}
}

// TestMomentsOfTheWholeRunAreKept: besides its last two steps, 18 and 19, this run keeps up to four moments. They are
// steps 0, 8 and 16, the multiples of 8. The multiples of 4 would be five moments, which are too many. The steps before
// and after each moment are kept too. Several processes keep the same steps, so that each step is drawn whole. A stream
// keeps only its last steps.
func TestMomentsOfTheWholeRunAreKept(t *testing.T) {
	want := []int{0, 1, 7, 8, 9, 15, 16, 17, 18, 19}
	c := small(t, 3, 20)
	c.Keep.Steps, c.Keep.Moments = 2, 4
	w := worlds{of: []int{0, 1, 1}, carriers: pipe.New}
	for name, tl := range map[string]trace.Timeline{
		"one process":   train(t, c).Timeline,
		"two processes": w.train(t.Context(), t, c).whole(t).Timeline,
	} {
		if err := tl.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		workers := map[int]map[int]bool{}
		for _, e := range tl.Events {
			if trace.OfStep(&e) {
				if workers[e.Step] == nil {
					workers[e.Step] = map[int]bool{}
				}
				workers[e.Step][e.Worker] = true
			}
		}
		if got := slices.Sorted(maps.Keys(workers)); !slices.Equal(got, want) {
			t.Errorf("%s: steps %v are kept; want %v", name, got, want)
		}
		for step, of := range workers {
			if len(of) != 3 {
				t.Errorf("%s: of step %d the computations of workers %v are kept, not of 3", name, step, of)
			}
		}
	}
	stream := *c.Plan
	stream.Schedule, stream.Weights, c.Plan = "1f1b-rr", "stash", &stream
	if got := train(t, c).Timeline; len(got.Kept(0)) != 2 {
		t.Errorf("of a stream, steps %v are kept; want the last 2", got.Kept(0))
	}
}
