package curves

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// falling returns one point for each epoch with these losses.
func falling(losses ...float64) []Point {
	var points []Point
	for i, l := range losses {
		points = append(points, Point{Epoch: float64(i + 1), Loss: l, Accuracy: 1 - l/10})
	}
	return points
}

func TestEpochsToIsTheFirstEvaluationThatReaches(t *testing.T) {
	for _, c := range []struct {
		metric Metric
		losses []float64
		target float64
		want   float64
		ok     bool
	}{
		{Loss, []float64{4, 3, 2}, 3, 2, true},
		{Loss, []float64{4, 3, 2}, 2.5, 3, true},
		{Loss, []float64{4, 3, 2}, 1.9, 0, false},
		{Loss, []float64{4, 2, 5, 1}, 2, 2, true}, // a later increase does not matter
		{Loss, nil, 2, 0, false},
		{Loss, []float64{math.NaN(), 2}, 3, 2, true},
		{Accuracy, []float64{4, 3, 2}, 0.7, 2, true},
		{Accuracy, []float64{4, 3, 2}, 0.81, 0, false},
	} {
		got, ok := c.metric.EpochsTo(falling(c.losses...), c.target)
		if got != c.want || ok != c.ok {
			t.Errorf("%v to %s %g: %g, %v; want %g, %v", c.losses, c.metric, c.target, got, ok, c.want, c.ok)
		}
	}
}

// EpochsTo finds the first epoch that reaches the target, as a search through all points does. A training always
// reaches its own best value.
func TestEpochsToAgainstASearch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		points := falling(rapid.SliceOfN(rapid.Float64Range(0, 9), 1, 20).Draw(t, "losses")...)
		target := rapid.Float64Range(0, 9).Draw(t, "target")
		for _, m := range []Metric{Loss, Accuracy} {
			got, ok := m.EpochsTo(points, target)
			at := slices.IndexFunc(points, func(p Point) bool {
				return m == Loss && p.Loss <= target || m == Accuracy &&
					p.Accuracy >= target
			})
			if ok != (at >= 0) || ok && got != points[at].Epoch {
				t.Fatalf("%s: %g, %v; the first is number %d", m, got, ok, at)
			}
			if again, reached := m.EpochsTo(points, m.Best(points)); !reached || again < 1 {
				t.Fatalf("%s: its own best is not reached", m)
			}
		}
	})
}

func TestReachedByIsTheWeakestOfTheBests(t *testing.T) {
	trainings := [][]Point{falling(5, 3, 2), falling(5, 4, 1)}
	for _, c := range []struct {
		metric Metric
		part   float64
		want   float64
	}{{Loss, 1, 2}, {Loss, 0.7, 4}, {Accuracy, 1, 0.8}, {Accuracy, 0.7, 0.6}} {
		got, err := c.metric.ReachedBy(trainings, c.part)
		if err != nil || got != c.want {
			t.Errorf("%s in %g: %g, %v; want %g", c.metric, c.part, got, err, c.want)
		}
	}
	for _, bad := range [][][]Point{nil, {{}}, {falling(1, 2, 3)}} {
		if got, err := Loss.ReachedBy(bad, 0.1); err == nil {
			t.Errorf("%v: %g; want a refusal", bad, got)
		}
	}
}

func TestSpreads(t *testing.T) {
	got := Loss.Spreads([][]Point{falling(5, 3), falling(7)}) // the second training diverged after an epoch
	want := []Spread{{Epoch: 1, Mean: 6, Lo: 5, Hi: 7, Of: 2}, {Epoch: 2, Mean: 3, Lo: 3, Hi: 3, Of: 1}}
	if !slices.Equal(got, want) {
		t.Errorf("%v; want %v", got, want)
	}
	if got := Loss.Spreads(nil); got != nil {
		t.Errorf("of nothing: %v", got)
	}
}

func TestEfficiency(t *testing.T) {
	e := Loss.Efficiency([]Training{{Points: falling(5, 3, 2)}, {Points: falling(5, 4, 3)}, {Points: falling(9)},
		{Diverged: "at once"}}, 3)
	if !slices.Equal(e.Epochs, []float64{2, 3}) || e.Mean != 2.5 || e.Lo != 2 || e.Hi != 3 || e.Missed != 2 ||
		e.Diverged != 1 {
		t.Errorf("%+v", e)
	}
	if want := (2 + 3 + 9) / 3.; e.Best != want {
		t.Errorf("best %g; want %g", e.Best, want)
	}
	if e := Loss.Efficiency(nil, 3); e.Mean != 0 || e.Missed != 0 {
		t.Errorf("of nothing: %+v", e)
	}
}

func TestSpeedupToTheTarget(t *testing.T) {
	// 2 epochs of 1,000 samples are 200 batches of 10 samples. At 50 ms a batch they take 10 s.
	if got := TimeTo(2, 1000, 10, 0.05); math.Abs(got-10) > 1e-12 {
		t.Errorf("%g s; want 10", got)
	}
	// A training that is twice as fast and needs a quarter more epochs reaches its target 2/1.25 = 1.6 times as fast.
	s, err := SpeedupOf([]float64{1, 1, 1, 1, 1, 2}, []float64{2, 2, 2, 2, 2, 4}, 2.5, 2)
	if err != nil || s.Batch != 2 || s.Epochs != 0.8 || s.Target != 1.6 || s.Interval.Lo != 2 || s.Interval.Hi != 2 {
		t.Errorf("%+v, %v", s, err)
	}
	if s, err := SpeedupOf([]float64{1, 1, 1, 1, 1, 1}, []float64{2, 2, 2, 2, 2, 2}, 0, 2); err != nil || s.Target != 0 ||
		s.Batch != 2 {
		t.Errorf("one that does not reach it: %+v, %v", s, err)
	}
	for _, c := range [][2][]float64{{{1, 2}, {1}}, {{1, 1, 1}, {1, 1, 1}}, {{0, 1, 1, 1, 1, 1}, {1, 1, 1, 1, 1, 1}}} {
		if s, err := SpeedupOf(c[0], c[1], 1, 1); err == nil {
			t.Errorf("%v: %+v; want a refusal", c, s)
		}
	}
}
