package imported_test

import (
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/internal/torchtest"
	"github.com/millrace-ml/millrace/model/imported"
)

// An operator that only resembles one of millrace's is not fused, and the reason is given. Fused or not, the results
// are PyTorch's.
func TestWhatOnlyLooksAlike(t *testing.T) {
	linears, causal := map[string]int{"linear": 2}, map[string]int{"causal_attention": 1, "linear": 2}
	cases := map[string]struct {
		fused map[string]int
		left  []string // operators that are not fused, with beginnings of the reasons, in order
	}{
		"linears": {map[string]int{"linear": 5, "linear_gelu": 1, "linear_add": 1}, []string{
			"gelu: its linear layer is read by others too", "gelu: it is approximated by tanh",
			"linear: another operator reads punished.weight", "add.Tensor: there is no operator",
			"addmm: its weight is [in, out]", "linear: its weight or its bias is computed",
			"pow.Tensor_Scalar: there is no operator"}},
		"words": {map[string]int{"embedding": 1}, []string{"embedding: its gradient is scaled",
			"layer_norm: it is without gain", "embedding: another operator reads shared.weight", "abs: there is no operator"}},
		"images": {map[string]int{"conv2d": 1, "max_pool": 1}, []string{"_convolution_mode: there is no operator",
			"max_pool2d: its windows are not squares side by side", "_convolution: it is transposed",
			"_convolution: its weight is computed, or not for two dimensions"}},
		"sequences": {map[string]int{"lstm": 4}, []string{"lstm.input: its first state or cell is not zero",
			"lstm.input: its last state or cell is read too"}},
		"causal": {causal, nil}, "swapped": {causal, nil}, "where": {causal, nil}, "added": {causal, nil},
		"interleaved": {linears, []string{"softmax.int: its queries, keys and values are not heads"}},
		"scale":       {linears, []string{"softmax.int: its scores are not scaled by 1/sqrt(4)"}},
		"mild":        {linears, []string{"softmax.int: its mask adds numbers to scores that count"}},
		"turned":      {linears, []string{"softmax.int: its mask is not causal"}},
		"strict":      {linears, []string{"softmax.int: its mask is not causal"}},
		"ahead":       {linears, []string{"softmax.int: its mask is not causal"}},
		"dim":         {linears, []string{"softmax.int: its softmax is not over the last dimension"}},
		"weights":     {linears, []string{"softmax.int: its weights are read by several"}},
	}
	var requests []torchtest.Request
	for _, name := range slices.Sorted(maps.Keys(cases)) {
		requests = append(requests, torchtest.Request{Name: name, File: "fusing.py"})
	}
	for _, a := range torchtest.Run(t, requests...) {
		t.Run(a.Name, func(t *testing.T) {
			if a.Code != 0 {
				t.Fatal(a.Said)
			}
			want := cases[a.Name]
			report := fusedToo(t, a, torchtest.Read(t, a.Numbers)).Fuse
			if !maps.Equal(report.Fused, want.fused) {
				t.Errorf("fused are %v, want %v", report.Fused, want.fused)
			}
			if len(report.Left) != len(want.left) {
				t.Fatalf("left alone are %+v, want %q", report.Left, want.left)
			}
			for i, l := range report.Left {
				if got := l.Op + ": " + l.Reason; !strings.HasPrefix(got, want.left[i]) || l.Count != 1 {
					t.Errorf("left alone are %d %s, want 1 %s", l.Count, got, want.left[i])
				}
			}
		})
	}
}

// Dropout inside a fused operator draws the same mask every time: with split backwards, with cuts, and in a
// recomputation.
func TestDropoutIsFused(t *testing.T) {
	all := torchtest.Run(t, torchtest.Request{Name: "causal", File: "fusing.py"},
		torchtest.Request{Name: "dropped", File: "fusing.py"})
	batch := torchtest.Read(t, all[0].Numbers)
	n, dev := opened(t, all[1].Model, imported.Fused), device(t)
	if n.Fuse.Fused["causal_attention"] != 1 || n.Fuse.Fused["lstm"] != 2 {
		t.Fatalf("fused are %v", n.Fuse.Fused)
	}
	whole := newLine(t, dev, n.Model, 0)
	loss, found := whole.step(batch, "a")
	whole.close()
	var cuts []int
	for cut := 1; cut < len(n.Model.Layers); cut++ {
		cuts = append(cuts, cut)
	}
	equalBits(t, "cut everywhere", dev, n.Model, batch, loss, found, 0, cuts...)
	equalBits(t, "recomputed", dev, n.Model, batch, loss, found, len(cuts)+1)
	halves(t, n, batch)
	again := newLine(t, dev, n.Model, 0)
	defer again.close()
	again.forward(0, batch, "a")
	if other := again.forward(1, batch, "a"); math.Abs(other-loss) < 1e-6*loss {
		t.Errorf("another micro-batch has a loss of %v too: nothing is dropped", other)
	}
}
