package avgpipe

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/schedule/lower"
	"github.com/millrace-ml/millrace/sim"
	"github.com/millrace-ml/millrace/trace"
)

// simulated returns the timeline of five steps of a 1F1B pipeline with two stages and 4 micro-batches. A forward takes
// 1 s, a backward 2 s, an update 0.5 s and a message 0.25 s. A worker always holds 100 bytes. In addition it holds 40
// for gradients, 10 for each micro-batch, and the messages.
func simulated(t *testing.T) *trace.Timeline { return updating(t, 7) }

// updating returns the same Timeline as simulated, except that updates briefly hold this many bytes more.
func updating(t *testing.T, bytes int64) *trace.Timeline {
	t.Helper()
	p, err := family.Generate("1f1b", schedule.Settings{Placement: [][]int{{0}, {1}}, MicroBatches: 4, Repeat: 5})
	if err != nil {
		t.Fatal(err)
	}
	if p, err = lower.Lower(p, lower.Options{}); err != nil {
		t.Fatal(err)
	}
	costs := sim.Uniform(2, 1, 2, 0.25)
	for s := range costs.Stages {
		c := &costs.Stages[s][0]
		c.UpdateS, c.FixedBytes, c.ParameterBytes, c.SavedBytes, c.UpdatePeak = 0.5, 100, 40, 10, bytes
	}
	line, _, err := sim.Run(p, costs, sim.Options{Record: true})
	if err != nil {
		t.Fatal(err)
	}
	return line
}

// TestObserveByHand: stage 0 runs two forwards before its first backward. Stage 1 starts at 1.25 s and computes for 4 x
// 3 s. Between two of its micro-batches it sends a gradient and receives an activation, for which it waits 0.25 + 0.25
// s. Its last gradient arrives at 14 s. Then stage 0 runs 0B3 and the update, until 16.5 s. Each stage computes for 4 x
// 3 + 0.5 = 12.5 s of that.
func TestObserveByHand(t *testing.T) {
	line := simulated(t)
	// Each stage has one layer with F = 1 and B = 2. Stage 0 computes at half of the peak, and stage 1 at a quarter.
	layers := func(stage int, kind string) []profile.Stretch {
		takes := map[string]float64{"F": 1, "B": 2}[kind]
		return []profile.Stretch{{NowS: takes, PeakS: takes * []float64{0.5, 0.25}[stage]}}
	}
	o, err := Observe(line, Observing{At: Degrees{4, 1}, Skip: 1, Stretches: layers, ReferenceBytes: []int64{40, 41},
		UpdateBytes: []int64{7, 7}})
	if err != nil {
		t.Fatal(err)
	}
	if !near(o.StepS, 16.5) {
		t.Errorf("a step of %v s, want 16.5", o.StepS)
	}
	for k, d := range o.Devices {
		if !near(d.Utilisation.Length(), 12.5) || !near(d.Utilisation.Volume(), 12*[]float64{0.5, 0.25}[k]+0.5) {
			t.Errorf("device %d computes %v s, %v at its peak", k, d.Utilisation.Length(), d.Utilisation.Volume())
		}
		if !near(d.CommunicationS, 1) {
			t.Errorf("device %d sends for %v s, want four messages of 0.25", k, d.CommunicationS)
		}
		if !near(d.InFlightS, 1) {
			t.Errorf("device %d has messages on their way for %v s; no two of the four are together", k, d.InFlightS)
		}
		if d.ModelBytes != 140 || d.ReferenceBytes != int64(40+k) {
			t.Errorf("device %d: %+v, want 140 bytes of models", k, d)
		}
		if want := line.PeakBytes[k] - 140; d.DataBytes != want || d.Held != 2-k {
			t.Errorf("device %d: %d bytes of data for %d micro-batches; want %d for %d", k, d.DataBytes, d.Held, want, 2-k)
		}
		if !near(d.BlockedS+d.BubbleS, 4) {
			t.Errorf("device %d: %v s blocked and %v s of bubble beside 12.5 s of work in 16.5 s", k, d.BlockedS, d.BubbleS)
		}
	}
}

