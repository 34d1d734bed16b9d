package profile

import (
	"context"
	"errors"
	"math"
	"strings"
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

// The reference loop is timed around every piece of work, its median is kept, its error stops
// the measurement, and without one nothing is said.
func TestMeasureTimesTheReferenceLoop(t *testing.T) {
	m, err := model.Build("mlp", nil)
	if err != nil {
		t.Fatal(err)
	}
	asked := 0
	rising := func() (float64, error) {
		asked++
		return float64(asked), nil
	}
	p, err := Measure(t.Context(), m, evenTimer{}, Options{MicroBatches: []int{1, 2}, Reference: rising})
	if err != nil {
		t.Fatal(err)
	}
	// Beats 1 to 10 are around the first size, 6 to 15 around the second, 11 to 20 around the updates: their
	// medians are 5.5, 10.5 and 15.5, and everything is told at the pace of 10.5.
	for _, l := range p.Layers {
		for what, x := range map[string][2]float64{
			"forward at 1": {l.Costs[0].ForwardS, 1e-3 * 10.5 / 5.5}, "backward at 2": {l.Costs[1].BackwardS, 1e-3},
			"an update of elastic averaging": {l.ElasticUpdateS, 2e-3 * 10.5 / 15.5}, "its reference's": {l.ReferenceUpdateS, 1e-3 * 10.5 / 15.5},
		} {
			if math.Abs(x[0]-x[1]) > 1e-12 {
				t.Errorf("%s: %s takes %v s, want %v", l.Name, what, x[0], x[1])
			}
		}
	}
	// Before all, after two sizes, and after updates and transfers: four times five.
	if asked != 20 || p.ReferenceS != 10.5 {
		t.Errorf("asked %d times, reference %v; want 20 and the median, 10.5", asked, p.ReferenceS)
	}
	if p, err = Measure(t.Context(), m, evenTimer{}, Options{}); err != nil || p.ReferenceS != 0 {
		t.Errorf("without a loop: reference %v, %v", p.ReferenceS, err)
	}
	broken := errors.New("broken")
	_, err = Measure(t.Context(), m, evenTimer{}, Options{Reference: func() (float64, error) { return 0, broken }})
	if !errors.Is(err, broken) || !strings.HasPrefix(err.Error(), "profile: ") {
		t.Errorf("a broken loop gives %v", err)
	}
}
