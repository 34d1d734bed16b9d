package trace_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/millrace-ml/millrace/trace"
	"github.com/millrace-ml/millrace/trace/tracetest"
	"pgregory.net/rapid"
)

// even is the textbook pipeline: equal stages, transfers that take no time, and a backward twice as long as a
// forward.
func even(stages, micro int) tracetest.Pipeline {
	p := tracetest.Pipeline{Source: "sim", MicroBatches: micro, Steps: 1}
	for range stages {
		p.ForwardS = append(p.ForwardS, 1)
		p.BackwardS = append(p.BackwardS, 2)
	}
	return p
}

// TestBubbleOfTheTextbook: 1F1B of S equal stages and M micro-batches idles for (S-1)/(M+S-1) of the time. Narayanan et
// al. (SC 2021, §2.2) give the idle time as (S-1)/M of the ideal time.
func TestBubbleOfTheTextbook(t *testing.T) {
	for _, c := range []struct{ stages, micro int }{{1, 4}, {2, 1}, {2, 8}, {4, 8}, {6, 3}} {
		tl := even(c.stages, c.micro).Timeline()
		start, end := tl.Extent()
		if want := float64(3 * (c.micro + c.stages - 1)); end-start != want {
			t.Errorf("%d stages, %d micro-batches: step takes %v, want %v", c.stages, c.micro, end-start, want)
		}
		want := float64(c.stages-1) / float64(c.micro+c.stages-1)
		if got := tl.Bubble(start, end); math.Abs(got-want) > 1e-12 {
			t.Errorf("%d stages, %d micro-batches: bubble %v, want %v", c.stages, c.micro, got, want)
		}
		for w, busy := range tl.StepBusy()[0] {
			if busy != float64(3*c.micro) {
				t.Errorf("worker %d is busy %v, want %d", w, busy, 3*c.micro)
			}
		}
	}
}

// TestBusyAndGapsFillTheTime: in every pipeline, a worker's gaps and its computing add up to the whole time, and no
// gap overlaps computing.
func TestBusyAndGapsFillTheTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := tracetest.Pipeline{Source: "run", MicroBatches: rapid.IntRange(1, 6).Draw(t, "micro"),
			Steps:   rapid.IntRange(1, 3).Draw(t, "steps"),
			UpdateS: .01, TransferS: rapid.Float64Range(0, 2).Draw(t, "transfer"),
			Noise: rapid.Float64Range(0, 1).Draw(t, "noise"), Seed: rapid.Uint64().Draw(t, "seed")}
		for range rapid.IntRange(1, 5).Draw(t, "stages") {
			p.ForwardS = append(p.ForwardS, rapid.Float64Range(.1, 2).Draw(t, "forward"))
			p.BackwardS = append(p.BackwardS, rapid.Float64Range(.1, 2).Draw(t, "backward"))
		}
		tl := p.Timeline()
		if err := tl.Validate(); err != nil {
			t.Fatal(err)
		}
		start, end := tl.Extent()
		busy := tl.Busy(start, end)
		for w := range tl.Workers {
			idle := 0.0
			for _, g := range trace.AllGaps(tl)[w] {
				idle += g.EndS - g.StartS
				if b := tl.Busy(g.StartS, g.EndS)[w]; b > 1e-9 {
					t.Fatalf("worker %d computes %v s in the gap %+v", w, b, g)
				}
				if g.Why == "" || (g.Cause == trace.Between && g.EndS-g.StartS > 1e-6) {
					t.Fatalf("worker %d: nothing explains %+v", w, g)
				}
			}
			if math.Abs(idle+busy[w]-(end-start)) > 1e-6 {
				t.Fatalf("worker %d: %v busy + %v idle, want %v", w, busy[w], idle, end-start)
			}
		}
	})
}

func TestWindowIsOneStep(t *testing.T) {
	p := tracetest.TwoStages()
	p.Steps = 3
	whole := p.Timeline()
	p.Steps = 1
	alone := p.Timeline()
	one, err := whole.Step(1)
	if err != nil {
		t.Fatal(err)
	}
	if len(one.Events) != len(alone.Events) {
		t.Errorf("step 1 has %d events, a step alone %d", len(one.Events), len(alone.Events))
	}
	if _, end := one.Extent(); math.Abs(end-alone.Steps[0].EndS) > 1e-9 {
		t.Errorf("step 1 ends at %v, a step alone at %v", end, alone.Steps[0].EndS)
	}
	if len(one.Steps) != 1 || one.Steps[0].Step != 1 || one.Steps[0].StartS != 0 || len(one.Losses) != 1 ||
		one.Losses[0].Step != 1 {
		t.Errorf("step 1 has marks %+v and losses %+v", one.Steps, one.Losses)
	}
	for w, held := range map[int]int64{0: p.BaseBytes, 1: p.BaseBytes} {
		if m := one.Memory[w]; m.Worker != w || m.AtS != 0 || m.Bytes != held {
			t.Errorf("worker %d begins the step with %+v, want %d bytes", w, m, held)
		}
	}
	_, err = whole.Step(9)
	if err == nil || !strings.Contains(err.Error(), "step 10 is not in the Timeline, which has steps 1 to 3") {
		t.Errorf("step 9: error %v", err)
	}
}

