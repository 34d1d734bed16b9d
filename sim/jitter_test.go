package sim

import (
	"math"
	"slices"
	"testing"

	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/schedule/lower"
)

// TestJitterHasTheSpreadAskedFor draws 40,000 factors. Their median is 1 and their interquartile range is the spread.
func TestJitterHasTheSpreadAskedFor(t *testing.T) {
	const spread = 0.2
	var all []float64
	for micro := range int32(10000) {
		for stage := range 4 {
			all = append(all, jitter(schedule.Instruction{Kind: schedule.F, Stage: int32(stage), Micro: micro},
				spread/quartiles))
		}
	}
	slices.Sort(all)
	n := len(all)
	if m, s := all[n/2], all[3*n/4]-all[n/4]; math.Abs(m-1) > 0.005 || math.Abs(s-spread) > 0.005 {
		t.Errorf("median %.4f and quartiles %.4f apart; want 1 and %v", m, s, spread)
	}
}

// TestJitterNeedsSlack compares 1F1B with P_B, which runs more forwards in advance. With constant times and free
// transfers, both take the same time. With times that vary, P_B waits less than 1F1B, and its step takes longer than
// with constant times.
func TestJitterNeedsSlack(t *testing.T) {
	step := func(order string, jittered bool) float64 {
		p, err := family.Generate(order, schedule.Settings{Placement: [][]int{{0}, {1}}, MicroBatches: 16, Repeat: 40})
		if err != nil {
			t.Fatal(err)
		}
		if p, err = lower.Lower(p, lower.Options{}); err != nil {
			t.Fatal(err)
		}
		costs := Uniform(2, 1, 2, 0)
		var o Options
		if jittered {
			costs.Noise.Spread = [][]float64{{0.2}, {0.2}}
			o.Vary = costs.Noise.Vary()
		}
		_, sum, err := Run(p, costs, o)
		if err != nil {
			t.Fatal(err)
		}
		return sum.StepS
	}
	if a, b := step("1f1b", false), step("pb", false); a != b || a != 51 {
		t.Errorf("constant times: 1f1b %v, pb %v; want 51, (M + S - 1)(F + B)", a, b)
	}
	a, b := step("1f1b", true), step("pb", true)
	if !(a > 1.02*b && b > 51) {
		t.Errorf("times that vary: 1f1b %v, pb %v; want 1f1b to wait at least 2 %% longer", a, b)
	}
	if again := step("1f1b", true); again != a {
		t.Errorf("the same Program took %v and then %v", a, again)
	}
}

// TestJitterOfAnInterruptedMeasurement: a pause of a thousand times a layer's time during its measurement does not
// make the layer take that long in simulations.
func TestJitterOfAnInterruptedMeasurement(t *testing.T) {
	for micro := range int32(1000) {
		if f := jitter(schedule.Instruction{Kind: schedule.F, Micro: micro}, 1000); f < 1.0/3 || f > 3 {
			t.Fatalf("micro-batch %d takes %v times its median", micro, f)
		}
	}
}
