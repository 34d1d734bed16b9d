package timing

import (
	"math"
	"testing"
)

// TestPaceSpreadIsOfTheMiddleVisit: the pace spread is the median, over the visits, of how much slower the slowest
// worker is than the mean, whichever worker that is. It is 0 if there are too few visits and their total time is too
// short, or if there is only one worker.
func TestPaceSpreadIsOfTheMiddleVisit(t *testing.T) {
	at := func(layers ...[]float64) *float64 {
		var v []LayerTiming
		for _, workers := range layers {
			v = append(v, LayerTiming{WorkerS: workers})
		}
		return behind(v)
	}
	even, first, second := at([]float64{1, 1}, []float64{0.5, 0.5}), at([]float64{1.2, 0.8}), at([]float64{0.3, 0.2},
		[]float64{0.5, 1})
	for _, c := range []struct {
		name   string
		visits []*float64
		times  int
		tookS  float64
		want   float64
	}{
		{"one pace", []*float64{even, even, even, even, even, first}, 4, 0.1, 0},
		{"one behind in the middle", []*float64{even, first, second, even, first, first, second, second}, 3, 0.1, 0.2},
		{"too few visits", []*float64{first, first, first, first}, 5, 0.1, 0},
		{"few long ones", []*float64{first, first, first, first}, 1, 2, 0.2},
		{"nobody beside", []*float64{at([]float64{1}), at([]float64{2}), at([]float64{3}), at(nil), at([]float64{1}),
			at([]float64{1})}, 8, 0.1, 0},
		{"three workers", []*float64{at([]float64{1, 1, 1.6}), at([]float64{1.6, 1, 1}), at([]float64{1, 1.6, 1}),
			at([]float64{1, 1, 1.6}), at([]float64{1, 1, 1.6}), at([]float64{1, 1, 1.6})}, 4, 0.1, 1.0 / 3},
	} {
		r := &Record{Sittings: []Sitting{{Rounds: []Round{{}}}}}
		for range c.times {
			for _, b := range c.visits {
				r.Sittings[0].Rounds[0] = append(r.Sittings[0].Rounds[0], Visit{MicroBatch: 4, TookS: c.tookS, Behind: b})
			}
		}
		if got := r.paceSpread(); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// TestPassSpreadIsAgainstTheMiddleOfTheSize: the quartiles of the four passes 10, 10, 20 and 40 are 10 and 40, as
// stats.Quartiles defines them, and the median is 15. The ratios are the same at both sizes, although the second size's
// passes take ten times as long.
func TestPassSpreadIsAgainstTheMiddleOfTheSize(t *testing.T) {
	r := &Record{Sittings: []Sitting{{Rounds: []Round{
		{{MicroBatch: 1, PassesS: []float64{10, 20}}, {MicroBatch: 2, PassesS: []float64{100, 400}}},
		{{MicroBatch: 1, PassesS: []float64{10, 40}}, {MicroBatch: 2, PassesS: []float64{100, 200}}},
	}}}}
	below, above, n := r.passSpread([]int{1, 2})
	if math.Abs(below-1.0/3) > 1e-12 || math.Abs(above-5.0/3) > 1e-12 || n != 8 {
		t.Errorf("%v below, %v above of %d; want 1/3 and 5/3 of 8", below, above, n)
	}
	if below, above, n := r.passSpread([]int{1}); below != 0 || above != 0 || n != 4 {
		t.Errorf("four passes have %v and %v of %d; they are too few", below, above, n)
	}
}

// TestSittingsCompareByWhatTheyHaveInCommon: if a machine has become twice as slow, the times of the later sitting are
// scaled. The scale is the ratio of both sittings' times at a size that both have measured. The sitting with more
// rounds sets the usual pace.
func TestSittingsCompareByWhatTheyHaveInCommon(t *testing.T) {
	visit := func(size int, s float64) Visit {
		return Visit{MicroBatch: size, Layers: []LayerVisit{{ForwardS: s, BackwardS: 2 * s, Bytes: &LayerBytes{}}}}
	}
	r := &Record{Sittings: []Sitting{
		{Rounds: []Round{{visit(1, 1), visit(4, 4)}, {visit(4, 4.4), visit(1, 1.1)}, {visit(4, 4), visit(1, 1)},
			{visit(4, 4), visit(1, 1)}}},
		{Rounds: []Round{{visit(4, 8), visit(3, 6)}, {visit(4, 8), visit(3, 6)}}},
		{Rounds: []Round{{visit(3, 3), visit(6, 6)}}},
	}}
	all := r.paced()
	for size, want := range map[int]float64{1: 1, 3: 3, 4: 4, 6: 6} {
		if got := costOf(all[size], 0, LayerBytes{}); math.Abs(got.ForwardS/want-1) > 1e-12 ||
			math.Abs(got.BackwardS/want-2) > 1e-12 {
			t.Errorf("micro-batch %d: forward %v s, backward %v s; want %v and twice that", size, got.ForwardS, got.BackwardS,
				want)
		}
	}
}
