package record

import (
	"testing"
	"time"

	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/trace"
)

// Events of a step that is no longer kept are dropped, so that a record does not grow with the length of a run.
func TestWhatComesTooLateIsDropped(t *testing.T) {
	r := New(2, func(step int) bool { return step == 3 }, 0)
	at := func(step int, kind schedule.Kind) Event {
		return Event{In: schedule.Instruction{Kind: kind, Micro: int32(step)}, Step: step, End: time.Duration(step)}
	}
	for step := range 100 {
		r.Add(at(step, schedule.F))
		r.Loss(step, 0, 1)
		if part, whole := r.Updated(step, 1); !whole || part.Losses[0] != 1 || part.Busy[0] != time.Duration(step) {
			t.Fatalf("step %d: %+v, whole: %v", step, part, whole)
		}
		for _, late := range []int{0, 1, 5} { // transfers that end after the step
			if late <= step {
				r.Add(at(step-late, schedule.SF))
				r.Sample(at(step-late, schedule.SF), 8, 4)
			}
		}
	}
	var tl trace.Timeline
	r.Fill(&tl)
	of := map[int]int{}
	for _, e := range tl.Events {
		of[e.Step]++
	}
	if len(of) != 3 || of[3] != 4 || of[98] != 3 || of[99] != 2 {
		t.Errorf("events by step: %v; step 3 is wanted, 98 and 99 are the last", of)
	}
	if len(r.open)+len(r.kept) != 3 {
		t.Errorf("%d steps are open and %d kept", len(r.open), len(r.kept))
	}
}

// A slow worker's step may begin when the records of later steps have already been dropped. The record of the slow step
// still becomes complete, with what its worker has computed.
func TestAStepBehindLaterOnesIsWhole(t *testing.T) {
	r := New(2, nil, 0)
	for step := 10; step < 20; step++ {
		r.Updated(step, 1)
	}
	in := schedule.Instruction{Kind: schedule.B, Micro: 3}
	r.Add(Event{In: in, Step: 3, End: 5})
	r.Loss(3, 0, 0.5)
	r.Applied(3, Applied{At: 12, Version: 4})
	if _, whole := r.Updated(3, 2); whole {
		t.Error("it is whole without its update")
	}
	part, whole := r.Updated(3, 2)
	if !whole || part.Busy[0] != 5 || part.Losses[0] != 0.5 || part.Applied == nil || part.Applied.At != 12 {
		t.Errorf("%+v, whole: %v", part, whole)
	}
	r.Updated(20, 1)
	r.Updated(21, 1)
	if len(r.kept) != 2 || r.kept[20] == nil || r.kept[21] == nil {
		t.Errorf("after 21 steps, %d are kept, not the last two alone", len(r.kept))
	}
}
