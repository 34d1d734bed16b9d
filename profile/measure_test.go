package profile

import (
	"context"
	"testing"

	"github.com/millrace-ml/millrace/model"
)

// evenTimer takes a millisecond for everything.
type evenTimer struct{}

func (evenTimer) Layers(_ context.Context, r Request) ([]LayerTiming, error) {
	out := make([]LayerTiming, len(r.Model.Layers))
	for l := range out {
		out[l] = LayerTiming{ForwardS: []float64{1e-3}, BackwardS: []float64{1e-3}}
	}
	return out, nil
}

func (evenTimer) Updates(_ context.Context, r Request) ([]float64, string, int, error) {
	return make([]float64, len(r.Model.Layers)), "sgd", 0, nil
}

func (evenTimer) Averaging(_ context.Context, r Request) (updateS, referenceS []float64, err error) {
	updateS, referenceS = make([]float64, len(r.Model.Layers)), make([]float64, len(r.Model.Layers))
	for l := range updateS {
		updateS[l], referenceS[l] = 2e-3, 1e-3
	}
	return updateS, referenceS, nil
}

func (evenTimer) Transfer(context.Context, int) (*Transfer, error) { return nil, nil }
func (evenTimer) Engine() string                                   { return "even" }
func (evenTimer) Device() string                                   { return "cpu" }

// driftingTimer is a machine that halves its speed after so many visits.
type driftingTimer struct {
	evenTimer
	visits, slowFrom int
	passes           map[int]int // by size
}

func (d *driftingTimer) Layers(_ context.Context, r Request) ([]LayerTiming, error) {
	s := 1e-3
	if d.visits++; d.visits > d.slowFrom {
		s = 2e-3
	}
	d.passes[r.MicroBatch] += r.Passes
	out := make([]LayerTiming, len(r.Model.Layers))
	for l := range out {
		for range r.Passes {
			out[l].ForwardS, out[l].BackwardS = append(out[l].ForwardS, s), append(out[l].BackwardS, 2*s)
		}
	}
	return out, nil
}

// Sizes are visited in turn: a machine that is slow for the last third of a measurement is so for a third
// of each size, and no median is.
func TestASlowWhileHitsEverySizeAlike(t *testing.T) {
	m, err := model.Build("mlp", nil)
	if err != nil {
		t.Fatal(err)
	}
	d := &driftingTimer{slowFrom: 8, passes: map[int]int{}}
	p, err := Measure(t.Context(), m, d, Options{MicroBatches: []int{1, 2, 4, 8}, Passes: 7})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range p.Layers[0].Costs {
		if c.ForwardS != 1e-3 || c.BackwardS != 2e-3 || d.passes[c.MicroBatch] != 7 {
			t.Errorf("micro-batch %d: forward %v s, backward %v s of %d passes; want 0.001, 0.002 of 7", c.MicroBatch, c.ForwardS, c.BackwardS, d.passes[c.MicroBatch])
		}
	}
}