// TestPhiIsACurveOverTime checks a utilisation curve by hand. Forward, the two layers take 3 s and 1 s by their
// profile, or 1.5 s and 1 s at the peak. Backward they take 2 s and 4 s, or 2 s and 1 s at the peak. The second of two
// micro-batches is delayed: its forward takes 8 s and its backward 12 s. The update runs at the peak. A forward has 2.5
// s of work at the peak and a backward 3 s, however long they take.
//
//	F0 4 s: 3 s at 1/2, 1 s at 1    B0 6 s: 4 s at 1/4, 2 s at 1
//	F1 8 s: 6 s at 1/4, 2 s at 1/2  B1 12 s: 8 s at 1/8, 4 s at 1/2    U 1 s at 1
func TestPhiIsACurveOverTime(t *testing.T) {
	layers := func(_ int, kind string) []profile.Stretch {
		return map[string][]profile.Stretch{
			"F": {{NowS: 3, PeakS: 1.5}, {NowS: 1, PeakS: 1}},
			"B": descending(nil, []profile.Stretch{{NowS: 2, PeakS: 2}, {NowS: 4, PeakS: 1}}, plan.KeepAll),
		}[kind]
	}
	line := &trace.Timeline{Version: trace.Version, Source: "run", Workers: 1, Stages: 1, PeakBytes: []int64{1},
		PeakActivations: []int{2}, Memory: []trace.MemorySample{{Bytes: 1}}}
	at := 0.0
	for step := range 2 {
		begin := at
		for _, e := range []struct {
			kind string
			took float64
		}{{"F", 4}, {"F", 8}, {"B", 6}, {"B", 12}, {"U", 1}} {
			line.Events = append(line.Events, trace.Event{Lane: trace.Compute, Kind: e.kind, Step: step,
				Instruction: fmt.Sprintf("0%s%d", e.kind, step), ReadyS: at, StartS: at, EndS: at + e.took})
			at += e.took
		}
		line.Steps = append(line.Steps, trace.StepMark{Step: step, StartS: begin, EndS: at})
	}
	slices.Reverse(line.Events) // the events of a recorded Timeline are in no order
	o, err := Observe(line, Observing{At: Degrees{2, 1}, Stretches: layers})
	if err != nil {
		t.Fatal(err)
	}
	once := Curve{{3, 0.5}, {1, 1}, {6, 0.25}, {2, 0.5}, {4, 0.25}, {2, 1}, {8, 0.125}, {4, 0.5}, {1, 1}}
	want := slices.Concat(once, once).scaled(0.5) // a batch is half of what was observed
	got := o.Devices[0].Utilisation
	if !slices.EqualFunc(got, want, func(a, b Level) bool { return near(a.ForS, b.ForS) && near(a.Phi, b.Phi) }) {
		t.Fatalf("%v\nwant %v", got, want)
	}
	if !near(got.Length(), 31) || !near(got.Volume(), 2*(2.5+3)+1) {
		t.Errorf("it computes %v s, %v at its peak", got.Length(), got.Volume())
	}
	// Equation 2 for one micro-batch in place of two: the curve is twice as high. Only the parts at 1 are then above
	// the peak, by 1 for 1 + 2 + 1 s. T' = (31 + 4)/2.
	if got := ComputeTime(got, Degrees{2, 1}, Degrees{1, 1}); !near(got, 17.5) {
		t.Errorf("with one micro-batch it computes %v s; want 17.5", got)
	}
	// With half as many micro-batches and twice as many pipelines, the curve is four times as high. It is 1 above the
	// peak for 3, 2 and 4 s, and 3 above it for 1, 2 and 1 s: 9 + 12 = 21. T' = (31 + 21)/4. A constant curve of the
	// same mean, 12/31, would give (31 + 17)/4 = 12.
	if got := ComputeTime(got, Degrees{2, 2}, Degrees{1, 4}); !near(got, 13) {
		t.Errorf("with four times as much at once it computes %v s; want 13", got)
	}
}

// TestBackwardsThatRecompute: in a backward with recompute, each segment's forwards come before that segment's
// backwards.
func TestBackwardsThatRecompute(t *testing.T) {
	f, b := []profile.Stretch{{NowS: 1}, {NowS: 2}, {NowS: 3}}, []profile.Stretch{{NowS: 10}, {NowS: 20}, {NowS: 30}}
	for again, want := range map[plan.Recompute][]float64{
		plan.KeepAll: {30, 20, 10}, plan.KeepInput: {1, 2, 3, 30, 20, 10}, 2: {3, 30, 1, 2, 20, 10},
	} {
		var got []float64
		for _, s := range descending(f, b, again) {
			got = append(got, s.NowS)
		}
		if !slices.Equal(got, want) {
			t.Errorf("recompute %v: %v, want %v", again, got, want)
		}
	}
}

