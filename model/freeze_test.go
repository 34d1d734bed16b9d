package model

import (
	"strings"
	"testing"
)

// frozenOf returns the full names of the frozen parameters.
func frozenOf(m *Model) string {
	var names []string
	for _, l := range m.Layers {
		for k, p := range l.Params {
			if p.Frozen {
				names = append(names, l.ParamName(k))
			}
		}
	}
	return strings.Join(names, " ")
}

// tiedGPT is a transformer with one block and a tied head. A PyTorch module would also save its embedding as
// lm_head.weight.
func tiedGPT(t *testing.T) *Model {
	t.Helper()
	m, err := Build("gpt", map[string]any{"layers": 1, "width": 8, "heads": 2, "context": 4, "vocabulary": 20,
		"tied": true})
	if err != nil {
		t.Fatal(err)
	}
	m.Layers[0].Params[0].Also = []string{"lm_head.weight"}
	return m
}

// A pattern matches a layer, the beginning of a name before a dot, or a whole name. A tied parameter can be matched
// by any of its names, and is frozen in all its uses.
func TestPatternsFreeze(t *testing.T) {
	for patterns, want := range map[string]string{
		"embed":                   "embed.weight embed.position head.weight",
		"head":                    "embed.weight head.norm.gain head.norm.shift head.weight",
		"head.weight":             "embed.weight head.weight",
		"lm_head":                 "embed.weight head.weight",
		"lm_*.weight":             "embed.weight head.weight",
		"*position":               "embed.position",
		"block[0-9].mlp.norm":     "block0.mlp.norm.gain block0.mlp.norm.shift",
		"block0.attention.qkv":    "block0.attention.qkv.weight block0.attention.qkv.bias",
		"*.up.bias,*.down.weight": "block0.mlp.up.bias block0.mlp.down.weight",
	} {
		m := tiedGPT(t)
		if err := m.Freeze(strings.Split(patterns, ",")); err != nil {
			t.Errorf("%s: %v", patterns, err)
		}
		if got := frozenOf(m); got != want {
			t.Errorf("%s freezes %s; want %s", patterns, got, want)
		}
	}
}

// The costs of a backward with frozen parameters are worked out by hand. In the head only a norm learns, which is 16 of
// 176 numbers. In attention, 8*24 + 24 numbers learn of all 8*24 + 24 + 8*8 + 8 + 16. No parameter before attention
// learns, so attention computes no gradient of its input.
func TestFrozenLayersCostLess(t *testing.T) {
	m, before := tiedGPT(t), tiedGPT(t)
	if err := m.Freeze([]string{"embed", "block0.attention.norm", "block0.attention.out"}); err != nil {
		t.Fatal(err)
	}
	at := m.Index("block0.attention")
	was, is := before.Layers[at], m.Layers[at]
	if want := was.WeightFLOPs * 216 / 304; is.WeightFLOPs != want || is.InputFLOPs != 0 || was.InputFLOPs == 0 {
		t.Errorf("the halves of attention's backward are %d and %d FLOPs; want 0 and %d", is.InputFLOPs, is.WeightFLOPs, want)
	}
	head := m.Index("head")
	if want := before.Layers[head].WeightFLOPs * 16 / 176; m.Layers[head].WeightFLOPs != want ||
		m.Layers[head].InputFLOPs != before.Layers[head].InputFLOPs {
		t.Errorf("the head's are %d and %d", m.Layers[head].InputFLOPs, m.Layers[head].WeightFLOPs)
	}
	if m.ID() == before.ID() {
		t.Error("a frozen model goes by the ID of one that learns")
	}
	if m.TiedLayers() != nil || before.TiedLayers() == nil {
		t.Errorf("gradients of %v are exchanged", m.TiedLayers())
	}
}

// Freeze refuses some patterns, and the error says why: invalid patterns, patterns that match nothing or only
// statistics, and patterns that leave nothing to learn on which the loss depends.
func TestWhatCannotBeFrozenIsNamed(t *testing.T) {
	convnet, err := Build("convnet", map[string]any{"image": []int{1, 8, 8}, "widths": []int{4}, "batch_norm": true})
	if err != nil {
		t.Fatal(err)
	}
	for patterns, want := range map[string]string{
		"cnv0":                    `freeze "cnv0" matches no parameter; near it: conv0, `,
		"conv0,cnv0.*":            `freeze "cnv0.*" matches no parameter`,
		"*.mean":                  `freeze "*.mean": it matches buffers alone, such as conv0.`,
		"*":                       "freeze *: nothing would learn that the loss depends on; leave a layer out",
		"conv*,dense*,head*":      "nothing would learn",
		"[":                       "syntax error in pattern",
		"":                        "it is empty",
		strings.Repeat("x", 5000): "matches no parameter",
	} {
		if err := convnet.Freeze(strings.Split(patterns, ",")); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.50s: %v; want %q", patterns, err, want)
		}
	}
}
