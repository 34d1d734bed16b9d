package avgpipe

import (
	"slices"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/schedule/lower"
	"github.com/millrace-ml/millrace/sim"
	"github.com/millrace-ml/millrace/trace"
)

// simulated is a 1F1B pipeline of two stages, 4 micro-batches of F = 1, B = 2, update 0.5 and
// messages of 0.25 s, for five steps. A worker holds 100 bytes always, 40 of gradients, 10
// for each micro-batch and the messages.
func simulated(t *testing.T) *trace.Timeline { return updating(t, 7) }

// updating is simulated with updates that hold so many bytes more for a moment.
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

// Warm-up 2 on stage 0. Stage 1 starts at 1.25, works 4 x 3 s and stands twice for 0.25 + 0.25 s
// because a gradient goes up and an activation comes down between two of its turns; its
// last gradient is back at 14, and 0B3 and the update end at 16.5. Each computes 12.5 s of that.
func TestObserveByHand(t *testing.T) {
	line := simulated(t)
	reached := func(stage int, kind string) float64 {
		if kind == "U" {
			return 1
		}
		return []float64{0.5, 0.25}[stage]
	}
	o, err := Observe(line, Observing{At: Degrees{4, 1}, Skip: 1, Reached: reached, ReferenceBytes: []int64{40, 41},
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

// What an update takes for a moment is the whole peak, and no data.
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

// The same events told by a worker numbering of their own give the devices in stage order.
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
