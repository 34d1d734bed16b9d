package rules

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func normalised(t *testing.T, model string) *Network {
	t.Helper()
	n, err := Normalise(exported(t, model))
	must(t, err)
	checkLayers(t, n)
	return n
}

// checkLayers checks that each layer reads only inputs of the model and results of earlier layers. It also checks that
// every node that must not run twice runs once.
func checkLayers(t *testing.T, n *Network) {
	t.Helper()
	yielded, runs := map[int]bool{}, map[int]int{}
	for _, in := range n.Graph.Inputs {
		yielded[in.Value] = true
	}
	names := map[string]bool{}
	for _, l := range n.Layers {
		if names[l.Name] {
			t.Errorf("two layers are called %s", l.Name)
		}
		names[l.Name] = true
		have := map[int]bool{}
		for _, v := range l.In {
			if !yielded[v] {
				t.Errorf("layer %s reads value %d, which no layer in front of it yields", l.Name, v)
			}
			have[v] = true
		}
		for _, i := range l.Nodes {
			runs[i]++
			eachValue(n.Nodes[i].In, func(v int) {
				if !have[v] {
					t.Errorf("layer %s: node %d, %s, reads value %d in front of its maker", l.Name, i, n.Nodes[i].Op, v)
				}
			})
			for _, v := range n.Nodes[i].Out {
				have[v] = true
			}
		}
		for _, o := range l.Out {
			v := n.Values[o.Value]
			s := v.Spread
			if !have[o.Value] || !v.Grad || s.Dim < 0 || v.Shape[s.Dim] != s.Lead*n.Graph.Rows*s.Tail {
				t.Errorf("layer %s yields value %d: %+v", l.Name, o.Value, v)
			}
			yielded[o.Value] = true
		}
	}
	for i, node := range n.Nodes {
		if runs[i] == 0 || runs[i] > 1 && (node.Mode != nil || len(node.Updates) > 0 || n.Values[node.Out[0]].Grad) {
			t.Errorf("node %d, %s, runs %d times", i, node.Op, runs[i])
		}
	}
}

func ops(n *Network, l Layer) string {
	var s []string
	for _, i := range l.Nodes {
		s = append(s, strings.TrimPrefix(n.Nodes[i].Op, "aten::"))
	}
	return strings.Join(s, " ")
}

func layer(t *testing.T, n *Network, name string) Layer {
	t.Helper()
	i := slices.IndexFunc(n.Layers, func(l Layer) bool { return l.Name == name })
	if i < 0 {
		t.Fatalf("there is no layer %s", name)
	}
	return n.Layers[i]
}

func TestAResnetsBlocksAddWithoutWriting(t *testing.T) {
	n := normalised(t, "resnet")
	for _, node := range n.Nodes {
		if inPlace(node.Op) && (node.Op != "aten::add_.Scalar" || len(node.Updates) != 1) {
			t.Errorf("%s writes in place", node.Op)
		}
	}
	bn := layer(t, n, "blocks.0.bn1")
	if got := ops(n, bn); got != "add_.Scalar batch_norm" {
		t.Errorf("blocks.0.bn1 runs %s", got)
	}
	if u := n.Nodes[bn.Nodes[1]]; u.Mode == nil || u.Mode.Train != 5 || len(u.Updates) != 2 {
		t.Errorf("batch_norm: %+v", u)
	}
	add := layer(t, n, "blocks.0")
	if ops(n, add) != "add.Tensor" || len(add.In) != 2 || fmt.Sprint(add.Out[0].Shape) != "[4 7 7]" {
		t.Errorf("blocks.0 runs %s of %v, yields %v", ops(n, add), add.In, add.Out)
	}
	// FLOPs by hand: 2 * 4 output channels * 7*7 output positions * 3 input channels * 3*3 kernel elements = 10584. The
	// images have no gradient.
	if stem := layer(t, n, "stem"); stem.ForwardFLOPs != 10584 || stem.InputFLOPs != 0 || stem.WeightFLOPs != 10584 {
		t.Errorf("stem: %+v", stem)
	}
	if len(n.Layers) != 19 {
		t.Errorf("%d layers of 19", len(n.Layers))
	}
}

