package kernels_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/profile/kernels"
)

func near(t *testing.T, what string, got, want, part float64) {
	t.Helper()
	if math.Abs(got-want) > part*math.Abs(want) {
		t.Errorf("%s is %.6g, want %.6g", what, got, want)
	}
}

func build(t *testing.T, name string, settings map[string]any) *model.Model {
	t.Helper()
	m, err := model.Build(name, settings)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func bare(rates map[string]cluster.Rate) *cluster.Kernels { return &cluster.Kernels{Rates: rates} }

// TestAnMLPByHand checks an MLP of width 64 and 256 over 8 positions of 2 samples. Its products are 16 x 64 by 64 x 256
// and 16 x 256 by 256 x 64: 2*16*64*256 operations each. The rate is 64/(64+64) for the width times 16/(16+48) for the
// rows, which is an eighth of the peak.
func TestAnMLPByHand(t *testing.T) {
	m := build(t, "gpt", map[string]any{"layers": 1, "width": 64, "heads": 4, "context": 8, "vocabulary": 16})
	d := cluster.DeviceType{PeakFLOPS: 1e9, MemoryBandwidthBytesPerSecond: 1e18, Kernels: bare(map[string]cluster.Rate{
		"matmul": {Limit: 1, HalfWidth: 64, HalfRows: 48}, "memory": {Limit: 1}})}
	at := m.Index("block0.mlp")
	c, err := kernels.Of(m, at, 2, "d", d, kernels.Options{})
	if err != nil {
		t.Fatal(err)
	}
	want := 2 * 2 * 16 * 64 * 256 / 1e9 * 8
	near(t, "forward", c.ForwardS, want, 1e-6)
	near(t, "the input's half", c.InputS, want, 1e-6)
	near(t, "the weights' half", c.WeightS, want, 1e-6)

	// A forward launches five kernels (norm, up, activation, down, residual) and pays the fixed time of one layer.
	d.Kernels.LaunchS, d.Kernels.LayerS = 1e-3, 1e-2
	c, _ = kernels.Of(m, at, 2, "d", d, kernels.Options{})
	near(t, "forward with launches", c.ForwardS, want+5e-3+1e-2, 1e-6)

	// Here memory is the limit: the norm moves 2 and the residual 3 times 16 x 64 elements, the activation 2 times 16 x
	// 256. Products move their inputs, weights and outputs.
	d.PeakFLOPS, d.MemoryBandwidthBytesPerSecond, d.Kernels.LaunchS, d.Kernels.LayerS = 1e18, 4, 0, 0
	d.Kernels.Rates["memory"] = cluster.Rate{Limit: 0.5}
	c, _ = kernels.Of(m, at, 2, "d", d, kernels.Options{})
	near(t, "elements through half a memory", c.ForwardS, 2*(5*16*64+2*16*256+2*(16*64+64*256+16*256)), 1e-9)
	if _, err := kernels.Of(m, at, 2, "d", d, kernels.Options{Precision: "bf16"}); err == nil ||
		!strings.Contains(err.Error(), `"d" has no peak in bf16`) {
		t.Errorf("bf16 without a peak: %v", err)
	}
}

// TestSavedBytesOfALayer: the saved bytes of one transformer layer equal Table 2 of Korthikanti et al., 2022, exactly.
func TestSavedBytesOfALayer(t *testing.T) {
	for _, g := range []struct{ a, h, s, b int }{{64, 6144, 2048, 4}, {24, 2304, 1024, 2}, {128, 20480, 2048, 1}} {
		m := build(t, "gpt", map[string]any{"layers": 1, "width": g.h, "heads": g.a, "context": g.s, "vocabulary": 512,
			"dropout": 0.1})
		sbh := float64(g.s * g.b * g.h)
		scores := 5 * float64(g.a*g.s) / float64(g.h)
		for _, t8 := range []float64{1, 2, 8} {
			for _, k := range []struct {
				name      string
				sp, again bool
				want      float64
			}{
				{"equation 2", false, false, sbh * (10 + 24/t8 + scores/t8)},
				{"equation 4", true, false, sbh * (34/t8 + scores/t8)},
				{"tensor, selective", false, true, sbh * (10 + 24/t8)},
				{"equation 6", true, true, sbh * 34 / t8},
			} {
				d := cluster.DeviceType{Peaks: map[string]float64{"f16": 1e12}, MemoryBandwidthBytesPerSecond: 1e12,
					Kernels: bare(nil)}
				if t8 > 1 {
					d.Group = &cluster.Group{Size: int(t8), SequenceParallel: k.sp, BandwidthBytesPerSecond: 1e11}
				}
				got := 0.0
				for _, name := range []string{"block0.attention", "block0.mlp"} {
					c, err := kernels.Of(m, m.Index(name), g.b, "d", d, kernels.Options{Precision: "f16", Selective: k.again})
					if err != nil {
						t.Fatal(err)
					}
					got += float64(c.SavedBytes) / t8
				}
				near(t, fmt.Sprintf("%s, t %v, %+v", k.name, t8, g), got, k.want, 1e-9)
			}
		}
	}
}

// TestProductsKeepWhatTheyReadNarrow: in fp8, products inside a block keep their inputs in 8 bits. For each element
// this is a byte less than in bf16. The example has 3 samples of 8 positions of width 64. The first products of
// attention and of the MLP each read a norm's output of 24 x 64 elements. The second product of the MLP reads 24 x 256.
// If scores are kept, the input of attention's output product takes a byte less for each element too. With one
// attention kernel it takes a byte more than in bf16, because that kernel also keeps its own output.
func TestProductsKeepWhatTheyReadNarrow(t *testing.T) {
	m := build(t, "gpt", map[string]any{"layers": 1, "width": 64, "heads": 4, "context": 8, "vocabulary": 16})
	d := cluster.DeviceType{Peaks: map[string]float64{"bf16": 1e12, "fp8": 2e12}, MemoryBandwidthBytesPerSecond: 1e12,
		Kernels: bare(nil)}
	for flash, attention := range map[bool]int64{false: 24 * 64 * 2, true: 0} {
		d.Kernels.Flash = flash
		for name, want := range map[string]int64{"block0.attention": attention, "block0.mlp": 24*64 + 24*256} {
			saved := map[string]int64{}
			for _, precision := range []string{"bf16", "fp8"} {
				c, err := kernels.Of(m, m.Index(name), 3, "d", d, kernels.Options{Precision: precision})
				if err != nil {
					t.Fatal(err)
				}
				saved[precision] = c.SavedBytes
			}
			if got := saved["bf16"] - saved["fp8"]; got != want {
				t.Errorf("%s, one kernel %v: fp8 keeps %d bytes less, want %d", name, flash, got, want)
			}
		}
	}
}

// TestSumsOfAGroup: sums in a group of t devices are rings, with 2*(t-1) messages of 1/t of the bytes. Attention and
// MLP have one sum in each direction. An embedding has a sum only in the forward, and a head only in the backward.
func TestSumsOfAGroup(t *testing.T) {
	m := build(t, "gpt", map[string]any{"layers": 1, "width": 64, "heads": 4, "context": 8, "vocabulary": 16})
	d := cluster.DeviceType{Peaks: map[string]float64{"bf16": 1e30}, MemoryBandwidthBytesPerSecond: 1e24,
		Kernels: bare(nil), Group: &cluster.Group{Size: 4, BandwidthBytesPerSecond: 1e6, LatencyS: 1e-3}}
	one := 6 * (3*8*64*2/4/1e6 + 1e-3) // 6 messages of a quarter of the bytes of 3 samples
	for name, want := range map[string][2]float64{"block0.attention": {one, one}, "block0.mlp": {one, one},
		"embed": {one, 0}, "head": {0, one}} {
		c, err := kernels.Of(m, m.Index(name), 3, "d", d, kernels.Options{Precision: "bf16"})
		if err != nil {
			t.Fatal(err)
		}
		near(t, name+" forward", c.ForwardS+1, want[0]+1, 1e-9)
		near(t, name+" backward", c.InputS+1, want[1]+1, 1e-9)
		near(t, name+" sums", c.SummedS, want[0]+want[1], 1e-9)
	}
	net := build(t, "convnet", nil)
	if _, err := kernels.Of(net, 0, 1, "d", d, kernels.Options{Precision: "bf16"}); err == nil ||
		!strings.Contains(err.Error(), "no division is known of kind conv2d") {
		t.Errorf("a convolution on a group: %v", err)
	}
}

// TestSelectiveComputesScoresAgain: with Selective only the scores are computed again. Their time is added to the input
// half of the backward.
func TestSelectiveComputesScoresAgain(t *testing.T) {
	m := build(t, "gpt", map[string]any{"layers": 1, "width": 64, "heads": 4, "context": 8, "vocabulary": 16})
	d := cluster.DeviceType{PeakFLOPS: 1e9, MemoryBandwidthBytesPerSecond: 1e18,
		Kernels: bare(map[string]cluster.Rate{"attention": {Limit: 1}, "memory": {Limit: 1}})}
	at := m.Index("block0.attention")
	plain, err := kernels.Of(m, at, 1, "d", d, kernels.Options{})
	if err != nil {
		t.Fatal(err)
	}
	again, _ := kernels.Of(m, at, 1, "d", d, kernels.Options{Selective: true})
	core := 4.0 * 8 * 8 * 64 / 1e9
	near(t, "more", again.InputS-plain.InputS, core, 1e-6)
	near(t, "the weights' half", again.WeightS, plain.WeightS, 0)
	if plain.SavedBytes-again.SavedBytes != 4*4*8*8 {
		t.Errorf("scores hold %d bytes", plain.SavedBytes-again.SavedBytes)
	}
	d.Kernels.Flash = true
	flash, _ := kernels.Of(m, at, 1, "d", d, kernels.Options{})
	near(t, "causal scores in one kernel save", plain.ForwardS-flash.ForwardS, core/2, 1e-6)
	near(t, "and backward", plain.InputS-flash.InputS, 2*core-2.5*core/2, 1e-6)
}

// TestGradientsAreAddedApart: in 16 bits, without fused kernels, a weight's gradient is written in 2 bytes. Another
// kernel reads it and the sum, and writes the sum: 2 + 4 + 4 bytes. Fused kernels read and write the sum in the product
// itself: 8 bytes. Here memory is the limit. The products of the MLP have 16 rows and 2 x 64 x 256 weights.
func TestGradientsAreAddedApart(t *testing.T) {
	m := build(t, "gpt", map[string]any{"layers": 1, "width": 64, "heads": 4, "context": 8, "vocabulary": 16})
	d := cluster.DeviceType{Peaks: map[string]float64{"bf16": 1e18, "f32": 1e18}, MemoryBandwidthBytesPerSecond: 1,
		Kernels: bare(map[string]cluster.Rate{"matmul": {Limit: 1}, "memory": {Limit: 1}})}
	inputs := 2.0 * 16 * (64 + 256) // elements that the two products read beside the weights
	for _, k := range []struct {
		precision string
		fused     bool
		want      float64
	}{
		{"bf16", false, 2*inputs + (2+10)*2*64*256},
		{"bf16", true, 2*inputs + 8*2*64*256},
		{"f32", false, 4*inputs + 8*2*64*256},
	} {
		d.Kernels.Fused = k.fused
		c, err := kernels.Of(m, m.Index("block0.mlp"), 2, "d", d, kernels.Options{Precision: k.precision})
		if err != nil {
			t.Fatal(err)
		}
		near(t, fmt.Sprintf("%+v", k), c.WeightS, k.want, 1e-9)
	}
}

// TestUpdates: an update reads 16-bit gradients and writes 16-bit weights. It reads and writes the 32-bit weights and
// both states of Adam: 28 bytes for each parameter.
func TestUpdates(t *testing.T) {
	d := cluster.DeviceType{PeakFLOPS: 1, Peaks: map[string]float64{"f16": 1}, MemoryBandwidthBytesPerSecond: 1000,
		Kernels: bare(map[string]cluster.Rate{"memory": {Limit: 1}})}
	near(t, "f32", kernels.UpdateS(d, 1000, 2, kernels.Options{}), 28, 1e-9)
	near(t, "f16", kernels.UpdateS(d, 1000, 2, kernels.Options{Precision: "f16"}), 28, 1e-9)
}
