package shape_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/tune/shape"
)

// gpt returns a GPT with dropout, as the papers on Megatron-LM train it.
func gpt(t *testing.T, layers, hidden, heads, positions, vocabulary int) *model.Model {
	t.Helper()
	m, err := model.Build("gpt", map[string]any{"layers": layers, "width": hidden, "heads": heads, "context": positions,
		"vocabulary": vocabulary, "dropout": 0.1, "tied": true})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// machines returns a cluster of nodes with eight A100s each. Their operators are fused, except that attention takes
// several kernels.
func machines(nodes int) *cluster.Cluster {
	c := &cluster.Cluster{Name: "machines", DeviceTypes: map[string]cluster.DeviceType{"a100": {MemoryBytes: 80e9,
		Peaks: map[string]float64{"f16": 312e12, "bf16": 312e12}, MemoryBandwidthBytesPerSecond: 2e12,
		Kernels: &cluster.Kernels{Fused: true}}},
		Levels: []cluster.Level{{Name: "node", Size: 8, BandwidthBytesPerSecond: 250e9, LatencyS: 2e-6},
			{Name: "fabric", Size: nodes, BandwidthBytesPerSecond: 25e9, LatencyS: 5e-6}}}
	for range 8 * nodes {
		c.Devices = append(c.Devices, "a100")
	}
	return c
}

// TestActivationsByThePublishedEquations: the activations of the fullest stage match Korthikanti et al. (2022) within a
// percent, for GPT of 1.7 to 1008 billion parameters. The expected values come from equations 1 to 6, from section 4.3
// for layers outside the blocks, and from section 4.2.3 for interleaving.
func TestActivationsByThePublishedEquations(t *testing.T) {
	const s, v = 2048, 51200
	for _, g := range []struct{ a, h, layers, t, p, b, m int }{{24, 2304, 24, 1, 1, 16, 1}, {32, 4096, 36, 4, 1, 16, 1},
		{64, 6144, 48, 8, 1, 4, 1}, {80, 10240, 60, 8, 4, 2, 3}, {96, 12288, 96, 8, 8, 1, 3}, {128, 20480, 105, 8, 35, 1, 3},
		{160, 25600, 128, 8, 64, 1, 1}} {
		m := gpt(t, g.layers, g.h, g.a, s, v)
		for _, sequence := range []bool{false, true} {
			for _, again := range shape.Recomputes[:3] {
				if sequence && g.t == 1 {
					continue
				}
				got, err := shape.Predict(m, machines(g.t*g.p/8+1), shape.Shape{Stages: g.p, Tensor: g.t,
					SequenceParallel: sequence, MicroBatch: g.b, Batch: g.b * 4 * g.p, Chunks: g.m, Recompute: again,
					Precision: "f16", States: 2})
				if err != nil {
					t.Fatal(err)
				}
				// These are the paper's equations, written again from its text.
				T, P, L, sbh := float64(g.t), float64(g.p), float64(g.layers), float64(s*g.b*g.h)
				scores := 5 * float64(g.a*s) / float64(g.h) / T
				layer := sbh * (10 + 24/T)
				outside := sbh // the dropout mask after the embedding
				if sequence {
					layer, outside = sbh*34/T, sbh/T
				}
				want := 0.0
				flight := 1 + (P-1)/(P*float64(g.m)) // P micro-batches of L/P layers are in flight; with chunks, more
				if g.m == 1 {
					flight = 1
				}
				switch again {
				case "none":
					want = flight * L * (layer + sbh*scores)
				case "selective":
					want = flight * L * layer
				case "full": // only inputs are kept, and one layer's activations
					spread := 1.0
					if sequence {
						spread = T
					}
					want = flight*L*2*sbh/spread + layer + sbh*scores
				}
				if want += outside * P; g.m > 1 { // the first chunk holds these bytes for almost two rounds
					want += outside * (P - 1)
				}
				if g.p == 1 {
					norm := 1.0
					if sequence {
						norm = 1 / T
					}
					want += 4*sbh*norm + 4*float64(s*g.b*v)/T
				}
				most := 0.0
				for _, n := range got.ActivationBytes {
					most = max(most, float64(n))
				}
				what := fmt.Sprintf("%+v, sequence %v, %s", g, sequence, again)
				if math.Abs(most/want-1) > 0.01 {
					t.Errorf("%s: %.4g bytes, want %.4g (%+.2f %%)", what, most, want, 100*(most/want-1))
				}
			}
		}
	}
}

// TestTiedParametersAreThereOnce: if a device's first and last layers share an embedding, it keeps the embedding once.
// Each parameter of the model takes 18 bytes with Adam in bfloat16. In a V placement the first device has both ends of
// the model. In other placements the last stage keeps a copy of the embedding.
func TestTiedParametersAreThereOnce(t *testing.T) {
	const layers, h, v, positions = 8, 256, 50257, 128
	m := gpt(t, layers, h, 8, positions, v)
	c := machines(1)
	block := float64(12*h*h + 13*h) // Korthikanti et al., 2022: four projections, two MLP products; biases and norms
	all := v*h + positions*h + layers*block + 2*h
	for name, of := range map[string]struct {
		s    shape.Shape
		want float64
	}{
		"one stage": {shape.Shape{}, all},
		"a V":       {shape.Shape{Stages: 2, Schedule: "zb-v"}, all},
		"a row":     {shape.Shape{Stages: 2}, all + v*h},
	} {
		of.s.Batch, of.s.MicroBatch, of.s.States, of.s.Precision = 8, 1, 2, "bf16"
		p, err := shape.Predict(m, c, of.s)
		if err != nil {
			t.Fatal(err)
		}
		got := 0.0
		for w := range p.MemoryBytes {
			got += float64(p.MemoryBytes[w]-p.ActivationBytes[w]) / 18
		}
		if math.Abs(got/of.want-1) > 0.002 {
			t.Errorf("%s: %.6g parameters, want %.6g", name, got, of.want)
		}
	}
}