func TestAGptsHeadIsTiedAndItsMaskRecomputed(t *testing.T) {
	n := normalised(t, "gpt")
	head := layer(t, n, "head")
	if len(head.Tensors) != 1 || head.Tensors[0].Tied != "embed.weight" || head.ForwardFLOPs != 2*6*20*8 {
		t.Errorf("head: %+v", head)
	}
	first := layer(t, n, "blocks.1")
	if got := ops(n, first); !strings.HasPrefix(got, "chunk view transpose.int") || !strings.Contains(got, "triu") {
		t.Errorf("blocks.1 runs %s", got)
	}
	// The views of the chunks have the shape [rows, 6, 2, 4], where rows is an expression.
	view := n.Nodes[first.Nodes[1]].In[1].List
	for rows, want := range map[int64]string{4: "[4 6 2 4]", 2: "[2 6 2 4]"} {
		var got []int64
		for _, a := range view {
			d, err := a.Size.Eval(rows)
			must(t, err)
			got = append(got, d)
		}
		if fmt.Sprint(got) != want {
			t.Errorf("with %d rows the view is %v instead of %s", rows, got, want)
		}
	}
	drop := layer(t, n, "blocks.1.drop")
	if m := n.Nodes[drop.Nodes[0]].Mode; m == nil || *m != (Mode{2, 1}) {
		t.Errorf("dropout's mode is %v", m)
	}
}

func TestAnLstmsStatesHaveAsManyRowsAsTheCall(t *testing.T) {
	n := normalised(t, "lstm")
	l := layer(t, n, "lstm")
	if got := ops(n, l); got != "zeros zeros lstm.input" {
		t.Fatalf("lstm runs %s", got)
	}
	if d, err := n.Nodes[l.Nodes[0]].In[0].List[1].Size.Eval(3); err != nil || d != 3 {
		t.Errorf("the state has %d rows of 3: %v", d, err)
	}
	// FLOPs by hand: two LSTM layers with 4 gates have weights of 20x4, 20x5, 20x5 and 20x5. Each of these 80+300
	// elements takes 2 operations at each of 5 positions.
	if m := n.Nodes[l.Nodes[2]].Mode; l.ForwardFLOPs != 2*5*(80+300) || m == nil || *m != (Mode{6, 5}) {
		t.Errorf("lstm has %d FLOPs, mode %v", l.ForwardFLOPs, m)
	}
	if head := layer(t, n, "head"); fmt.Sprint(head.Out[0].Shape) != "[20]" {
		t.Errorf("head yields %v", head.Out)
	}
}

// In nn.TransformerEncoder the first dimension is 5 positions, and the second is the rows. Its attention combines rows
// with heads in one dimension. Its projections combine positions with rows. The network is also cut at places where
// dimensions are combined in this way.
func TestAnEncoderIsCutWhereverItsRowsLie(t *testing.T) {
	n := normalised(t, "encoder")
	if len(n.Layers) != 32 {
		t.Errorf("%d layers of 32", len(n.Layers))
	}
	found := map[string]string{}
	for i, l := range n.Layers {
		for _, o := range l.Out {
			v := n.Values[o.Value]
			found[fmt.Sprint(v.Shape)] = fmt.Sprint(v.Spread, o.Shape)
		}
		p, err := n.Program(i, l.In)
		must(t, err)
		if strings.Contains(p.String(), "aten::view(") {
			t.Errorf("layer %s has its strides as they were in the trace: %s", l.Name, p)
		}
	}
	for shape, want := range map[string]string{
		"[4 5 8]": "{0 1 1} [5 8]", "[5 4 24]": "{1 1 1} [5 24]", "[8 5 4]": "{0 1 2} [1 2 5 4]",
		"[5 8 4]": "{1 1 2} [5 1 2 4]", "[20 8]": "{0 5 1} [5 1 8]",
	} {
		if found[shape] != want {
			t.Errorf("a tensor of %s crosses as %s, want %s", shape, found[shape], want)
		}
	}
}
