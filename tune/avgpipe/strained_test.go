package avgpipe

import (
	"math"
	"testing"

	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/sim"
)

// TestStrainedProfile: a layer takes 0.2 s plus 0.1 s for each sample. In the strained profile the fixed 0.2 s take
// Strain times as long. The given profile is not changed.
func TestStrainedProfile(t *testing.T) {
	p := overheads()
	for l, layer := range strainedProfile(p).Layers {
		for i, c := range layer.Costs {
			if want := Strain*0.2 + 0.1*float64(c.MicroBatch); !near(c.ForwardS, want) || !near(c.BackwardS, 2*want) {
				t.Errorf("layer %d of %d samples: %v and %v s; want %v and %v", l, c.MicroBatch, c.ForwardS, c.BackwardS, want,
					2*want)
			}
			if was := p.Layers[l].Costs[i].ForwardS; !near(was, 0.2+0.1*float64(c.MicroBatch)) {
				t.Fatalf("the profile itself has changed, to %v s", was)
			}
		}
	}
	// If times are in proportion to samples, the fixed part is zero. It is never negative.
	for _, at := range [][2]float64{{1, 4}, {1, 5}} {
		costs := []profile.Cost{{MicroBatch: 1, ForwardS: at[0]}, {MicroBatch: 4, ForwardS: at[1]}}
		if got := fixedPart(costs, func(c profile.Cost) float64 { return c.ForwardS }); got != 0 {
			t.Errorf("%v: a fixed part of %v s", at, got)
		}
	}
	if got := fixedPart([]profile.Cost{{MicroBatch: 1, ForwardS: 3}},
		func(c profile.Cost) float64 { return c.ForwardS }); got != 0 {
		t.Errorf("of one size: %v s", got)
	}
}

func TestSteadiest(t *testing.T) {
	cell := func(m int, stepS, strainedS float64, bytes int64) Cell {
		at := Degrees{m, 1}
		return Cell{At: at, Simulated: &Pipelined{Scored: Scored{At: at, StepS: stepS, MemoryBytes: []int64{bytes}}},
			StrainedS: strainedS}
	}
	grid := []Cell{cell(8, 1, 1.4, 10), cell(4, 1.03, 1.2, 20), cell(2, 1.04, 1.1, 30), cell(1, 1.06, 1, 40)}
	for _, c := range []struct {
		limit int64
		want  int
	}{
		{0, 2}, // as profiled, M = 1 is 6 % slower than M = 8
		{25, 4},
		{15, 8},
	} {
		got, err := steadiest(grid, c.limit)
		if err != nil || got.At.MicroBatches != c.want ||
			got.StepS != grid[map[int]int{8: 0, 4: 1, 2: 2}[c.want]].Simulated.StepS {
			t.Errorf("within %d: %+v, %v; want M = %d", c.limit, got, err, c.want)
		}
	}
	r := &Result{Grid: grid, Best: grid[2].Simulated}
	if over, chosen, ok := r.PassedOver(0); !ok || over.At != grid[0].At || chosen.At != grid[2].At {
		t.Errorf("passed over %v for %v, %v", over.At, chosen.At, ok)
	}
	r.Best = grid[0].Simulated
	if over, _, ok := r.PassedOver(0); ok {
		t.Errorf("the fastest, %v, is passed over for itself", over.At)
	}
	grid[0].StrainedS = 1.101 // M = 8 is then about as fast as M = 2 when strained, and holds less
	if got, _ := steadiest(grid, 0); got.At.MicroBatches != 8 {
		t.Errorf("%+v", got)
	}
	if _, err := steadiest(grid, 5); err == nil {
		t.Error("nothing fits")
	}
}

// TestMeansStay: the times of a setting's instructions vary, but their mean is the calibrated one, even for few
// instructions. So a worker is busy for as long as with constant times.
func TestMeansStay(t *testing.T) {
	w := workload()
	factors := make([]StageFactors, len(w.Base.Stages))
	for i := range factors {
		factors[i] = StageFactors{Update: 1, Elastic: 1, Reference: 1, Spread: 0.3}
	}
	still, varied := *w, *w
	varied.Profile, varied.means = w.scaled(factors, 1), true
	waits := 0.0
	for _, at := range []Degrees{{1, 1}, {1, 2}, {2, 1}, {4, 3}, {16, 1}} {
		p := &Pipelined{Scored: Scored{At: at}, Plan: w.plan(at, 0)}
		_, want, err := still.run(p, 24, false)
		if err != nil {
			t.Fatal(err)
		}
		_, got, err := varied.run(p, 24, false)
		if err != nil {
			t.Fatal(err)
		}
		for k := range want.TotalS {
			if math.Abs(got.TotalS[k]/want.TotalS[k]-1) > 1e-9 {
				t.Errorf("%s: worker %d is busy for %v s; constant times have %v", at, k, got.TotalS[k], want.TotalS[k])
			}
		}
		waits = max(waits, got.StepS/want.StepS-1)
	}
	if waits < 0.001 {
		t.Error("nobody waits for what varies")
	}
	// Over many instructions, the mean approaches that of the distribution.
	sum, n := 0.0, 100000
	for m := range n {
		sum += sim.Variation(schedule.Instruction{Kind: schedule.F, Micro: int32(m)}, 0.3)
	}
	if want := sim.MeanVariation(0.3); math.Abs(sum/float64(n)/want-1) > 0.002 {
		t.Errorf("mean %v of %d instructions; want %v", sum/float64(n), n, want)
	}
}
