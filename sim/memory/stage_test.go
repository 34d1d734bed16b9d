package memory

import (
	"testing"

	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
)

// TestFrozenBytesOfStages: a frozen parameter counts once in each stage that reads it, even if several layers of the
// stage read it. It has no gradient and no state. Here layer 0 has 10 frozen bytes that only it reads, and 100 that
// layers 1 and 3 also read. Layer 2 has 1000 frozen bytes that layer 3 also reads. Layer 1 learns 7 bytes, for which
// there are two states.
func TestFrozenBytesOfStages(t *testing.T) {
	first, other := profile.Shared{Name: "first", Bytes: 100}, profile.Shared{Name: "other", Bytes: 1000}
	p := &profile.Profile{OptimizerStates: 2}
	for l, layer := range []profile.Layer{
		{FrozenBytes: 10, FrozenShared: []profile.Shared{first}},
		{ParameterBytes: 7, BufferBytes: 3, FrozenShared: []profile.Shared{first}},
		{FrozenShared: []profile.Shared{other}},
		{FrozenShared: []profile.Shared{first, other}},
	} {
		layer.From, layer.TiedTo = []int{l - 1}, -1
		layer.Costs = []profile.Cost{{Device: "cpu", MicroBatch: 1}}
		p.Layers = append(p.Layers, layer)
	}
	costs, _, err := p.At("cpu", 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		first, last                    int
		frozen, fixed, reference, grad int64
	}{
		{0, 3, 1110, 1110 + 3*7 + 3, 10, 7},
		{0, 0, 110, 110, 0, 0},
		{0, 1, 110, 110 + 24, 10, 7},
		{1, 1, 100, 100 + 24, 10, 7},
		{1, 2, 1100, 1100 + 24, 10, 7},
		{2, 2, 1000, 1000, 0, 0},
		{2, 3, 1100, 1100, 0, 0},
		{3, 3, 1100, 1100, 0, 0},
	} {
		got := Of(p, costs, plan.Stage{FirstLayer: c.first, LastLayer: c.last}, plan.ShardNothing)
		if got.FrozenBytes != c.frozen || got.FixedBytes != c.fixed || got.ReferenceBytes != c.reference ||
			got.ParameterBytes != c.grad {
			t.Errorf("layers %d to %d: frozen %d, fixed %d, of a reference %d, gradients %d; by hand %+v", c.first, c.last,
				got.FrozenBytes, got.FixedBytes, got.ReferenceBytes, got.ParameterBytes, c)
		}
	}
}
