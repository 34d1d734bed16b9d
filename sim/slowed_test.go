package sim

import (
	"testing"

	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/schedule/lower"
)

// TestStagesOfTheSameDevicesHideNoMoreThanOne: layers take as long in one stage as in two stages on the same devices.
// By hand: there are two devices, with F = 2, B = 5 and U = 4. While gradients are summed, half of the computing is
// lost. The backward of the last stage ends at 5, and that of the first at 7. The comments in the table say when
// gradients are summed.
func TestStagesOfTheSameDevicesHideNoMoreThanOne(t *testing.T) {
	for _, c := range []struct {
		last, first float64 // seconds to sum the gradients of each stage
		early       float64 // the part of the last stage's sum that can begin at 4
		want        float64
	}{
		{0.8, 3.2, 0, 10.2 + 0.8/2 + 4},   // from 5 to 5.8 and from 7 to 10.2
		{6, 1, 0, 12 + 2.0/2 + 4},         // from 5 to 12, until 7 during computing
		{1, 0, 0, 7 + 1.0/2 + 4},          // from 5 to 6
		{0.8, 3.2, 0.5, 10.2 + 0.8/2 + 4}, // from 4 to 4.4, 5 to 5.4 and 7 to 10.2
		{6, 1, 0.5, 11 + 3.0/2 + 4},       // from 4 to 11, until 7 during computing
		{2.4, 0.2, 0.5, 7.2 + 2.4/2 + 4},  // from 4 to 6.4 and from 7 to 7.2
	} {
		all := c.last + c.first
		one := Uniform(1, 2, 5, 0)
		k := &one.Stages[0][0]
		k.AllReduceS, k.UpdateS, k.Unhidden = all, 4, 0.5
		k.Shares = []Share{{At: 0.4, Part: c.early * c.last / all}, {At: 0.6, Part: (1 - c.early) * c.last / all}}
		two := Uniform(2, 1, 0, 0)
		first, last := &two.Stages[0][0], &two.Stages[1][0]
		first.BackwardS, first.AllReduceS, first.UpdateS, first.Unhidden = 2, c.first, 2, 0.5
		last.BackwardS, last.AllReduceS, last.UpdateS, last.Unhidden = 3, c.last, 2, 0.5
		last.Shares = []Share{{At: 2.0 / 3, Part: c.early}}
		exactly(t, simulate(t, "dp", schedule.Replicated(1, 2), 2, 1, one).StepS, c.want, "one stage of %+v", c)
		f, err := family.Lookup("dp-overlap")
		if err != nil {
			t.Fatal(err)
		}
		exactly(t, simulate(t, "dp-overlap", f.Placement(2, 2), 2, 1, two).StepS, c.want, "two stages of %+v", c)
	}
}

// TestSumsBesideTheNextMinibatchSlowIt: two replicas sum for R seconds during the next minibatch (dp-async), with F =
// 1, B = 2 and U = 0.25. Half of the computing during a sum is lost. So a steady step takes 3.25 s plus R/2. If R is
// longer than that, the step takes R.
func TestSumsBesideTheNextMinibatchSlowIt(t *testing.T) {
	for R, want := range map[float64]float64{0: 3.25, 1: 3.25 + 0.5, 2: 3.25 + 1, 4: 3.25 + 2, 8: 8} {
		p, err := family.Generate("dp-async", schedule.Settings{Placement: schedule.Replicated(1, 2), MicroBatches: 2,
			Repeat: 60})
		if err == nil {
			p, err = lower.Lower(p, lower.Options{})
		}
		if err != nil {
			t.Fatal(err)
		}
		c := Uniform(1, 1, 2, 0)
		k := &c.Stages[0][0]
		k.AllReduceS, k.UpdateS, k.Unhidden = R, 0.25, 0.5
		_, sum, err := Run(p, c, Options{})
		if err != nil {
			t.Fatal(err)
		}
		exactly(t, sum.StepS, want, "a sum of %v", R)
	}
}
