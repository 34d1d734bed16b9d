package profile_test

import (
	"math"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/profile"
)

// TestAnalyticKnownNumbers checks a dense layer by hand: 64 inputs, 32 outputs and 8 samples, with 2*64*32 FLOPs for
// each sample.
func TestAnalyticKnownNumbers(t *testing.T) {
	m, err := model.Build("mlp", map[string]any{"inputs": 64, "hidden": []int{32}, "classes": 10})
	if err != nil {
		t.Fatal(err)
	}
	const flops, bytes = 1e9, 1e9
	slow := map[string]cluster.DeviceType{"slow": {PeakFLOPS: flops, MemoryBandwidthBytesPerSecond: bytes,
		Efficiency: map[string]float64{"": 1, "memory": 1}}}
	p, err := profile.Analytic(m, slow, []int{1, 8}, "adam", 2)
	if err != nil {
		t.Fatal(err)
	}
	first := p.Layers[0]
	if want := float64(8*m.Layers[0].ForwardFLOPs) / flops; math.Abs(first.Costs[1].ForwardS-want) > 1e-15 {
		t.Errorf("forward takes %v, want %v: FLOPs decide", first.Costs[1].ForwardS, want)
	}
	// For one sample, reading the parameters (64*32+32 floats) takes longer than computing at this bandwidth.
	if want := 4 * (64 + 32 + 64*32 + 32) / float64(bytes); math.Abs(first.Costs[0].ForwardS-want) > 1e-15 {
		t.Errorf("forward takes %v, want %v: bytes decide", first.Costs[0].ForwardS, want)
	}
	if want := 4 * (64*32 + 32) * 7 / float64(bytes); math.Abs(first.UpdateS-want) > 1e-15 {
		t.Errorf("update takes %v, want %v", first.UpdateS, want)
	}
	if p.Source != "roofline" || p.OptimizerStates != 2 || p.ModelID != m.ID() {
		t.Errorf("%s, %d states, model %s", p.Source, p.OptimizerStates, p.ModelID)
	}
	half := map[string]cluster.DeviceType{"slow": {PeakFLOPS: flops, MemoryBandwidthBytesPerSecond: 1e15,
		Efficiency: map[string]float64{"dense": 0.5}}}
	q, err := profile.Analytic(m, half, []int{8}, "sgd", 0)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := q.Layers[0].Costs[0].ForwardS, 2*first.Costs[1].ForwardS; math.Abs(got-want) > 1e-15 {
		t.Errorf("at half the speed forward takes %v, want %v", got, want)
	}
	if _, err := profile.Analytic(m, map[string]cluster.DeviceType{"bare": {}}, []int{1}, "sgd", 0); err == nil ||
		!strings.Contains(err.Error(), `"bare" has no peak`) {
		t.Errorf("got %v", err)
	}
}

// TestRecurrentWeightsAreReadAgain: an LSTM of 1024 units over 29 positions reads its state weights, 16 MiB, 28 more
// times. With 512 units the weights stay in the cache. With many samples the FLOPs take longer than these reads.
func TestRecurrentWeightsAreReadAgain(t *testing.T) {
	const flops, bytes = 1e13, 1e11
	fast := map[string]cluster.DeviceType{"fast": {PeakFLOPS: flops, MemoryBandwidthBytesPerSecond: bytes,
		Efficiency: map[string]float64{"": 1, "memory": 1}}}
	for width, again := range map[int]int64{1024: 28 * 4 * 4 * 1024 * 1024, 512: 0} {
		m, err := model.Build("gnmt", map[string]any{"width": width, "context": 29})
		if err != nil {
			t.Fatal(err)
		}
		at := m.Index("decoder2")
		var took [2]profile.Cost
		for i, recurrent := range []bool{false, true} {
			p, err := profile.Analyze(m, fast, profile.Analysis{Sizes: []int{1, 4096}, Optimizer: "sgd",
				Recurrent: recurrent})
			if err != nil {
				t.Fatal(err)
			}
			took[i] = p.Layers[at].Costs[0]
			if recurrent && width == 1024 {
				if large := p.Layers[at].Costs[1]; large.ForwardS != float64(4096*m.Layers[at].ForwardFLOPs)/flops {
					t.Errorf("4096 samples take %v: FLOPs decide", large.ForwardS)
				}
			}
		}
		want := float64(again) / bytes
		if f, b := took[1].ForwardS-took[0].ForwardS, took[1].BackwardS-took[0].BackwardS; math.Abs(f-want) > 1e-12 ||
			math.Abs(b-want) > 1e-12 {
			t.Errorf("%d units: %v s more forward and %v backward, want %v", width, f, b, want)
		}
	}
}