// TestWindowCutsAtItsEdges: an event that crosses an edge of the window is cut there. Worker 1 begins the next step
// while worker 0 ends this one.
func TestWindowCutsAtItsEdges(t *testing.T) {
	tl := timeline(at(0, "0F0", 0, 0, 4, ""), at(1, "1U0", 0, 2, 3, "0F0"), at(1, "1F1", 3, 3, 9, ""))
	w := tl.Window(1, 4)
	var got [][3]float64
	for _, e := range w.Events {
		got = append(got, [3]float64{e.ReadyS, e.StartS, e.EndS})
	}
	want := [][3]float64{{-1, 0, 3}, {-1, 1, 2}, {2, 2, 3}}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("ready, start and end (-want +got):\n%s", d)
	}
	if err := w.Validate(); err != nil {
		t.Error(err)
	}
	if start, end := w.Extent(); start != 0 || end != 3 {
		t.Errorf("the window runs from %v to %v, want 0 to 3", start, end)
	}
}

func TestTheNearestStepIsOneWithEvents(t *testing.T) {
	p := tracetest.TwoStages()
	p.Steps, p.Noise = 9, .2
	tl := p.Timeline()
	tl.Events = slices.DeleteFunc(tl.Events, func(e trace.Event) bool { return e.Step != 7 })
	if m, _, _ := tl.Nearest(1, 0); m.Step != 7 {
		t.Errorf("step %d, want 7, the only one with events", m.Step)
	}
	if m, _, _ := tl.Nearest(8, 0); m.Step != 8 {
		t.Errorf("step %d, want 8: none of the settled ones has events", m.Step)
	}
}

// TestTheNearestStepHasItsNeighbours: steps 4, 5, 6 and 8, 9 of ten are kept. Work of step 3 may reach into step 4, and
// work of step 7 into step 8. So only steps 5 and 9 are whole, and the nearer of these two is taken. If only steps 4
// and 5 are kept, no step is whole, and the nearer of steps 4 and 5 is taken.
func TestTheNearestStepHasItsNeighbours(t *testing.T) {
	tl := &trace.Timeline{Workers: 1}
	for n := range 10 {
		at := float64(10 * n)
		tl.Steps = append(tl.Steps, trace.StepMark{Step: n, StartS: at, EndS: at + 1 + float64(n)/10})
		if n >= 4 && n != 7 {
			tl.Events = append(tl.Events, trace.Event{Lane: trace.Compute, Kind: "F", Step: n, StartS: at, EndS: at + 1})
		}
	}
	for near, want := range map[float64]int{1.4: 5, 1.6: 5, 1.8: 9, 1.9: 9} {
		if m, _, ok := tl.Nearest(1, near); !ok || m.Step != want {
			t.Errorf("nearest to %v s is step %d, want %d", near, m.Step, want)
		}
	}
	tl.Events = tl.Events[:2] // of steps 4 and 5
	if m, _, _ := tl.Nearest(1, 1.4); m.Step != 4 {
		t.Errorf("without a whole step, step %d is the nearest, want 4", m.Step)
	}
}

func TestNearest(t *testing.T) {
	tl := &trace.Timeline{}
	if _, _, ok := tl.Nearest(1, 0); ok {
		t.Error("a Timeline without steps has a nearest one")
	}
	for i, length := range []float64{9, 3, 1, 2, 4} {
		tl.Steps = append(tl.Steps, trace.StepMark{Step: i, StartS: float64(10 * i), EndS: float64(10*i) + length})
	}
	for _, c := range []struct {
		skip   int
		s      float64
		step   int
		lasted float64
	}{{0, 3.1, 1, 3}, {1, 2.5, 1, 3}, {0, 2.4, 3, 2}, {50, 100, 0, 9}} {
		if m, s, ok := tl.Nearest(c.skip, c.s); !ok || m.Step != c.step || s != c.lasted {
			t.Errorf("nearest to %v s behind %d: step %d of %v s, want %d of %v s", c.s, c.skip, m.Step, s, c.step, c.lasted)
		}
	}
	// If steps overlap, a step's time is from the end of the step before it to its own end.
	tl.Steps = []trace.StepMark{{Step: 0, StartS: 0, EndS: 3}, {Step: 1, StartS: 2, EndS: 5},
		{Step: 2, StartS: 4, EndS: 6}}
	if m, s, _ := tl.Nearest(0, 2); m.Step != 1 || s != 2 {
		t.Errorf("step %d of %v s", m.Step, s)
	}
}

func TestMergeOfWorkersIsTheWhole(t *testing.T) {
	p := tracetest.FourStages()
	p.Steps = 2
	want := p.Timeline()
	parts := make([]*trace.Timeline, 2)
	for i := range parts {
		part := *want
		part.Events, part.Memory = nil, nil
		part.PeakBytes, part.PeakActivations = make([]int64, 4), make([]int, 4)
		for _, e := range want.Events {
			if e.Worker%2 == i {
				part.Events = append(part.Events, e)
			}
		}
		for _, m := range want.Memory {
			if m.Worker%2 == i {
				part.Memory = append(part.Memory, m)
			}
		}
		for w := i; w < 4; w += 2 {
			part.PeakBytes[w], part.PeakActivations[w] = want.PeakBytes[w], want.PeakActivations[w]
		}
		parts[i] = &part
	}
	parts[1].Losses, parts[0].Evaluations = nil, nil
	got, err := trace.Merge(parts...)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("merged (-want +got):\n%s", d)
	}
	other := *want
	other.Workers = 5
	if _, err := trace.Merge(want, &other); err == nil || !strings.Contains(err.Error(), "part 1 is of another run") {
		t.Errorf("merging another run: error %v", err)
	}
	if _, err := trace.Merge(); err == nil {
		t.Error("merging nothing gave a Timeline")
	}
}
