package report

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/trace"
	"github.com/millrace-ml/millrace/trace/tracetest"
)

// forward returns an event: the forward of a step on a worker.
func forward(worker, step int, from, to float64) trace.Event {
	e := trace.Event{Worker: worker, Lane: trace.Compute, Kind: "F", Instruction: "0F0", Step: step}
	e.ReadyS, e.StartS, e.EndS = from, from, to
	return e
}

// longRun returns a run of one worker. It has 92 steps of 92.4 ms, and then 8 steps of 110 ms with 103 ms of computing.
// Only the last 8 have events.
func longRun() *trace.Timeline {
	t := &trace.Timeline{Version: trace.Version, Source: "run", Model: "m", Workers: 1, Stages: 1}
	at := 0.0
	for s := range 100 {
		length := .0924
		if s >= 92 {
			length = .110
			t.Events = append(t.Events, forward(0, s, at, at+.103))
		}
		t.Steps = append(t.Steps, trace.StepMark{Step: s, StartS: at, EndS: at + length})
		at += length
	}
	return t
}

// Step, busy time and bubble cover the same steps, and the heading names them.
func TestNumbersAreOfTheSameSteps(t *testing.T) {
	n := NumbersOf(longRun(), 10, 32)
	if math.Abs(n.StepS-.110) > 1e-9 || math.Abs(n.BusyS[0]-.103) > 1e-9 || math.Abs(n.Bubble-(1-.103/.110)) > 1e-9 {
		t.Errorf("a step of %v s, busy %v, bubble %v; 110 ms with 103 ms of them busy", n.StepS, n.BusyS, n.Bubble)
	}
	var b strings.Builder
	in := Inputs{Plan: &plan.Plan{Model: "m", MicroBatch: 8, MicroBatches: 4}, Measured: longRun()}
	if err := Terminal(&b, in); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"medians over 8 steps, 93 to 100", "110 ms", "103 ms"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the report does not say %q:\n%s", want, &b)
		}
	}
}

// Here three steps have bubbles of 50 %, 10 % and 50 %. The bubble of the run is their median, as in the curve over
// steps. It is not computed from the medians of the step (10 s) and of the busy times (9 s each), which would give 10
// %. A run that has not ended gives the same bubble from its reports.
func TestTheBubbleIsTheMedianOfTheSteps(t *testing.T) {
	tl := &trace.Timeline{Workers: 2, Stages: 2}
	var said []StepTook
	at := 0.0
	for s, step := range [][3]float64{{10, 1, 9}, {10, 9, 9}, {10, 9, 1}} {
		for w, busy := range step[1:] {
			e := forward(w, s, at, at+busy)
			tl.Events = append(tl.Events, e)
		}
		tl.Steps = append(tl.Steps, trace.StepMark{Step: s, StartS: at, EndS: at + step[0]})
		said = append(said, StepTook{Step: s, S: step[0], BusyS: step[1:]})
		at += step[0]
	}
	for _, n := range []Numbers{NumbersOf(tl, 0, 32), *numbersOfSteps(said, 0, 32, false)} {
		if n.StepS != 10 || !slices.Equal(n.BusyS, []float64{9, 9}) || math.Abs(n.Bubble-.5) > 1e-12 {
			t.Errorf("a step of %v, busy %v, bubble %v; by hand 10, 9 and 9, and 0.5", n.StepS, n.BusyS, n.Bubble)
		}
	}
}

// No worker is busy for longer than a step, in a run or a stream, and the bubble is from 0 to 1. Steps may take any
// time, and any of them may be recorded.
func TestNoWorkerIsBusyForLongerThanAStep(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		tl := &trace.Timeline{Version: trace.Version, Workers: 1 + r.IntN(3), Stream: seed%2 == 1}
		at, kept := 0.0, r.IntN(12)
		free := make([]float64, tl.Workers)
		for s := range 12 {
			length := math.Exp(r.NormFloat64())
			start, end := at, at+length
			if tl.Stream { // steps overlap, and often end together
				start -= 2 * r.Float64()
				end = at + length*float64(s%2)
			}
			for w := range free {
				from := max(start, free[w])
				to := from + r.Float64()*(end-from)
				if to <= from {
					continue
				}
				free[w] = to
				if s >= kept {
					tl.Events = append(tl.Events, forward(w, s, from, to))
				}
			}
			tl.Steps = append(tl.Steps, trace.StepMark{Step: s, StartS: start, EndS: end})
			at = end
			if r.IntN(6) == 0 {
				at += 5 // an evaluation
			}
		}
		n := NumbersOf(tl, 2, 8)
		for w, busy := range n.BusyS {
			if busy > n.StepS*(1+1e-12) || busy < 0 {
				t.Errorf("seed %d: worker %d is busy for %v s of a step of %v s", seed, w, busy, n.StepS)
			}
		}
		if n.Bubble < -1e-12 || n.Bubble > 1 {
			t.Errorf("seed %d: bubble %v", seed, n.Bubble)
		}
	}
}

