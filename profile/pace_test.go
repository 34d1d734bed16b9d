package profile

import (
	"math"
	"testing"
)

// Of two workers one takes 1.2 where the other takes 0.8 in half of the visits, now the one, now the other.
func TestPaceSpreadIsOfTheMiddleVisit(t *testing.T) {
	at := func(layers ...[]float64) visit {
		var v visit
		for _, workers := range layers {
			v = append(v, LayerTiming{WorkerS: workers})
		}
		return v
	}
	even, first, second := at([]float64{1, 1}, []float64{0.5, 0.5}), at([]float64{1.2, 0.8}), at([]float64{0.3, 0.2},
		[]float64{0.5, 1})
	for _, c := range []struct {
		name   string
		rounds [][]visit
		times  int
		want   float64
	}{
		{"one pace", [][]visit{{even, even, even}, {even, even, first}}, 4, 0},
		{"one behind in the middle", [][]visit{{even, first}, {second, even}, {first, first}, {second, second}}, 3,
			0.2},
		{"too few visits", [][]visit{{first, first}, {first, first}}, 5, 0},
		{"nobody beside", [][]visit{{at([]float64{1}), at([]float64{2})}, {at([]float64{3}), at(nil)},
			{at([]float64{1}), at([]float64{1})}}, 8, 0},
		{"three workers", [][]visit{{at([]float64{1, 1, 1.6}), at([]float64{1.6, 1, 1})},
			{at([]float64{1, 1.6, 1}), at([]float64{1, 1, 1.6})},
			{at([]float64{1, 1, 1.6}), at([]float64{1, 1, 1.6})}}, 4, 1.0 / 3},
	} {
		var rounds [][]visit
		for range c.times {
			rounds = append(rounds, c.rounds...)
		}
		if got := paceSpread(rounds); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}
