package sim

import (
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
)

// TestMemoryOfADividedLayer checks the memory of three layers by hand. The middle layer is divided 1 : 3 between two
// stages. Both pieces read layer 0's whole output.
func TestMemoryOfADividedLayer(t *testing.T) {
	layer := func(from int, parameters, buffers int64, c profile.Cost) profile.Layer {
		c.Device, c.MicroBatch = "cpu", 1
		return profile.Layer{Name: "l", Kind: "linear", From: []int{from}, TiedTo: -1, ParameterBytes: parameters,
			BufferBytes: buffers, Costs: []profile.Cost{c}}
	}
	p := &profile.Profile{Version: profile.Version, Model: "three", ModelID: "x", Source: "roofline", OptimizerStates: 1,
		Layers: []profile.Layer{
			layer(-1, 100, 0, profile.Cost{ForwardS: 1, BackwardS: 1, OutputBytes: 30, SavedBytes: 50, ForwardPeakBytes: 50,
				BackwardPeakBytes: 20}),
			layer(0, 80, 8, profile.Cost{ForwardS: 4, BackwardS: 8, OutputBytes: 16, SavedBytes: 40, ForwardPeakBytes: 48,
				BackwardPeakBytes: 70}),
			layer(1, 60, 0, profile.Cost{ForwardS: 1, BackwardS: 1, OutputBytes: 10, SavedBytes: 20, ForwardPeakBytes: 20,
				BackwardPeakBytes: 26}),
		}}
	pl := &plan.Plan{Version: plan.Version, Model: "three", ModelID: "x", Replication: "split", MicroBatch: 1,
		MicroBatches: 2, Schedule: "1f1b", Weights: "sync",
		Stages: []plan.Stage{{FirstLayer: 0, LastLayer: 1, LastFraction: 0.25, Devices: []int{0}, Warmup: 2},
			{FirstLayer: 1, LastLayer: 2, FirstFraction: 0.75, Devices: []int{1}, Warmup: 1}}}
	c, err := CostsOf(p, local(2), pl)
	if err != nil {
		t.Fatal(err)
	}
	front, behind := c.Stages[0][0], c.Stages[1][0]
	for _, k := range []struct {
		what      string
		got, want int64
	}{
		// Buffers belong to what the layer does after its matrix product, and only the last piece does that.
		{"weights of stage 0, their momentum", front.FixedBytes, 2 * (100 + 20)},
		{"weights of stage 1, their momentum, buffers", behind.FixedBytes, 2*(60+60) + 8},
		{"gradients of stage 0", front.ParameterBytes, 100 + 20},
		{"gradients of stage 1", behind.ParameterBytes, 60 + 60},
		{"what stage 0 saves: of layer 1 a quarter of its output", front.SavedBytes, 50 + 4},
		{"what stage 1 saves: of layer 1 all, for it joins", behind.SavedBytes, 40 + 20},
		{"layer 0's output and a quarter of layer 1's go forward", front.ActivationBytes, 30 + 4},
		{"and are stage 1's input", behind.InputBytes, 30 + 4},
		{"their gradients come back", behind.GradientBytes, 30 + 4},
		// The backward makes all 30 bytes of the gradient of layer 1's input. The peak is above that by the larger of
		// two numbers: 30 for the sum with the gradient that came back, or 30 + 2 for a quarter of the layer's other 10
		// bytes.
		{"inside a backward of stage 0", front.BackwardPeak, 30 + 30 + 2},
		// Layer 0 saves 50 and layer 1 saves a quarter of 16. Layer 1 needs 32 besides its output.
		{"inside a forward of stage 0", front.ForwardPeak, 50 + 4 + 32},
		// Layer 2 needs 26. Then the 20 that it saved are freed, and a gradient of 16 for the whole output of layer 1
		// is there. On top of that, layer 1 needs 30 for the gradient of its input, 30 = 3/4 of 40, and 16 for a sum of
		// parts.
		{"inside a backward of stage 1", behind.BackwardPeak, 16 - 20 + 30 + 30 + 16},
	} {
		if k.got != k.want {
			t.Errorf("%s: %d bytes, want %d", k.what, k.got, k.want)
		}
	}

	pl.Stages[1].FirstFraction = 0.5
	if _, err := CostsOf(p, local(2), pl); err == nil ||
		!strings.Contains(err.Error(), "compute 0.75 of layer 1 together") {
		t.Errorf("a quarter and a half of a layer: %v", err)
	}
}

// TestWhatSkipsADividedLayerCrossesOnce: a later stage also reads the output of the layer in front of a divided layer.
// That output crosses the boundary inside the divided layer only once.
func TestWhatSkipsADividedLayerCrossesOnce(t *testing.T) {
	p := chain()
	p.Layers[3].From = []int{2, 1} // layer 3 reads layer 1 past layer 2
	costs := func(first, last float64) StageCost {
		pl := twoStages()
		pl.Stages[0].LastLayer, pl.Stages[0].LastFraction, pl.Stages[1].FirstFraction = 2, first, last
		c, err := CostsOf(p, local(2), pl)
		if err != nil {
			t.Fatal(err)
		}
		return c.Stages[0][0]
	}
	one, two := p.Layers[1].Costs[0].OutputBytes, p.Layers[2].Costs[0].OutputBytes
	if got := costs(0.5, 0.5).ActivationBytes; got != one+two/2 {
		t.Errorf("%d bytes cross, want layer 1's %d and half of layer 2's %d", got, one, two)
	}
}
