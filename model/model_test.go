package model

import (
	"strings"
	"testing"
)

// The parameters of a GPT are counted by hand, with L blocks, width C, V words and T positions. A block has 12*C^2 +
// 13*C parameters, the embeddings have (V + T)*C, the last norm has 2*C, and an untied head has V*C.
func TestParameterCounts(t *testing.T) {
	const C, V, T, L = 256, 256, 128, 8
	want := int64(L*(12*C*C+13*C) + (V+T)*C + 2*C + V*C)
	m, err := Build("gpt", nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := m.ParameterElements(); got != want {
		t.Errorf("gpt has %d parameters, want %d", got, want)
	}
	tied, err := Build("gpt", map[string]any{"tied": true})
	if err != nil {
		t.Fatal(err)
	}
	if got := tied.ParameterElements(); got != want-V*C {
		t.Errorf("tied gpt has %d parameters, want %d", got, want-V*C)
	}
	conv, err := Build("convnet", nil)
	if err != nil {
		t.Fatal(err)
	}
	// Convolutions of 3x3 from 1 to 32, 32, 64 and 64 channels, then dense layers from 3136 to 256 to 10.
	want = (9*1+1)*32 + (9*32+1)*32 + (9*32+1)*64 + (9*64+1)*64 + 3137*256 + 257*10
	if got := conv.ParameterElements(); got != want {
		t.Errorf("convnet has %d parameters, want %d", got, want)
	}
}

// By hand, VGG-16's first 3x3 convolution at 224x224 takes 2*64*224*224*27 FLOPs.
func TestConvolutionFLOPs(t *testing.T) {
	m, err := Build("convnet", map[string]any{"image": []int{3, 224, 224}, "widths": []int{64}, "convs": 1})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := m.Layers[0].ForwardFLOPs, int64(2*64*224*224*27); got != want {
		t.Errorf("%d FLOPs, want %d", got, want)
	}
}

const skipping = `
name: skipping
inputs:
  - {name: input, shape: [8], dtype: float}
  - {name: target, shape: [], dtype: int}
layers:
  - {name: a, kind: dense, width: 8, activation: relu}
  - {name: b, kind: dense, width: 8, activation: relu}
  - {name: c, kind: dense, width: 8}
  - {name: d, kind: add, from: [a, c]}
  - {name: e, kind: dense, width: 4}
  - {name: loss, kind: cross_entropy, from: [e, target]}
`

func TestACutCarriesEverythingLive(t *testing.T) {
	m, err := Parse(strings.NewReader(skipping))
	if err != nil {
		t.Fatal(err)
	}
	if got := m.Live(1); len(got) != 2 || got[0] != 0 || got[1] != 1 {
		t.Errorf("behind layer b, %v cross; want a and b", got)
	}
	if got, want := m.CutBytes(1, 3), int64(3*2*8*4); got != want {
		t.Errorf("%d bytes cross, want %d", got, want)
	}
	if got := m.Live(len(m.Layers) - 1); got != nil {
		t.Errorf("%v cross the end", got)
	}
}

func TestRefusals(t *testing.T) {
	for _, c := range []struct{ from, to, want string }{
		{"kind: add", "kind: ad", `layer "d": there is no kind "ad"`},
		{"from: [a, c]", "from: [a, z]", `layer "d" reads from "z"`},
		{"name: b", "name: a", `the name "a" is used twice`},
		{"{name: a, kind: dense, width: 8", "{name: a, kind: dense, from: [d], width: 8", "part of a cycle"},
		{"{name: a, kind: dense, width: 8", "{name: a, kind: dense, widht: 8", `has no setting "widht"; did you mean width?`},
		{"{name: a, kind: dense, width: 8", "{name: a, kind: dense, bias: true", `needs the setting "width"`},
		{"{name: a, kind: dense, width: 8", "{name: a, kind: dense, width: 8, depth: 1", `has no setting "depth"`},
		{"{name: a, kind: dense, width: 8", "{name: a, kind: dense, width: 9", "must be the same"},
		{"layers:", "layer:", "unknown field"},
		{"  - {name: loss, kind: cross_entropy, from: [e, target]}\n", "", "yields no loss"},
	} {
		text := strings.Replace(skipping, c.from, c.to, 1)
		_, err := Parse(strings.NewReader(text))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q for %q: got %v, want it to say %q", c.to, c.from, err, c.want)
		}
	}
	if _, err := Build("gtp", nil); err == nil || !strings.Contains(err.Error(), `no model "gtp"; did you mean gpt?`) {
		t.Errorf("got %v", err)
	}
}

func TestIDFollowsTheDescription(t *testing.T) {
	a, _ := Build("gpt", nil)
	b, _ := Build("gpt", map[string]any{"layers": "8"})
	c, _ := Build("gpt", map[string]any{"layers": 7})
	if a.ID() != b.ID() || a.ID() == c.ID() {
		t.Errorf("digests %s %s %s", a.ID(), b.ID(), c.ID())
	}
}

func TestTiedLayers(t *testing.T) {
	m, _ := Build("gpt", map[string]any{"layers": 1, "tied": true})
	if got := m.TiedLayers(); len(got) != 1 || len(got[0]) != 2 || got[0][0] != 0 || got[0][1] != len(m.Layers)-2 {
		t.Errorf("tied layers %v of %d, want the first and the one in front of the loss", got, len(m.Layers))
	}
	if m, _ = Build("gpt", map[string]any{"layers": 1}); m.TiedLayers() != nil {
		t.Errorf("a model without ties has %v", m.TiedLayers())
	}
}

func FuzzParse(f *testing.F) {
	f.Add(skipping)
	f.Add("name: x\ninputs: []\nlayers: []\n")
	f.Fuzz(func(t *testing.T, text string) { _, _ = Parse(strings.NewReader(text)) })
}
