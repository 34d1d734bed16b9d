package measure

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/engine/ref"
	"github.com/millrace-ml/millrace/internal/stats"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/profile/timing"
	"github.com/millrace-ml/millrace/stage/optim"
	"github.com/millrace-ml/millrace/trace"
)

// TestWhatAVisitTimes: if passes are short, a visit times many passes in halves, and passes with recomputation. If
// passes are long, a visit times one pass in halves, and only one visit times recomputation.
func TestWhatAVisitTimes(t *testing.T) {
	m, err := model.Build("mlp", map[string]any{"inputs": 6, "hidden": []int{8}, "classes": 4})
	if err != nil {
		t.Fatal(err)
	}
	untrained := func(context.Context, Pipeline) (*trace.Timeline, error) {
		return nil, errors.New("layers need no pipeline")
	}
	timer, err := NewTimer(ref.New(), ones{6}, optim.Settings{Kind: optim.SGD}, untrained, nil)
	if err != nil {
		t.Fatal(err)
	}
	// times returns, for each visit, how many backwards in halves and how many backwards that compute again were timed.
	times := func(atLeastS float64) (halves, again []int) {
		r := timing.Request{Model: m, MicroBatch: 2, Passes: 1, AtLeastS: atLeastS, Again: true, Concurrency: 1, Threads: 1}
		c, err := timer.Crew(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		for range 4 {
			layers, err := c.Layers(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			halves, again = append(halves, len(layers[0].BackwardWeightS)), append(again, len(layers[0].AgainS))
			if len(layers[0].AgainS) != len(layers[0].BareForwardS) {
				t.Errorf("%d backwards that compute again behind %d forwards that keep nothing", len(layers[0].AgainS),
					len(layers[0].BareForwardS))
			}
		}
		return halves, again
	}
	halves, again := times(1e-9)
	for visit := range halves {
		if halves[visit] != 1 || (again[visit] > 0) != (visit+1 == againVisit) {
			t.Errorf("long passes, visit %d: %d in halves, %d that compute again", visit+1, halves[visit], again[visit])
		}
	}
	// If the machine pauses for a moment, the passes of a visit may seem long. So one visit with many passes is enough.
	halves, again = times(0.02)
	many := 0
	for visit := range halves {
		if visit+1 != againVisit && halves[visit] > 1 && again[visit] > 0 {
			many++
		}
	}
	if many == 0 {
		t.Errorf("short passes: %v in halves, %v that compute again, by visit", halves, again)
	}
}

// TestLayersAreTimedByTheDevice: on an asynchronous device a layer's time is that of the device, not of the call.
func TestLayersAreTimedByTheDevice(t *testing.T) {
	m, err := model.Build("mlp", map[string]any{"inputs": 6, "hidden": []int{8}, "classes": 4})
	if err != nil {
		t.Fatal(err)
	}
	late := ref.Lazy(ref.Lateness{Seed: 3, OneIn: 1, Most: 2 * time.Millisecond})
	trains := func(context.Context, Pipeline) (*trace.Timeline, error) { return nil, errors.New("not for layers") }
	timer, err := NewTimer(late, ones{6}, optim.Settings{Kind: optim.SGD}, trains, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := timing.Request{Model: m, MicroBatch: 2, Passes: 5, Concurrency: 1, Threads: 1}
	layers, err := timer.once(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	for l, layer := range layers {
		// A layer has several pieces of work, each delayed by a millisecond on average.
		if len(layer.ForwardS) < 5 || stats.Median(layer.ForwardS) < 0.5e-3 || stats.Median(layer.BackwardS) < 0.5e-3 {
			t.Errorf("%s takes %v s forward and %v s back", m.Layers[l].Name, layer.ForwardS, layer.BackwardS)
		}
	}
	updates, _, _, err := timer.Updates(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if u := updates[0]; u.UpdateS < 0.5e-3 || u.PulledUpdateS < 0.5e-3 || u.ReferenceUpdateS < 0.5e-3 {
		t.Errorf("updates take %+v s", updates)
	}
}
