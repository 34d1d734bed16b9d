package profile_test

import (
	"math"
	"testing"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/profile"
)

// TestAnalyticAgainstPublishedProfiles compares the analytic profile with published measurements on a V100, for a whole
// batch, forward and backward. All models share the constants, so the constants cannot fit each model. VGG's 3x3
// convolutions are predicted too slow and ResNet's 1x1 convolutions too fast. DAPPLE's VGG-19 takes less time for each
// operation than PipeDream's VGG-16 on the same GPU.
func TestAnalyticAgainstPublishedProfiles(t *testing.T) {
	c, err := cluster.Preset("dapple-a")
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range []struct {
		family    string
		batch     int
		ms        float64 // sum over all layers, forward + backward
		tolerance float64
		source    string
	}{
		{"vgg16", 128, 233.9 + 438.6, 0.25, "PipeDream"},
		{"resnet50", 128, 182.5 + 260.9, 0.35, "PipeDream"},
		{"alexnet", 256, 44.8 + 40.5, 0.45, "PipeDream"},
		{"gnmt-16", 128, 182.6 + 337.9, 0.25, "PipeDream's gnmt_large"},
		{"gnmt-16", 64, 90.3 + 158.6, 0.25, "DAPPLE"},
		{"vgg19", 32, 48.0 + 96.2, 0.70, "DAPPLE"},
		{"bert-48", 2, 129.2 + 214.6, 0.10, "DAPPLE"},
		{"xlnet-36", 1, 122.9 + 177.8, 0.10, "DAPPLE"},
		{"amoebanet-36", 1, 48.7 + 119.4, 0.10, "DAPPLE"},
	} {
		m, err := model.Build(w.family, nil)
		if err != nil {
			t.Fatal(err)
		}
		p, err := profile.Analytic(m, c.DeviceTypes, []int{w.batch}, "sgd", 1)
		if err != nil {
			t.Fatal(err)
		}
		sum := 0.0
		for _, l := range p.Layers {
			sum += 1e3 * (l.Costs[0].ForwardS + l.Costs[0].BackwardS)
		}
		t.Logf("%s at %d: %.1f ms, published %.1f", w.family, w.batch, sum, w.ms)
		if math.Abs(sum/w.ms-1) > w.tolerance {
			t.Errorf("%s at %d takes %.1f ms, published %.1f (%s)", w.family, w.batch, sum, w.ms, w.source)
		}
	}
}

// TestWeightsOnChip: here the board's memory carries one byte a second. If weights are in memory, a forward reads them,
// and a backward reads and writes as many bytes. Weights on the chip cause no memory traffic.
func TestWeightsOnChip(t *testing.T) {
	m, err := model.Build("mlp", nil)
	if err != nil {
		t.Fatal(err)
	}
	board := map[string]cluster.DeviceType{"b": {PeakFLOPS: 2e9, MemoryBandwidthBytesPerSecond: 1,
		FPGA: &cluster.FPGA{DSPSlices: 1000, ClockHz: 1e6, FLOPsPerSlice: 2, OnChipBytes: 1 << 20}}}
	for _, onChip := range []bool{false, true} {
		p, err := profile.Analyze(m, board, profile.Analysis{Sizes: []int{1}, OnChip: onChip})
		if err != nil {
			t.Fatal(err)
		}
		weights := float64(p.Layers[0].ParameterBytes)
		if onChip {
			weights = 0
		}
		of := p.Layers[0].Costs[0].Board
		if of.ForwardMemoryS != weights || of.BackwardMemoryS != 2*weights || of.OnChip != onChip {
			t.Errorf("on chip %v: %+v, want %v s forward and twice that back", onChip, of, weights)
		}
		p, err = profile.Analyze(m, board, profile.Analysis{Sizes: []int{1}, OnChip: onChip, Roofline: true})
		if err != nil {
			t.Fatal(err)
		}
		read := 4*int64(m.Inputs[0].Elements()) + m.Layers[0].OutputBytes() + int64(weights) // bytes, at 1 byte a second
		if got := p.Layers[0].Costs[0].ForwardS; math.Abs(got-float64(read)) > 1e-6 {
			t.Errorf("roofline, on chip %v: %v s, want %d", onChip, got, read)
		}
	}
}
