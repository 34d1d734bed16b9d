package profile_test

import (
	"math"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/profile"
)

// A dense layer by hand: 64 inputs, 32 outputs, 8 samples: 2*64*32 FLOPs a sample.
func TestAnalyticKnownNumbers(t *testing.T) {
	m, err := model.Build("mlp", map[string]any{"inputs": 64, "hidden": []int{32}, "classes": 10})
	if err != nil {
		t.Fatal(err)
	}
	const flops, bytes = 1e9, 1e9
	slow := map[string]cluster.DeviceType{"slow": {PeakFLOPS: flops, MemoryBandwidthBytesPerSecond: bytes, Efficiency: map[string]float64{"": 1, "memory": 1}}}
	p, err := profile.Analytic(m, slow, []int{1, 8}, "adam", 2)
	if err != nil {
		t.Fatal(err)
	}
	first := p.Layers[0]
	if want := float64(8*m.Layers[0].ForwardFLOPs) / flops; math.Abs(first.Costs[1].ForwardS-want) > 1e-15 {
		t.Errorf("forward takes %v, want %v: FLOPs decide", first.Costs[1].ForwardS, want)
	}
	// One sample: parameters (64*32+32 floats) outweigh the computing at this bandwidth.
	if want := 4 * (64 + 32 + 64*32 + 32) / float64(bytes); math.Abs(first.Costs[0].ForwardS-want) > 1e-15 {
		t.Errorf("forward takes %v, want %v: bytes decide", first.Costs[0].ForwardS, want)
	}
	if want := 4 * (64*32 + 32) * 7 / float64(bytes); math.Abs(first.UpdateS-want) > 1e-15 {
		t.Errorf("update takes %v, want %v", first.UpdateS, want)
	}
	if p.Source != "roofline" || p.OptimizerStates != 2 || p.ModelID != m.ID() {
		t.Errorf("%s, %d states, model %s", p.Source, p.OptimizerStates, p.ModelID)
	}
	half := map[string]cluster.DeviceType{"slow": {PeakFLOPS: flops, MemoryBandwidthBytesPerSecond: 1e15, Efficiency: map[string]float64{"dense": 0.5}}}
	q, err := profile.Analytic(m, half, []int{8}, "sgd", 0)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := q.Layers[0].Costs[0].ForwardS, 2*first.Costs[1].ForwardS; math.Abs(got-want) > 1e-15 {
		t.Errorf("at half the speed forward takes %v, want %v", got, want)
	}
	if _, err := profile.Analytic(m, map[string]cluster.DeviceType{"bare": {}}, []int{1}, "sgd", 0); err == nil || !strings.Contains(err.Error(), `"bare" has no peak`) {
		t.Errorf("got %v", err)
	}
}
