package race_test

import (
	"math"
	"testing"

	"github.com/millrace-ml/millrace/lab/race"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/schedule/lower"
	"github.com/millrace-ml/millrace/sim"
)

func TestStageBoundKnownNumbers(t *testing.T) {
	for _, c := range []struct {
		busy   []float64
		micros int
		want   float64
	}{
		{[]float64{3}, 8, 1},
		{[]float64{1, 1}, 1, 1},             // nothing overlaps
		{[]float64{1, 1}, 16, 2 * 16. / 17}, // bubble (S-1)/(M+S-1) for S stages and M micro-batches
		{[]float64{1, 1, 1, 1}, 8, 4 * 8. / 11},
		{[]float64{2, 1}, 16, 1.5}, // the first stage is the longest and never waits
		{[]float64{0, 0}, 4, 0},
	} {
		if got := race.StageBound(c.busy, c.micros); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("%v with %d micro-batches: %v, want %v", c.busy, c.micros, got, c.want)
		}
	}
}

// The simulator's 1F1B on equal stages without transfers reaches the bound.
func TestStageBoundIsReached(t *testing.T) {
	for stages := 1; stages <= 4; stages++ {
		var placement [][]int
		busy := make([]float64, stages)
		for i := range stages {
			placement = append(placement, []int{i})
			busy[i] = 3 * 8
		}
		p, err := family.Generate("1f1b", schedule.Settings{Placement: placement, MicroBatches: 8})
		if err != nil {
			t.Fatal(err)
		}
		if p, err = lower.Lower(p, lower.Options{}); err != nil {
			t.Fatal(err)
		}
		_, sum, err := sim.Run(p, sim.Uniform(stages, 1, 2, 0), sim.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if got, want := float64(stages)*24/sum.StepS, race.StageBound(busy, 8); math.Abs(got-want) > 1e-9 {
			t.Errorf("%d stages: simulated %v, bound %v", stages, got, want)
		}
	}
}

func TestOff(t *testing.T) {
	for _, c := range [][3]float64{{105, 100, 0.05}, {95, 100, 0.05}, {0, 0, 0}} {
		if got := race.Off(c[0], c[1]); math.Abs(got-c[2]) > 1e-12 {
			t.Errorf("%v against %v: %v, want %v", c[0], c[1], got, c[2])
		}
	}
	if race.Worst(nil) != 0 || race.Worst([]float64{0.1, 0.3}) != 0.3 {
		t.Error("the worst is the largest")
	}
}