// TestLongCurvesAreWrittenShort: a long curve is written with fewer levels, and keeps its length and volume.
func TestLongCurvesAreWrittenShort(t *testing.T) {
	var c Curve
	for i := range 3*mostWritten + 5 {
		c = c.add(1+float64(i%3), float64(i%7)/7)
	}
	text, err := json.Marshal(c)
	var back Curve
	if err == nil {
		err = json.Unmarshal(text, &back)
	}
	if err != nil || len(back) > mostWritten || !near(back.Length(), c.Length()) || !near(back.Volume(), c.Volume()) {
		t.Errorf("%d stretches of %d, %v s for %v, %v; %v", len(back), len(c), back.Length(), c.Length(), back.Volume(), err)
	}
}

// TestObserveKeepsUpdatesOutOfTheData: memory that an update holds briefly counts in the peak, and not as data.
func TestObserveKeepsUpdatesOutOfTheData(t *testing.T) {
	small, err := Observe(updating(t, 7), Observing{At: Degrees{4, 1}, Skip: 1, UpdateBytes: []int64{7, 7}})
	if err != nil {
		t.Fatal(err)
	}
	large, err := Observe(updating(t, 700), Observing{At: Degrees{4, 1}, Skip: 1, UpdateBytes: []int64{700, 700}})
	if err != nil {
		t.Fatal(err)
	}
	for k, d := range large.Devices {
		if d.ModelBytes != 140 || d.DataBytes != small.Devices[k].DataBytes {
			t.Errorf("device %d: %d bytes of models and %d of data; want 140 and %d", k, d.ModelBytes, d.DataBytes,
				small.Devices[k].DataBytes)
		}
		p, err := large.Predict(Degrees{4, 1}, Adjusted)
		if err != nil || p.Devices[k].MemoryBytes != 840 {
			t.Errorf("device %d is predicted to hold %d at its update, want 840; %v", k, p.Devices[k].MemoryBytes, err)
		}
	}
}

// TestObserveSortsByStage: devices are in stage order, even if workers are numbered in another order.
func TestObserveSortsByStage(t *testing.T) {
	line := simulated(t)
	straight, err := Observe(line, Observing{At: Degrees{4, 1}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range line.Events {
		line.Events[i].Worker = 1 - line.Events[i].Worker
	}
	for i := range line.Memory {
		line.Memory[i].Worker = 1 - line.Memory[i].Worker
	}
	slices.Reverse(line.PeakBytes)
	slices.Reverse(line.PeakActivations)
	turned, err := Observe(line, Observing{At: Degrees{4, 1}})
	if err != nil {
		t.Fatal(err)
	}
	for k := range straight.Devices {
		if a, b := straight.Devices[k], turned.Devices[k]; a.DataBytes != b.DataBytes || a.Held != b.Held ||
			!near(a.Utilisation.Length(), b.Utilisation.Length()) {
			t.Errorf("device %d is %+v, turned %+v", k, a, b)
		}
	}
}

func TestObserveRefuses(t *testing.T) {
	for want, spoil := range map[string]func(*trace.Timeline, *Observing){
		"0 pipelines":                 func(_ *trace.Timeline, o *Observing) { o.At.Pipelines = 0 },
		"of which the first 4":        func(_ *trace.Timeline, o *Observing) { o.Skip = 4 },
		"of which the first -1":       func(_ *trace.Timeline, o *Observing) { o.Skip = -1 },
		"no memory samples of worker": func(l *trace.Timeline, _ *Observing) { l.Memory = nil },
		`is "x"; want an instruction`: func(l *trace.Timeline, _ *Observing) {
			l.Events[slices.IndexFunc(l.Events, func(e trace.Event) bool { return e.Kind == "F" })].Instruction = "x"
		},
		"worker is 7, want":       func(l *trace.Timeline, _ *Observing) { l.Events[0].Worker = 7 },
		"device 0 never computed": func(l *trace.Timeline, _ *Observing) { l.Events = nil },
	} {
		line, o := simulated(t), Observing{At: Degrees{4, 1}}
		spoil(line, &o)
		if _, err := Observe(line, o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want it to say %q", err, want)
		}
	}
}
