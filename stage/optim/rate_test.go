package optim

import (
	"math"
	"strings"
	"testing"
)

func TestRatesHaveKnownValues(t *testing.T) {
	for _, c := range []struct {
		name string
		rate Rate
		at   map[int]float64
	}{
		{"constant", Rate{Kind: Constant, Base: 0.5}, map[int]float64{0: 0.5, 1000: 0.5}},
		{"warm-up", Rate{Kind: Constant, Base: 1, Warmup: 4}, map[int]float64{0: 0.2, 1: 0.4, 3: 0.8, 4: 1, 5: 1}},
		{"step", Rate{Kind: StepDecay, Base: 1, Every: 10, Factor: 0.1},
			map[int]float64{0: 1, 9: 1, 10: 0.1, 19: 0.1, 20: 0.01}},
		{"step after warm-up", Rate{Kind: StepDecay, Base: 1, Every: 10, Factor: 0.5, Warmup: 5},
			map[int]float64{5: 1, 14: 1, 15: 0.5}},
		{"cosine", Rate{Kind: Cosine, Base: 1, Total: 100}, map[int]float64{0: 1, 50: 0.5, 25: (1 + math.Sqrt2/2) / 2,
			100: 0, 500: 0}},
		{"cosine with warm-up and floor", Rate{Kind: Cosine, Base: 1, Total: 110, Warmup: 10, Floor: 0.1},
			map[int]float64{9: 10. / 11, 10: 1, 60: 0.55, 110: 0.1}},
		{"linear", Rate{Kind: Polynomial, Base: 2, Total: 10, Power: 1}, map[int]float64{0: 2, 5: 1, 10: 0, 11: 0}},
		{"square", Rate{Kind: Polynomial, Base: 2, Total: 10, Power: 2, Floor: 1}, map[int]float64{0: 2, 5: 1.25, 10: 1}},
	} {
		if err := c.rate.Check(); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		for step, want := range c.at {
			if got := c.rate.At(step); math.Abs(got-want) > 1e-12 {
				t.Errorf("%s: step %d has %v; want %v", c.name, step, got, want)
			}
		}
	}
}

func TestRatesAreChecked(t *testing.T) {
	for _, c := range []struct {
		rate Rate
		says string
	}{
		{Rate{Kind: "triangle", Base: 1}, `"triangle"`},
		{Rate{Kind: Constant, Base: -1}, "-1"},
		{Rate{Kind: Constant, Base: math.NaN()}, "NaN"},
		{Rate{Kind: Constant, Base: 1, Warmup: -1}, "warmup is -1"},
		{Rate{Kind: StepDecay, Base: 1, Factor: 1}, "every 0"},
		{Rate{Kind: Cosine, Base: 1, Total: 5, Warmup: 5}, "total"},
		{Rate{Kind: Cosine, Base: 1, Total: 5, Floor: 2}, "floor"},
		{Rate{Kind: Polynomial, Base: 1, Total: 5}, "power"},
	} {
		if err := c.rate.Check(); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %v", c.rate, err)
		}
	}
}

func TestClipScale(t *testing.T) {
	for _, c := range []struct{ norm, limit, want float64 }{{10, 0, 1}, {10, 20, 1}, {10, 10, 1}, {10, 5, 0.5},
		{0, 1, 1}} {
		if got := ClipScale(c.norm, c.limit); got != c.want {
			t.Errorf("norm %v, limit %v: %v; want %v", c.norm, c.limit, got, c.want)
		}
	}
}

// TestScaledRate: every step's rate is multiplied, whatever the schedule.
func TestScaledRate(t *testing.T) {
	for _, r := range []Rate{
		{Kind: Constant, Base: 0.25, Warmup: 3},
		{Kind: StepDecay, Base: 0.5, Every: 2, Factor: 0.5},
		{Kind: Cosine, Base: 1, Floor: 0.25, Total: 8},
		{Kind: Polynomial, Base: 1, Floor: 0.125, Total: 8, Power: 1},
	} {
		for step := range 10 {
			if got, want := r.Scaled(4).At(step), 4*r.At(step); got != want {
				t.Errorf("%s: step %d has %v, want %v", r.Kind, step, got, want)
			}
		}
	}
}
