package imported_test

import (
	"bytes"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/internal/torchtest"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/model/aten/rules"
	"github.com/millrace-ml/millrace/model/imported"
	"github.com/millrace-ml/millrace/stage"
)

// In each network, everything that can be fused is fused. Batch norms, attention that is not causal, pooling with
// overlapping windows, and the sum of vit_b_16 with its positions are not fused.
func TestWhatIsFused(t *testing.T) {
	want := map[string]map[string]int{
		"resnet18":     {"conv2d": 21, "linear": 1},
		"mobilenet_v2": {"conv2d": 19, "linear": 1},
		"vit_b_16":     {"conv2d": 1, "layer_norm": 5, "linear": 5, "linear_gelu": 2, "linear_add": 2},
		"gpt": {"embedding": 2, "layer_norm": 5, "causal_attention": 2, "linear": 3, "linear_gelu": 2,
			"linear_add": 4},
		"bert":     {"embedding": 3, "layer_norm": 6, "linear": 7, "linear_gelu": 3, "linear_add": 2},
		"lstm":     {"embedding": 1, "lstm": 2, "linear": 1},
		"encoder":  {"embedding": 1, "layer_norm": 4, "causal_attention": 2, "linear": 7, "linear_add": 2},
		"branches": {"linear": 8, "linear_add": 1, "layer_norm": 1},
	}
	left := map[string]map[string]int{
		"resnet18": {"batch_norm": 21, "max_pool2d": 1}, "mobilenet_v2": {"batch_norm": 19},
		"vit_b_16": {"softmax.int": 2, "add.Tensor": 1}, "bert": {"softmax.int": 2},
	}
	for _, a := range exported(t, torchtest.Main()...) {
		t.Run(a.Name, func(t *testing.T) {
			n := opened(t, a.Model, imported.Fused)
			if got := n.Fuse.Fused; !maps.Equal(got, want[a.Name]) {
				t.Errorf("fused are %v, want %v", got, want[a.Name])
			}
			alone := map[string]int{}
			for _, l := range n.Fuse.Left {
				alone[l.Op] += l.Count
				if l.Reason == "" {
					t.Errorf("%s is left alone for no reason", l.Op)
				}
			}
			if !maps.Equal(alone, left[a.Name]) {
				t.Errorf("left alone are %v, want %v", alone, left[a.Name])
			}
			plain := opened(t, a.Model, imported.Off)
			if plain.Fuse != nil || slices.ContainsFunc(plain.Nodes, isOurs) {
				t.Error("something is fused that was not to be")
			}
			if f, p := costs(n), costs(plain); f != p {
				t.Errorf("a sample has %v FLOPs fused, %v unfused", f, p)
			}
			everyHalf(t, n, halves(t, n, torchtest.Read(t, a.Numbers)))
		})
	}
}

// costs adds up the operations of all layers for one sample. The three sums are for the forward, the input half of the
// backward, and its weight half.
func costs(n *imported.Network) (sum [3]int64) {
	for _, l := range n.Layers {
		sum[0], sum[1], sum[2] = sum[0]+l.ForwardFLOPs, sum[1]+l.InputFLOPs, sum[2]+l.WeightFLOPs
	}
	return sum
}

// fusedToo compares a fused network with PyTorch. It compares the network that is cut at every place with the uncut
// network. It also compares backwards in two halves with whole backwards.
func fusedToo(t *testing.T, a torchtest.Answer, want map[string]torchtest.Tensor) *imported.Network {
	t.Helper()
	n, dev := opened(t, a.Model, imported.Fused), device(t)
	if f, p := costs(n), costs(opened(t, a.Model, imported.Off)); f != p {
		t.Errorf("a sample has %v FLOPs fused, %v unfused", f, p)
	}
	compare(t, dev, n.Model, want, "b", 1e-4, 1e-3)
	loss, found := compare(t, dev, n.Model, want, "a", 1e-4, 1e-3)
	var all []int
	for cut := 1; cut < len(n.Model.Layers); cut++ {
		all = append(all, cut)
	}
	l := newLine(t, dev, n.Model, 0, all...)
	defer l.close()
	got, cut := l.step(want, "a")
	if got != loss {
		t.Errorf("fused and cut everywhere: a loss of %v instead of %v", got, loss)
	}
	for name, x := range cut { // except parameters whose gradient is spread over several stages
		if !bytes.Equal(x, found[name]) && !shared(n.Model, name) {
			t.Errorf("fused and cut everywhere: %s has other bits", name)
		}
	}
	halves(t, n, want)
	return n
}