// Without a Timeline the numbers cover the reported steps of the run's last part, except its first ones. The report
// says why no measured step is drawn.
func TestAKilledRunsNumbersAreOfItsMetrics(t *testing.T) {
	in := sample(tracetest.TwoStages())
	in.Measured, in.Resumed, in.Unmeasured = nil, []int{40}, "It was killed."
	for k := range 100 {
		s := StepTook{Step: k, S: 9, BusyS: []float64{9, 9}}
		if k >= 40 {
			s = StepTook{Step: k, S: 1, BusyS: []float64{.5, .7}, PeakBytes: []int64{100, 200}}
		}
		in.Took = append(in.Took, s)
	}
	rows, over, err := CompareOver(in)
	if err != nil || over != "medians over 54 steps, 47 to 100" {
		t.Fatalf("%q, %v", over, err)
	}
	got := map[string]float64{}
	for _, r := range rows {
		if r.Measured != nil {
			got[r.label()] = *r.Measured
		}
	}
	for name, want := range map[string]float64{"step time": 1, "samples per second": 32, "bubble": .4, "worker 0 busy": .5,
		"worker 1 busy": .7, "worker 0 peak memory": 100, "worker 1 peak memory": 200} {
		if math.Abs(got[name]-want) > 1e-9 {
			t.Errorf("%s is %v, not %v", name, got[name], want)
		}
	}
	var b strings.Builder
	if err := Terminal(&b, in); err != nil {
		t.Fatal(err)
	}
	if page := drawPage(t, in); !strings.Contains(b.String(), in.Unmeasured) || !strings.Contains(page, in.Unmeasured) {
		t.Errorf("it is not said why there is no measured step:\n%s", &b)
	}
	in.Took[99].BusyS = nil // reported by an older millrace, so the bubble is unknown
	if rows, _, err = CompareOver(in); err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		if r.Name == "bubble" && r.Measured != nil {
			t.Errorf("a bubble of %v, and nobody knows who computed", *r.Measured)
		}
	}
}

// The steps of two workers end in pairs: one step takes 0.1 s, the next 0.3 s. Every 8 steps take 1.6 s, in which
// worker 0 computes for 0.8 s and worker 1 for 0.4 s. A pause of 9 s lies in one of these groups of 8 steps. The first
// step belongs to no group and is left out.
func TestNumbersOfAStreamCoverItsReportedSteps(t *testing.T) {
	var said []StepTook
	for k := range 41 {
		s := StepTook{Step: k, S: 0.1, BusyS: []float64{0.15, 0.1}}
		if k%2 == 0 {
			s = StepTook{Step: k, S: 0.3, BusyS: []float64{0.05, 0}}
		}
		if k == 20 {
			s.S = 9
		}
		said = append(said, s)
	}
	n := Numbers{Steps: 7, means: true, BusyS: []float64{9, 9}, StepS: 9}
	n.widen(said[:7], 10)
	if n.StepS != 9 || n.average() != "mean" {
		t.Errorf("fewer steps than were recorded: %+v", n)
	}
	n.widen(said, 10)
	near := func(got, want float64) bool { return math.Abs(got-want) < 1e-9 }
	if !near(n.StepS, 0.2) || !near(n.SamplesPerSecond, 50) || !near(n.BusyS[0], 0.1) || !near(n.BusyS[1], 0.05) ||
		!near(n.Bubble, 1-0.15/0.4) || n.which() != "medians of means over 8 steps, 2 to 41 (steps overlap)" {
		t.Errorf("%+v: %s", n, n.which())
	}
}
