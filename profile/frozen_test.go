package profile_test

import (
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/profile"
)

// TestAnalyticCostsOfFrozenLayers: an analytic profile charges nothing for the backward of frozen first layers, and
// less for partly frozen layers. Other layers cost the same as without freezing. A frozen layer's parameters are kept,
// without gradients.
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
		if is.ParameterBytes+is.FrozenBytes != was.ParameterBytes || a.ForwardS != b.ForwardS {
			t.Errorf("%s: %d+%d bytes, forward %g s; where nothing is frozen %d, %g s", is.Name, is.ParameterBytes,
				is.FrozenBytes, b.ForwardS, was.ParameterBytes, a.ForwardS)
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

// TestFrozenTiesAreListedByAllWhoReadThem: a frozen embedding that the head shares, 50 x 8 floats, is listed once in
// each of the two layers. It has no gradient and no optimizer state in either. Frozen parameters that no other layer
// reads are counted in FrozenBytes.
func TestFrozenTiesAreListedByAllWhoReadThem(t *testing.T) {
	m, err := model.Build("gpt", map[string]any{"layers": 1, "width": 8, "heads": 2, "context": 4, "vocabulary": 50,
		"tied": true})
	if err == nil {
		err = m.Freeze([]string{"embed"})
	}
	if err != nil {
		t.Fatal(err)
	}
	types := map[string]cluster.DeviceType{"gpu": {PeakFLOPS: 1e13, MemoryBandwidthBytesPerSecond: 1e12}}
	p, err := profile.Analytic(m, types, []int{1}, "adam", 2)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range p.Layers {
		shared := l.FrozenShared
		switch l.Name {
		case "embed":
			if len(shared) != 1 || shared[0] != (profile.Shared{Name: "embed.weight", Bytes: 50 * 8 * 4}) ||
				l.FrozenBytes != 4*8*4 || l.ParameterBytes != 0 || !l.NoGradient { // only the embedding reads the positions
				t.Errorf("embed: %+v", l)
			}
		case "head":
			if len(shared) != 1 || shared[0] != (profile.Shared{Name: "embed.weight", Bytes: 50 * 8 * 4}) ||
				l.TiedTo >= 0 || l.TiedBytes != 0 || l.NoGradient {
				t.Errorf("head: %+v", l)
			}
		default:
			if shared != nil || l.FrozenBytes != 0 || l.NoGradient {
				t.Errorf("%s: %+v", l.Name, l)
			}
		}
	}
	if p.TiedLayers() != nil {
		t.Errorf("gradients of %v are exchanged, and nobody has any", p.TiedLayers())
	}
	p.Layers[0].FrozenShared[0].Bytes = -1
	if err := p.Validate(); err == nil || !strings.Contains(err.Error(), "frozen_shared: bytes of embed.weight") {
		t.Errorf("-1 bytes: %v", err)
	}
}
