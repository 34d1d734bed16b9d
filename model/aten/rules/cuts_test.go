package rules

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/millrace-ml/millrace/internal/torchtest"
	"github.com/millrace-ml/millrace/model/aten"
)

// places are the values each of which crosses a boundary between two nodes alone, and has a gradient there. What cheap
// nodes make of inputs and sizes alone does not cross: whoever reads it makes it again.
func places(n *Network) map[int]bool {
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
			eachValue([]Arg{o.Arg}, read)
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

// origin follows a value back through the nodes that only have it cross.
func origin(n *Network, v int) int {
	for _, node := range slices.Backward(n.Nodes) {
		if node.Site < 0 && node.Out[0] == v {
			v = node.In[0].Value
		}
	}
	return v
}

// offered are the values that cross alone from one layer to those behind it.
func offered(n *Network) map[int]bool {
	all := map[int]bool{}
	for k := range n.Layers {
		crossing := map[int]bool{}
		for _, l := range n.Layers[:k] {
			for _, o := range l.Out {
				if slices.ContainsFunc(n.Layers[k:], func(l Layer) bool { return slices.Contains(l.In, o.Value) }) {
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

// TestMostPlacesWhereOneTensorCrossesAreCuts counts them without the code that groups nodes.
func TestMostPlacesWhereOneTensorCrossesAreCuts(t *testing.T) {
	total, hits := 0, 0
	for _, a := range torchtest.Run(t, slices.Concat(torchtest.Main(), torchtest.Styles())...) {
		g, weights, err := aten.Read(a.Model)
		if err != nil {
			t.Log(a.Name, a.Said)
			continue // refused by the exporter
		}
		must(t, weights.Close())
		n, err := Normalise(g)
		if err != nil {
			t.Log(a.Name, err)
			continue
		}
		checkLayers(t, n)
		for i, l := range n.Layers {
			if _, err := n.Program(i, l.In); err != nil {
				t.Errorf("%s: %v", a.Name, err)
			}
		}
		want, got := places(n), offered(n)
		var missing []string
		for v := range want {
			if !got[v] {
				missing = append(missing, fmt.Sprint(n.Values[v].Dims))
			}
		}
		total, hits = total+len(want), hits+len(want)-len(missing)
		if slices.ContainsFunc(torchtest.Main(), func(r torchtest.Request) bool { return r.Name == a.Name }) &&
			10*len(missing) > len(want) {
			t.Errorf("%s: %d of %d places are no cuts: %v", a.Name, len(missing), len(want), missing)
		}
	}
	if total < 300 || 10*hits < 9*total {
		t.Errorf("%d of %d places are cuts", hits, total)
	}
}
