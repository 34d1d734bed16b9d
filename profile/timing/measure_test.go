package timing

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/profile"
)

// evenTimer takes a millisecond for everything.
type evenTimer struct{}

func (e evenTimer) Crew(context.Context, Request) (Crew, error) { return e, nil }
func (evenTimer) Close()                                        {}

func (evenTimer) Layers(_ context.Context, r Request) ([]LayerTiming, error) {
	out := make([]LayerTiming, len(r.Model.Layers))
	for l := range out {
		out[l] = LayerTiming{ForwardS: []float64{1e-3}, BackwardS: []float64{1e-3}}
	}
	return out, nil
}

func (evenTimer) Updates(_ context.Context, r Request) ([]profile.UpdateTimes, string, int, error) {
	each := []profile.UpdateTimes{{PulledUpdateS: 2e-3, ReferenceUpdateS: 1e-3}}
	return slices.Repeat(each, len(r.Model.Layers)), "sgd", 0, nil
}

func (evenTimer) Transfer(context.Context) (*profile.Transfer, error) {
	return &profile.Transfer{LatencyS: 1e-6, BandwidthBytesPerSecond: 1e9}, nil
}

func (evenTimer) AllReduce(_ context.Context, workers int, told func(Summing)) (float64, error) {
	told(Summing{Sum: 1, Of: 2, Each: 12})
	told(Summing{Sum: 1, Of: 2, Pairs: 1200, Each: 2400})
	told(Summing{Sum: 2, Of: 2, Pairs: 12, Each: 12})
	return 1e9 / float64(workers), nil
}

func (evenTimer) Engine() string { return "even" }
func (evenTimer) Device() string { return "cpu" }

// driftingTimer is a machine whose speed halves after a number of visits.
type driftingTimer struct {
	evenTimer
	visits, slowFrom int
	passes           map[int]int // by size
}

func (d *driftingTimer) Crew(context.Context, Request) (Crew, error) { return d, nil }

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

// TestASlowWhileHitsEverySizeAlike: sizes are visited in turn. So if a machine is slow for the last 11 of 28 visits,
// only 2 or 3 of the 7 visits to each size are slow, and the medians do not change.
func TestASlowWhileHitsEverySizeAlike(t *testing.T) {
	m, err := model.Build("mlp", nil)
	if err != nil {
		t.Fatal(err)
	}
	d := &driftingTimer{slowFrom: 17, passes: map[int]int{}}
	p, err := Measure(t.Context(), m, d, Load{}, Options{MicroBatches: []int{1, 2, 4, 8}, Passes: 7})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range p.Layers[0].Costs {
		if c.ForwardS != 1e-3 || c.BackwardS != 2e-3 || d.passes[c.MicroBatch] != 7 {
			t.Errorf("micro-batch %d: forward %v s, backward %v s of %d passes; want 0.001, 0.002 of 7", c.MicroBatch,
				c.ForwardS, c.BackwardS, d.passes[c.MicroBatch])
		}
	}
}

// unsteadyTimer is a machine with a different pace in each round, and in some single visits. At its usual pace, size s
// takes s milliseconds forward and twice that backward.
type unsteadyTimer struct {
	evenTimer
	visits, sizes int
	paces         []float64       // by round
	hiccups       map[int]float64 // by visit
}

func (u *unsteadyTimer) Crew(context.Context, Request) (Crew, error) { return u, nil }

func (u *unsteadyTimer) Layers(_ context.Context, r Request) ([]LayerTiming, error) {
	pace := u.paces[u.visits/u.sizes]
	if h, ok := u.hiccups[u.visits]; ok {
		pace *= h
	}
	u.visits++
	out := make([]LayerTiming, len(r.Model.Layers))
	for l := range out {
		s := 1e-3 * float64(r.MicroBatch) * pace
		out[l] = LayerTiming{ForwardS: []float64{s}, BackwardS: []float64{2 * s}}
	}
	return out, nil
}

// TestSizesCompareWithinRounds: the costs of two sizes are those of a steady machine at the pace of the middle round.
// This holds although the pace varies by round and single visits are slow. Without the correction by pace, the medians
// of two sizes could come from different rounds.
func TestSizesCompareWithinRounds(t *testing.T) {
	m, err := model.Build("mlp", nil)
	if err != nil {
		t.Fatal(err)
	}
	u := &unsteadyTimer{
		sizes: 3, paces: []float64{2, 1, 1.5, 1, 1.25, 3, 1.25},
		hiccups: map[int]float64{1: 4, 6: 1.7, 14: 2, 16: 1.3, 20: 5},
	}
	p, err := Measure(t.Context(), m, u, Load{}, Options{MicroBatches: []int{1, 2, 4}, Passes: 7})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range p.Layers[0].Costs {
		if want := 1.25e-3 * float64(c.MicroBatch); math.Abs(c.ForwardS/want-1) > 1e-9 ||
			math.Abs(c.BackwardS/want-2) > 1e-9 {
			t.Errorf("micro-batch %d: forward %v s, backward %v s; want %v and twice that, as in the middle round",
				c.MicroBatch, c.ForwardS, c.BackwardS, want)
		}
	}
}

func TestMeasureRefusesPassesBelowNone(t *testing.T) {
	m, err := model.Build("mlp", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Measure(t.Context(), m, evenTimer{}, Load{}, Options{Passes: -1}); err == nil ||
		!strings.Contains(err.Error(), "-1 passes") {
		t.Errorf("got %v", err)
	}
}

// TestNoSizesAreTheUsualOnes: an empty list of sizes means the default sizes, like a nil list.
func TestNoSizesAreTheUsualOnes(t *testing.T) {
	m, err := model.Build("mlp", nil)
	if err != nil {
		t.Fatal(err)
	}
	p, err := Measure(t.Context(), m, evenTimer{}, Load{}, Options{MicroBatches: []int{}})
	if err != nil || len(p.Layers[0].Costs) != 4 {
		t.Errorf("%+v, %v", p, err)
	}
}
