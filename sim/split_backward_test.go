package sim

import (
	"testing"

	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/schedule/lower"
)

// inHalves returns chain with measured split backwards of layers 0 and 1. For the weight half of each, 120 bytes are
// kept. Of layer 1's 120 bytes, 100 are layer 0's output.
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

// TestWhatHalvesHold checks the memory of two stages by hand. Stage 0 has two layers with split backwards, and stage 1
// has two without.
func TestWhatHalvesHold(t *testing.T) {
	c, err := CostsOf(inHalves(), local(2), twoStages())
	if err != nil {
		t.Fatal(err)
	}
	split, whole := c.Stages[0][0], c.Stages[1][0]
	// Layer 1's input half needs 40. Then its saved 150 are freed, 20 that are not layer 0's output are kept for its
	// weight half, and the gradient of layer 0's output takes 100: -150 + 20 + 100 = -30. Layer 0's input half needs 40
	// on top of this, which is less than the first 40. In the end both layers keep 120 for their weight halves.
	if split.PendingBytes != 240 || split.InputPeak != 40 || split.FirstInputPeak != 40 || split.WholeBytes != 0 {
		t.Errorf("first half: %+v", split)
	}
	// Layer 1's weight half needs 30, or 35 the first time. Then it frees its 120, so layer 0's weight half holds less.
	if split.WeightPeak != 30 || split.FirstWeightPeak != 35 {
		t.Errorf("second half holds %d, the first time %d; want 30 and 35", split.WeightPeak, split.FirstWeightPeak)
	}
	// Layer 3 needs 40, or 70 the first time. Then its saved 150 are freed, and two gradients of 100 are there: 50. The
	// first time there are also 16 of parameters' gradients: 66. Layer 2 needs 40, or 70, on top of that.
	if whole.InputPeak != 50+40 || whole.FirstInputPeak != 66+70 || whole.WholeBytes != 26 || whole.PendingBytes != 0 ||
		whole.WeightPeak != 0 || whole.FirstWeightPeak != 0 {
		t.Errorf("layers without halves: %+v", whole)
	}
}

// TestHalvesMakeGradientsApart: in a split backward, the first half makes the gradients of layers without halves, and
// the second half makes the rest. Each half has its own peak.
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
		{0, 0, 0, 0, 100 + 10},         // in the second micro-batch's forward
		{500, 0, 0, 0, 100 + 500},      // during the first micro-batch's input half
		{0, 500, 0, 0, 100 + 10 + 500}, // during the second micro-batch's input half, with all gradients there
		{0, 0, 500, 0, 60 + 4 + 500},   // during the first weight half, with gradients of layers without halves
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
