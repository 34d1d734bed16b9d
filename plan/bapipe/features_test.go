package bapipe

import (
	"context"
	"math"
	"testing"

	"github.com/millrace-ml/millrace/plan/plantest"
	"pgregory.net/rapid"
)

// TestDividesByFeatures: rounding moves a boundary within a layer by at most half a feature. In a layer without
// features, it moves the boundary by at most half the layer. No two stages compute parts of the same feature, and no
// stage becomes empty.
func TestDividesByFeatures(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r, given := mixedCase(t, 1e12)
		for l := range r.Profile.Layers {
			r.Profile.Layers[l].Features = rapid.SampledFrom([]int{0, 2, 3, 10}).Draw(t, "features")
		}
		h, err := newChain(r, oneChain(given), 2, "1f1b")
		if err != nil {
			t.Fatal(err)
		}
		bounds, _ := h.divided()
		if bounds == nil {
			return
		}
		at := func(b boundary) float64 { return float64(b.layer) + b.part }
		moved := h.inFeatures(bounds)
		last := 0.0
		for i, b := range moved {
			n := r.Profile.Layers[min(b.layer, len(r.Profile.Layers)-1)].Features
			if b.part > 0 && (n == 0 || math.Abs(b.part*float64(n)-math.Round(b.part*float64(n))) > 1e-9) {
				t.Fatalf("%v of layer %d, which has %d features", b.part, b.layer, n)
			}
			off := math.Abs(at(b) - at(bounds[i]))
			if of := r.Profile.Layers[bounds[i].layer].Features; off > 0.5/float64(max(1, of))+1e-9 {
				t.Fatalf("%v moves by %v in a layer of %d features", at(bounds[i]), off, of)
			}
			if at(b) <= last {
				t.Fatalf("stage %d has nothing: %v", i, moved)
			}
			last = at(b)
		}
		if moved != nil {
			if err := (&exploration{r: r}).plan(h, "1f1b", moved, r.Batch/2).Validate(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestWhatIsExecutedIsDividedByFeatures: if the plan will be executed, a third of a layer of 10 features becomes 3
// features. Otherwise it stays exactly a third. The setting `fractions` overrides both.
func TestWhatIsExecutedIsDividedByFeatures(t *testing.T) {
	for _, x := range []struct {
		runnable bool
		set      string
		want     float64
	}{{false, "", 1. / 3}, {true, "", 0.3}, {false, "features", 0.3}, {true, "on", 1. / 3}, {true, "off", 0}} {
		r := plantest.EvenChain(4, 3, 1e12)
		r.Runnable = x.runnable
		for l := range r.Profile.Layers {
			r.Profile.Layers[l].Features = 10
		}
		if x.set != "" {
			r.Set = map[string]string{"fractions": x.set}
		}
		p, err := find(context.Background(), r)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.Stages[0].LastFraction; math.Abs(got-x.want) > 1e-6 {
			t.Errorf("%+v: %v", x, got)
		}
	}
}
