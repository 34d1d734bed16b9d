package model

import (
	"strings"
	"testing"
)

// The FLOPs of a transformer are worked out by hand, for a sample with T positions, width C and V words. In the
// forward, products with weights take 2 FLOPs for each weight and position: 24*T*C^2 in a block. The scores and their
// use take 4*T^2*C, and the head takes 2*T*C*V. The backward takes twice as many FLOPs as the forward.
func TestTransformerFLOPs(t *testing.T) {
	const C, V, T, L = 64, 100, 32, 3
	m, err := Build("gpt", map[string]any{"layers": L, "width": C, "heads": 4, "context": T, "vocabulary": V})
	if err != nil {
		t.Fatal(err)
	}
	var forward, backward, attention int64
	for _, l := range m.Layers {
		switch l.Kind {
		case "attention", "mlp", "head":
			forward += l.ForwardFLOPs
			backward += l.InputFLOPs + l.WeightFLOPs
		}
		if l.Kind == "attention" {
			attention = l.ForwardFLOPs
		}
	}
	if want := int64(L*(24*T*C*C+4*T*T*C) + 2*T*C*V); forward != want || backward != 2*want {
		t.Errorf("%d FLOPs forward and %d backward, want %d and %d", forward, backward, want, 2*want)
	}
	if want := int64(8*T*C*C + 4*T*T*C); attention != want {
		t.Errorf("attention takes %d FLOPs, want %d", attention, want)
	}
}

// Llama 2 7B and Llama 3 8B have 6,738,415,616 and 8,030,261,248 parameters (their model cards). T is the number of
// positions, and C the width. By hand, the forward takes 2 FLOPs for each weight of a product and each position. The
// scores and their use take 4*T^2*C FLOPs in a block. The backward takes twice as many as the forward.
func TestLlamas(t *testing.T) {
	for _, c := range []struct {
		hidden, groups, vocabulary int
		theta                      float64
		want                       int64
	}{{11008, 32, 32000, 1e4, 6738415616}, {14336, 8, 128256, 5e5, 8030261248}} {
		const T, C, L, kinds = 16, 4096, 32, "rotary_attention swiglu head"
		m, err := Build("llama", map[string]any{"layers": L, "width": C, "heads": 32, "kv_heads": c.groups,
			"hidden": c.hidden, "context": T, "vocabulary": c.vocabulary, "theta": c.theta})
		if err != nil {
			t.Fatal(err)
		}
		if got := m.ParameterElements(); got != c.want {
			t.Errorf("%d parameters, want %d", got, c.want)
		}
		var forward, backward int64
		for _, l := range m.Layers {
			if strings.Contains(kinds, l.Kind) {
				forward, backward = forward+l.ForwardFLOPs, backward+l.InputFLOPs+l.WeightFLOPs
			}
		}
		products := c.want - int64(c.vocabulary*C) - (2*L+1)*C // all parameters but the embedding's and the norms'
		if want := 2*T*products + L*4*T*T*C; forward != want || backward != 2*want {
			t.Errorf("%d FLOPs forward and %d backward, want %d and %d", forward, backward, want, 2*want)
		}
	}
}

// VGG-16 at 224x224 (Simonyan and Zisserman, Very Deep Convolutional Networks, ICLR 2015, table 1, configuration D) has
// 138,357,544 parameters. It needs 15,470,264,320 multiply-adds: one for each weight at each output position that uses
// it.
func TestVGG16(t *testing.T) {
	c := chain{last: "input"}
	names := "abcdefghijklmnopqrstuvwxyz"
	next := func(kind string, settings map[string]any) {
		c.add(names[len(c.nodes):len(c.nodes)+1], kind, settings)
	}
	for _, group := range []struct{ convs, width int }{{2, 64}, {2, 128}, {3, 256}, {3, 512}, {3, 512}} {
		for range group.convs {
			next("conv2d", map[string]any{"channels": group.width, "activation": "relu"})
		}
		next("max_pool", nil)
	}
	next("flatten", nil)
	next("dense", map[string]any{"width": 4096, "activation": "relu"})
	next("dense", map[string]any{"width": 4096, "activation": "relu"})
	next("dense", map[string]any{"width": 1000})
	m, err := assemble("vgg16", []Tensor{{Name: "input", Shape: []int{3, 224, 224}, DType: Float},
		{Name: "target", Shape: []int{}, DType: Int}}, c.loss())
	if err != nil {
		t.Fatal(err)
	}
	if got := m.ParameterElements(); got != 138357544 {
		t.Errorf("%d parameters, want 138357544", got)
	}
	var flops int64
	for _, l := range m.Layers {
		if l.Kind == "conv2d" || l.Kind == "dense" {
			flops += l.ForwardFLOPs
		}
	}
	if flops != 2*15470264320 {
		t.Errorf("%d FLOPs, want %d", flops, int64(2*15470264320))
	}
	// The first convolution has 64 x 224 x 224 outputs, and the last pool has 512 x 7 x 7.
	if got, want := m.CutBytes(0, 2), int64(2*64*224*224*4); got != want {
		t.Errorf("%d bytes behind the first layer, want %d", got, want)
	}
	if got, want := m.Layers[m.Index("r")].OutputBytes(), int64(512*7*7*4); got != want {
		t.Errorf("%d bytes behind the last pool, want %d", got, want)
	}
}

// The bytes that cross a cut are worked out by hand: each live tensor is counted once, however many later layers read
// it.
func TestATensorReadTwiceCrossesOnce(t *testing.T) {
	in := []Tensor{{Name: "input", Shape: []int{6}, DType: Float}, {Name: "target", Shape: []int{}, DType: Int}}
	m, err := assemble("twice", in, []node{
		{Name: "a", Kind: "dense", From: []string{"input"}, Settings: map[string]any{"width": 5}},
		{Name: "b", Kind: "relu", From: []string{"a"}},
		{Name: "c", Kind: "concat", From: []string{"a", "b", "a"}},
		{Name: "loss", Kind: "cross_entropy", From: []string{"c", "target"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for cut, want := range []int64{5, 5 + 5, 15, 0} {
		if got := m.CutBytes(cut, 3); got != 3*4*want {
			t.Errorf("behind layer %d %d bytes cross, want %d", cut, got, 3*4*want)
		}
	}
}
