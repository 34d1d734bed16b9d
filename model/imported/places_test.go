package imported_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/millrace-ml/millrace/internal/torchtest"
	"github.com/millrace-ml/millrace/model/aten/rules"
	"github.com/millrace-ml/millrace/model/imported"
)

// places returns each value that is the only one to cross some boundary between two nodes, and that has a gradient
// there. A result that needs only sizes crosses no boundary, because each reader recomputes it.
func places(n *rules.Network) map[int]bool {
	maker := map[int]int{}
	for i, node := range n.Nodes {
		for _, v := range node.Out {
			maker[v] = i
		}
	}
	again := func(v int) bool {
		i, made := maker[v]
		return !made || n.Values[v].Known && n.Nodes[i].Mode == nil && len(n.Nodes[i].Updates) == 0
	}
	found := map[int]bool{}
	for c := 1; c < len(n.Nodes); c++ {
		crossing := map[int]bool{}
		read := func(v int) {
			if i, made := maker[v]; made && i < c && !again(v) {
				crossing[v] = true
			}
		}
		for _, node := range n.Nodes[c:] {
			eachValue(node.In, read)
		}
		for _, o := range n.Outputs {
			eachValue([]rules.Arg{o.Arg}, read)
		}
		if len(crossing) != 1 {
			continue
		}
		for v := range crossing {
			if n.Values[v].Grad && n.Nodes[maker[v]].Site >= 0 {
				found[v] = true
			}
		}
	}
	return found
}

func eachValue(args []rules.Arg, f func(int)) {
	for _, a := range args {
		if a.Kind == rules.FromValue {
			f(a.Value)
		}
		eachValue(a.List, f)
	}
}

// origin follows a value back through the nodes that were inserted only so that the value can cross.
func origin(n *rules.Network, v int) int {
	for _, node := range slices.Backward(n.Nodes) {
		if node.Site < 0 && node.Out[0] == v {
			v = node.In[0].Value
		}
	}
	return v
}

// offered returns each value that is the only one to cross from one layer to later layers.
func offered(n *rules.Network) map[int]bool {
	all := map[int]bool{}
	for k := range n.Layers {
		crossing := map[int]bool{}
		for _, l := range n.Layers[:k] {
			for _, o := range l.Out {
				if slices.ContainsFunc(n.Layers[k:], func(l rules.Layer) bool { return slices.Contains(l.In, o.Value) }) {
					crossing[origin(n, o.Value)] = true
				}
			}
		}
		if len(crossing) == 1 {
			maps.Copy(all, crossing)
		}
	}
	return all
}

// TestMostPlacesWhereOneTensorCrossesAreCuts counts the places where a cut is possible, without the code that groups
// nodes. Most of them must be cuts, both with PyTorch's operators and after fusing.
func TestMostPlacesWhereOneTensorCrossesAreCuts(t *testing.T) {
	type share struct{ offered, all int }
	count := func(what, name string, among, cuts map[int]bool, sum *share) {
		one := share{all: len(among)}
		for v := range among {
			if cuts[v] {
				one.offered++
			}
		}
		sum.offered, sum.all = sum.offered+one.offered, sum.all+one.all
		main := slices.ContainsFunc(torchtest.Main(), func(r torchtest.Request) bool { return r.Name == name })
		if main && 10*one.offered < 9*one.all {
			t.Errorf("%s: %d of %d places are cuts %s", name, one.offered, one.all, what)
		}
	}
	var unfused, kept, fused share
	for _, a := range exported(t, slices.Concat(torchtest.Main(), torchtest.Styles())...) {
		off, err := imported.Open(a.Model, imported.Options{Fuse: imported.Off})
		if err != nil {
			continue // refused; other tests check that
		}
		on := opened(t, a.Model, imported.Fused)
		count("unfused", a.Name, places(off.Network), offered(off.Network), &unfused)
		count("of PyTorch's once fused", a.Name, places(off.Network), offered(on.Network), &kept)
		count("fused", a.Name, places(on.Network), offered(on.Network), &fused)
	}
	t.Logf("offered are %v unfused, of these %v once fused, and %v between fused operators", unfused, kept, fused)
	for what, s := range map[string]share{"unfused": unfused, "of PyTorch's once fused": kept, "fused": fused} {
		if s.all < 300 || 10*s.offered < 9*s.all {
			t.Errorf("%d of %d places are cuts %s", s.offered, s.all, what)
		}
	}
}
