package profile_test

import (
	"testing"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/profile"
)

// An analytic profile charges nothing for the backward of a frozen beginning, less for that of a layer that learns in
// part, and the same for any other; its parameters are kept, and no gradients of them.
func TestAnalyticCostsOfFrozenLayers(t *testing.T) {
	types := map[string]cluster.DeviceType{"gpu": {PeakFLOPS: 1e13, MemoryBandwidthBytesPerSecond: 1e12}}
	of := func(patterns ...string) *profile.Profile {
		m, err := model.Build("mlp", map[string]any{"inputs": 256, "hidden": []int{256, 256, 256}, "classes": 10})
		if err == nil && patterns != nil {
			err = m.Freeze(patterns)
		}
		if err != nil {
			t.Fatal(err)
		}
		p, err := profile.Analytic(m, types, []int{4096}, "sgd", 0)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	all, some := of(), of("dense0", "dense1.weight")
	for l, was := range all.Layers {
		is := some.Layers[l]
		a, b := was.Costs[0], is.Costs[0]
		t.Logf("%s: backward %g s, with frozen layers %g s", is.Name, a.BackwardS, b.BackwardS)
		if is.ParameterBytes+is.BufferBytes != was.ParameterBytes+was.BufferBytes || a.ForwardS != b.ForwardS {
			t.Errorf("%s: %d+%d bytes, forward %g s; where nothing is frozen %d, %g s", is.Name, is.ParameterBytes,
				is.BufferBytes, b.ForwardS, was.ParameterBytes, a.ForwardS)
		}
		switch is.Name {
		case "dense0":
			if !is.NoGradient || b.BackwardS != 0 || is.ParameterBytes != 0 || *b.PendingBytes != 0 {
				t.Errorf("dense0: backward %g s, %d bytes of gradients", b.BackwardS, is.ParameterBytes)
			}
		case "dense1":
			if is.NoGradient || is.ParameterBytes != 4*256 || b.BackwardS >= a.BackwardS || b.BackwardS == 0 {
				t.Errorf("dense1: backward %g s, %d bytes of gradients; where nothing is frozen %g s", b.BackwardS,
					is.ParameterBytes, a.BackwardS)
			}
		default:
			if is.NoGradient || a.BackwardS == 0 || a.BackwardS != b.BackwardS {
				t.Errorf("%s: backward %g s; where nothing is frozen %g s", is.Name, b.BackwardS, a.BackwardS)
			}
		}
	}
}
