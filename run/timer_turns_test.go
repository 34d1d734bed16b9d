package run

import (
	"math"
	"testing"

	"github.com/millrace-ml/millrace/stage/optim"
	"github.com/millrace-ml/millrace/trace"
)

// By hand: workers 0 and 1 compute at once, and workers 2 and 3 wait for their processors. Times in microseconds.
func TestTurnsInATimeline(t *testing.T) {
	var tl trace.Timeline
	tl.Workers = 4
	did := func(worker int, kind string, ready, start, end float64, blocked string) {
		lane := trace.Comm
		if kind == "F" || kind == "B" {
			lane = trace.Compute
		}
		tl.Events = append(tl.Events, trace.Event{
			Worker: worker, Kind: kind, Lane: lane, Step: besideCold, ReadyS: ready * 1e-6, StartS: start * 1e-6, EndS: end * 1e-6, BlockedBy: blocked,
		})
	}
	did(0, "F", 0, 0, 100, "")
	did(0, "SF", 100, 100, 125, "")    // until it arrives: beside the worker
	did(0, "RB", 104, 300, 301, "1F1") // the send took 4
	did(1, "F", 0, 0, 105, "")
	did(1, "F", 105, 106, 180, "") // keeps its processor
	did(2, "RF", 0, 110, 112, "0F0")
	did(2, "F", 112, 113, 200, trace.ByCore) // on 0's processor: 110 - 104
	did(3, "F", 0, 190, 250, trace.ByCore)   // on 1's, which has nothing to do behind it: 190 - 180
	did(2, "F", 200, 201, 260, "")
	did(1, "B", 180, 270, 280, trace.ByCore) // on 3's, who computed to 250
	got := turns(&tl)
	want := []float64{6e-6, 10e-6, 20e-6}
	if len(got) != len(want) {
		t.Fatalf("turns took %v s, want %v", got, want)
	}
	for i := range want {
		if math.Abs(got[i]-want[i]) > 1e-12 {
			t.Errorf("turn %d took %v s, want %v", i, got[i], want[i])
		}
	}
	for i := range tl.Events {
		tl.Events[i].Step = besideCold - 1
	}
	if cold := turns(&tl); len(cold) != 0 {
		t.Errorf("steps that find code and caches cold count: %v", cold)
	}
}

func TestTurnsAreMeasuredWhereTheyAreTaken(t *testing.T) {
	timer, err := NewTimer(testEngine(t), ones{4}, optim.Settings{Kind: optim.SGD})
	if err != nil {
		t.Fatal(err)
	}
	processors := len(allowedCores())
	took, err := timer.turn(t.Context(), BindAlways)
	if err != nil {
		t.Fatal(err)
	}
	if inTurn := newSeats(allowedCores(), 2*processors, processors, 1).inTurn(); inTurn != (took > 0) || took > 1e-2 {
		t.Errorf("a turn on %d processors takes %v s; workers take turns: %v", processors, took, inTurn)
	}
}

// Where another run has the processors, workers take no turns on them, and nothing is measured.
func TestNoTurnsBesideARunThatHasTheProcessors(t *testing.T) {
	timer, err := NewTimer(testEngine(t), ones{4}, optim.Settings{Kind: optim.SGD})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range allowedCores() {
		if leave, ok := claimProcessor(p); ok {
			defer leave()
		}
	}
	seats := newSeats(allowedCores(), 2*len(allowedCores()), len(allowedCores()), 1)
	if _, leave, taken := BindAlone.take(seats); taken == none { // no turns here, or no claims
		leave()
		return
	}
	if took, err := timer.turn(t.Context(), BindAlone); err != nil || took != 0 {
		t.Errorf("a turn takes %v s, %v", took, err)
	}
}
