package sim

import (
	"testing"

	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/schedule/lower"
)

// inHalves is chain with layers 0 and 1 split and measured: their weights' halves keep 120 bytes, of
// which layer 1's share 100 with what layer 0 has put out.
func inHalves() *profile.Profile {
	p := chain()
	for l := range p.Layers {
		for i := range p.Layers[l].Costs {
			c := &p.Layers[l].Costs[i]
			c.FirstBackwardPeakBytes = c.BackwardPeakBytes + 5
			c.PendingBytes, c.HalvesPeakBytes = new(int64(0)), &profile.HalvesPeaks{Input: 40, FirstInput: 70}
			if l < 2 {
				c.BackwardInputS, c.BackwardWeightS = new(1.0), new(1.0)
				c.PendingBytes, c.HalvesPeakBytes = new(int64(120)), &profile.HalvesPeaks{Input: 40, FirstInput: 40, Weight: 30,
					FirstWeight: 35}
			}
		}
	}
	return p
}

// Two layers with halves in stage 0, two without in stage 1, by hand.
func TestWhatHalvesHold(t *testing.T) {
	c, err := CostsOf(inHalves(), local(2), twoStages())
	if err != nil {
		t.Fatal(err)
	}
	split, whole := c.Stages[0][0], c.Stages[1][0]
	// The input's half of layer 1 holds 40. It frees 150, leaves 20 that layer 0's output is not, and that one's
	// gradient of 100; layer 0's half holds 40 on top of -30, frees 150 and the gradients of 200 that the two cuts'
	// readers have left, and leaves 120 and layer 1's 100.
	if split.PendingBytes != 240 || split.InputPeak != 40 || split.FirstInputPeak != 40 || split.WholeBytes != 0 {
		t.Errorf("first half: %+v", split)
	}
	// The weights' half of layer 1 makes 10 bytes, 35 at its most, and frees 120.
	if split.WeightPeak != 30 || split.FirstWeightPeak != 35 {
		t.Errorf("second half holds %d, the first time %d; want 30 and 35", split.WeightPeak, split.FirstWeightPeak)
	}
	// Layer 3: 40, or 70 the first time; -150 +200 and 16 of gradients; layer 2 on top of that.
	if whole.InputPeak != 50+40 || whole.FirstInputPeak != 66+70 || whole.WholeBytes != 26 || whole.PendingBytes != 0 ||
		whole.WeightPeak != 0 || whole.FirstWeightPeak != 0 {
		t.Errorf("layers without halves: %+v", whole)
	}
}

// Of one micro-batch in halves: the first half makes the gradients of what has no halves, the second the
// rest, and each meets its own peak.
func TestHalvesMakeGradientsApart(t *testing.T) {
	p, err := family.Generate("zb-h1", schedule.Settings{Placement: [][]int{{0}}, MicroBatches: 2})
	if err != nil {
		t.Fatal(err)
	}
	if p, err = lower.Lower(p, lower.Options{}); err != nil {
		t.Fatal(err)
	}
	costs := Uniform(1, 1, 2, 0)
	k := &costs.Stages[0][0]
	k.SavedBytes, k.PendingBytes, k.ParameterBytes, k.WholeBytes = 100, 60, 10, 4
	for _, peaks := range []struct {
		firstInput, input, firstWeight, weight int64
		want                                   int64
	}{
		{0, 0, 0, 0, 100 + 10},         // the second micro-batch's forward
		{500, 0, 0, 0, 100 + 500},      // beside the forward's
		{0, 500, 0, 0, 100 + 10 + 500}, // the second's, with all gradients there
		{0, 0, 500, 0, 60 + 4 + 500},   // with those of layers without halves
		{0, 0, 0, 500, 60 + 10 + 500},
	} {
		k.FirstInputPeak, k.InputPeak = peaks.firstInput, peaks.input
		k.FirstWeightPeak, k.WeightPeak = peaks.firstWeight, peaks.weight
		_, sum, err := Run(p, costs, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if sum.PeakBytes[0] != peaks.want {
			t.Errorf("%+v: %d bytes\n%s", peaks, sum.PeakBytes[0], p.Text())
		}
	}
}
