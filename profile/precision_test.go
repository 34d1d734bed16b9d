package profile_test

import (
	"testing"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/sim/memory"
)

// TestBytesByPrecision: with Adam a parameter takes 16 bytes in f32 and f16 and 18 in bf16, gradient included
// (Rajbhandari et al., ZeRO, 2020, section 3.1). Activations and transfers take two bytes for each 16-bit number.
func TestBytesByPrecision(t *testing.T) {
	m, err := model.Build("gpt", map[string]any{"layers": 2, "width": 64, "heads": 4, "context": 8, "vocabulary": 32})
	if err != nil {
		t.Fatal(err)
	}
	elements := int64(0)
	for i := range m.Layers {
		elements += m.Layers[i].ParameterElements()
	}
	types := map[string]cluster.DeviceType{"d": {Peaks: map[string]float64{"f32": 1e12, "f16": 1e12, "bf16": 1e12},
		MemoryBandwidthBytesPerSecond: 1e12, Kernels: &cluster.Kernels{}}}
	for precision, want := range map[string]struct{ parameter, number int64 }{"f32": {16, 4}, "f16": {16, 2},
		"bf16": {18, 2}} {
		p, err := profile.Analyze(m, types, profile.Analysis{Sizes: []int{2}, Optimizer: "adam", States: 2,
			Precision: precision})
		if err != nil {
			t.Fatal(err)
		}
		costs, _, err := p.At("d", 2)
		if err != nil {
			t.Fatal(err)
		}
		held := memory.Of(p, costs, plan.Stage{LastLayer: len(m.Layers) - 1, Devices: []int{0}}, plan.ShardNothing)
		if got := held.FixedBytes + held.ParameterBytes; got != want.parameter*elements {
			t.Errorf("%s: %d bytes of %d parameters, want %d each", precision, got, elements, want.parameter)
		}
		if got := p.CutBytes(costs, 0); got != 2*8*64*want.number {
			t.Errorf("%s: %d bytes cross the first cut", precision, got)
		}
		c := costs[1]
		if c.BackwardS != *c.BackwardInputS+*c.BackwardWeightS || c.BackwardS <= 0 {
			t.Errorf("%s: backward of %+v", precision, c)
		}
	}
}
