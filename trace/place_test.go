package trace_test

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/millrace-ml/millrace/trace"
	"github.com/millrace-ml/millrace/trace/tracetest"
)

func TestWhereWorkersAreIsKept(t *testing.T) {
	tl := tracetest.FourStages().Timeline()
	tracetest.OnTwoHosts(tl, 1e-4, 0)
	var file bytes.Buffer
	if err := tl.Write(&file); err != nil {
		t.Fatal(err)
	}
	back, err := trace.Read(&file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(tl, back); d != "" {
		t.Errorf("it changed on its way through a file (-want +got):\n%s", d)
	}
	merged, err := trace.Merge(tl, tl)
	if err != nil || cmp.Diff(merged.Processes, tl.Processes)+cmp.Diff(merged.Places, tl.Places) != "" {
		t.Errorf("merged it is in %+v of %+v: %v", merged.Places, merged.Processes, err)
	}
	if one := tl.Window(0.1, 0.2); cmp.Diff(one.Places, tl.Places) != "" {
		t.Error("a window has lost where workers are")
	}
	if got := tl.Where(3); got != "rank 3 on host b" {
		t.Error(got)
	}
	for pair, want := range map[[2]int]float64{{0, 0}: 0, {0, 3}: 0.5e-4, {1, 2}: 1e-4, {3, 3}: 0} {
		if got := tl.WithinS(pair[0], pair[1]); got != want {
			t.Errorf("times of workers %v agree within %v s, want %v", pair, got, want)
		}
	}
	if got := tl.ErrorS(); got != 1e-4 {
		t.Errorf("times agree within %v s", got)
	}
	alone := tracetest.FourStages().Timeline()
	if alone.Where(3) != "" || alone.WithinS(0, 3) != 0 || alone.ErrorS() != 0 || alone.Process(2) != 0 {
		t.Errorf("a run in one process is %q, within %v s", alone.Where(3), alone.ErrorS())
	}
}

func TestPlacesThatCannotBeAreRefused(t *testing.T) {
	for says, spoil := range map[string]func(*trace.Timeline){
		"places has 3 entries and processes 4: want one for each of 4 workers": func(t *trace.Timeline) {
			t.Places = t.Places[1:]
		},
		"places has 4 entries and processes 0: want one for each": func(t *trace.Timeline) { t.Processes = nil },
		"places[2]: process 4, device 0: want a process from 0 to 3": func(t *trace.Timeline) {
			t.Places[2].Process = 4
		},
		"places[1]: process 1, device -1":    func(t *trace.Timeline) { t.Places[1].Device = -1 },
		"processes[1]: offset_s 0, drift -1": func(t *trace.Timeline) { t.Processes[1].Drift = -1 },
		"processes[0]: offset_s 0, drift 0, error_s -2: want": func(t *trace.Timeline) {
			t.Processes[0].ErrorS = -2
		},
		"processes[3]: the host's name \"a\\nb\"": func(t *trace.Timeline) { t.Processes[3].Host = "a\nb" },
		"processes[2]: the host's name \"\\x1b[":  func(t *trace.Timeline) { t.Processes[2].Host = "\x1b[2J" },
		"of 254 bytes; want 253 at most": func(t *trace.Timeline) {
			t.Processes[1].Host = strings.Repeat("a", 254)
		},
	} {
		tl := tracetest.FourStages().Timeline()
		tracetest.OnTwoHosts(tl, 1e-4, 0)
		spoil(tl)
		if err := tl.Write(&bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v; want something about %q", err, says)
		}
	}
}

// If events are moved to another clock, whatever its pace, no event ends before it starts.
func TestOrderStaysOnAnotherClock(t *testing.T) {
	for _, drift := range []float64{0, 1e-4, -1e-4, 0.3, -0.3} {
		tl := tracetest.FourStages().Timeline()
		before := *tl
		before.Events = append([]trace.Event(nil), tl.Events...)
		tl.OnClock(-1234.5, drift)
		if err := tl.Validate(); err != nil {
			t.Errorf("drift %v: %v", drift, err)
		}
		for i, e := range tl.Events {
			if b := before.Events[i]; e.StartS != b.StartS*(1+drift)-1234.5 {
				t.Fatalf("%v s became %v s with a drift of %v", b.StartS, e.StartS, drift)
			}
		}
	}
}

func TestStragglersThatCannotBeAreRefused(t *testing.T) {
	for _, s := range []trace.Straggler{{Worker: 4}, {Worker: -1}, {From: 3, To: 2}, {Times: math.Inf(1)}} {
		tl := tracetest.FourStages().Timeline()
		tl.Stragglers = []trace.Straggler{{Worker: 1, From: 3, To: 30, Times: 1.5, Others: 1}, s}
		if err := tl.Write(&bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), "stragglers[1]") {
			t.Errorf("%+v: %v", s, err)
		}
	}
}