// shared says whether several layers hold a parameter.
func shared(m *model.Model, name string) bool {
	held := 0
	for _, l := range m.Layers {
		for i := range l.Params {
			if "grad/"+l.ParamName(i) == name || "grad/"+l.Params[i].Tied == name {
				held++
			}
		}
	}
	return held > 1
}

// halves compares split backwards with whole ones, over two micro-batches. For each layer with a backward, from the
// last to the first, it returns how many operators have work left for the second half.
func halves(t *testing.T, n *imported.Network, batch map[string]torchtest.Tensor) []int {
	t.Helper()
	dev := &counted{Device: device(t)}
	whole := newLine(t, dev, n.Model, 0)
	defer whole.close()
	for id := range 2 {
		whole.forward(id, batch, "a")
		whole.back(id, (*stage.Stage).Backward)
	}
	want := whole.found()
	split := newLine(t, dev, n.Model, 0)
	defer split.close()
	for id := range 2 {
		split.forward(id, batch, "a")
		dev.sizes = nil
		split.back(id, (*stage.Stage).BackwardInput)
	}
	for id := range 2 {
		if err := split.stages[0].BackwardWeight(id); err != nil {
			t.Fatal(err)
		}
	}
	got := split.found()
	for name, x := range want {
		if !bytes.Equal(x, got[name]) {
			t.Errorf("%s has other bits by halves", name)
		}
	}
	return dev.sizes
}

// everyHalf checks how many weight gradients the input half of a layer's backward leaves for the weight half. It must
// be one for each of millrace's operators in the layer, except causal attention and max pooling, which have no weights.
func everyHalf(t *testing.T, n *imported.Network, sizes []int) {
	t.Helper()
	slices.Reverse(sizes)
	if len(sizes) != len(n.Layers) {
		t.Fatalf("%d layers went back, of %d", len(sizes), len(n.Layers))
	}
	for i, l := range n.Layers {
		ours := 0
		for _, at := range l.Nodes {
			switch op := n.Nodes[at].Op; {
			case op == "millrace::causal_attention", op == "millrace::max_pool":
			case isOurs(n.Nodes[at]):
				ours++
			}
		}
		if sizes[i] != ours {
			t.Errorf("layer %s has %d operators of millrace with weights, and leaves %d halves", l.Name, ours, sizes[i])
		}
	}
}

// counted records how much work each first half of a backward leaves for the second.
type counted struct {
	engine.Device
	sizes []int
}

func (c *counted) BackwardInput(outputs, grads []engine.Tensor) (engine.Work, error) {
	w, err := c.Device.BackwardInput(outputs, grads)
	if err == nil {
		c.sizes = append(c.sizes, w.Size())
	}
	return w, err
}

func isOurs(n rules.Node) bool { return strings.HasPrefix(n.Op, "millrace::") }

// A folder records whether its network is fused.
func TestFoldersSayWhetherNetworksAreFused(t *testing.T) {
	a := torchtest.Run(t, torchtest.Request{Name: "branches", File: "language.py"})[0]
	for fuse, want := range map[string]bool{"": true, imported.Fused: true, imported.Off: false} {
		dir := filepath.Join(t.TempDir(), "branches")
		if err := imported.Save(t.Context(), a.Model, dir, imported.Options{From: imported.Torch, Fuse: fuse}); err != nil {
			t.Fatal(err)
		}
		m, err := imported.Load(dir)
		if err != nil {
			t.Fatal(err)
		}
		got := slices.ContainsFunc(m.Layers, func(l model.Layer) bool {
			return strings.Contains(l.Attr["program"].(*rules.Program).String(), "millrace::linear")
		})
		if got != want {
			t.Errorf("fuse %q: fused is %v", fuse, got)
		}
	}
}
