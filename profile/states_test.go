package profile

import (
	"fmt"
	"slices"
	"sort"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// dag returns a profile of a graph and its costs. Layer l reads the layers listed in from[l].
func dag(from [][]int, seconds []float64, parameters, outputs []int64) (*Profile, []Cost) {
	p := &Profile{Version: Version, Model: "dag", Source: "imported"}
	var costs []Cost
	for l := range from {
		c := Cost{Device: "gpu", MicroBatch: 1, ForwardS: seconds[l], OutputBytes: outputs[l], SavedBytes: outputs[l]}
		layer := Layer{Name: fmt.Sprint("n", l), From: from[l], TiedTo: -1, ParameterBytes: parameters[l],
			Costs: []Cost{c}}
		if len(from[l]) == 0 {
			layer.From = []int{-1}
		}
		p.Layers = append(p.Layers, layer)
		costs = append(costs, c)
	}
	return p, costs
}

// drawDAG draws a connected graph of at most `most` layers. Some of them take no time and have no parameters.
func drawDAG(t *rapid.T, most int) (*Profile, []Cost) {
	n := rapid.IntRange(1, most).Draw(t, "layers")
	from := make([][]int, n)
	seconds, parameters, outputs := make([]float64, n), make([]int64, n), make([]int64, n)
	for l := range n {
		for range min(l, rapid.IntRange(1, 3).Draw(t, "reads")) {
			if f := rapid.IntRange(max(0, l-5), l-1).Draw(t, "from"); !slices.Contains(from[l], f) {
				from[l] = append(from[l], f)
			}
		}
		seconds[l] = float64(rapid.IntRange(0, 4).Draw(t, "s"))
		parameters[l] = int64(rapid.IntRange(0, 2).Draw(t, "w"))
		outputs[l] = int64(rapid.IntRange(0, 5).Draw(t, "a"))
	}
	return dag(from, seconds, parameters, outputs)
}

// literal enumerates the antichains one by one, as the published code does. The method augment is the authors' function
// of that name.
type literal struct {
	pred, succ map[int]map[int]bool // all ancestors and all descendants of a layer
	edges      map[int][]int
}

func newLiteral(p *Profile) *literal {
	g := &literal{map[int]map[int]bool{}, map[int]map[int]bool{}, map[int][]int{}}
	for l, layer := range p.Layers {
		g.pred[l], g.succ[l] = map[int]bool{}, map[int]bool{}
		for _, from := range layer.From {
			if from < 0 {
				continue
			}
			g.edges[from] = append(g.edges[from], l)
			g.pred[l][from] = true
			for q := range g.pred[from] {
				g.pred[l][q] = true
			}
		}
		for q := range g.pred[l] {
			g.succ[q][l] = true
		}
	}
	return g
}

func (g *literal) augment(antichain []int) []int {
	set := map[int]bool{}
	for _, a := range antichain {
		set[a] = true
		for p := range g.pred[a] {
			for _, out := range g.edges[p] {
				if !g.pred[a][out] && out != a {
					set[p] = true
				}
			}
		}
	}
	return sorted(set)
}

func (g *literal) closure(antichain []int) []int {
	set := map[int]bool{}
	for _, a := range antichain {
		set[a] = true
		for p := range g.pred[a] {
			set[p] = true
		}
	}
	return sorted(set)
}

// all maps each closure, as text, to its augmented antichain.
func (g *literal) all() map[string][]int {
	out := map[string][]int{}
	queue, seen := [][]int{{0}}, map[string]bool{}
	for ; len(queue) > 0; queue = queue[1:] {
		antichain := queue[0]
		if seen[fmt.Sprint(antichain)] {
			continue
		}
		seen[fmt.Sprint(antichain)] = true
		augmented := g.augment(antichain)
		out[fmt.Sprint(g.closure(antichain))] = augmented
		for _, u := range augmented {
		next:
			for _, v := range g.edges[u] {
				if slices.Contains(antichain, v) {
					continue
				}
				for _, a := range augmented {
					if g.succ[v][a] {
						continue next
					}
				}
				set := map[int]bool{v: true}
				for _, a := range augmented {
					set[a] = set[a] || a != u
				}
				delete(set, u)
				var kept []int
				for _, a := range sorted(set) {
					last := true
					for b := range set {
						last = last && !g.succ[a][b]
					}
					if last {
						kept = append(kept, a)
					}
				}
				queue = append(queue, kept)
			}
		}
	}
	return out
}

func sorted(set map[int]bool) []int {
	var list []int
	for x := range set {
		list = append(list, x)
	}
	sort.Ints(list)
	return list
}

func TestStatesAreThePublishedOnes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, costs := drawDAG(t, 12)
		want := newLiteral(p).all()
		s, err := StatesOf(p, costs)
		if err != nil {
			t.Fatal(err)
		}
		if len(s.List) != len(want) {
			t.Fatalf("%d states, want %d", len(s.List), len(want))
		}
		for i, state := range s.List {
			layers := s.Layers(i)
			if got, ok := want[fmt.Sprint(layers)]; !ok || !slices.Equal(got, state.Antichain) {
				t.Fatalf("closure %v: antichain %v, want %v (a state: %v)", layers, state.Antichain, got, ok)
			}
			seconds, w, act, out := 0.0, int64(0), int64(0), int64(0)
			for _, l := range layers {
				seconds += costs[l].ForwardS
				w += p.Layers[l].ParameterBytes
				act += costs[l].SavedBytes
			}
			for _, l := range state.Antichain {
				out += costs[l].OutputBytes
			}
			if state.ComputeS != seconds || state.ParameterBytes != w || state.ActivationBytes != act ||
				state.OutputBytes != out {
				t.Fatalf("closure %v: %+v, want %v s, %d, %d and %d bytes", layers, state, seconds, w, act, out)
			}
			for j := range s.List {
				inside := i != j && !slices.ContainsFunc(layers, func(l int) bool {
					return !slices.Contains(s.Layers(j), l)
				})
				if s.Before(i, j) != inside {
					t.Fatalf("Before(%d, %d) = %v; closures %v and %v", i, j, !inside, layers, s.Layers(j))
				}
				if inside && j < i {
					t.Fatalf("state %d comes after %d, which it is before", i, j)
				}
			}
		}
	})
}

func TestOneStateForEachLayerOfAChain(t *testing.T) {
	const n = 30_000
	from, seconds, bytes := make([][]int, n), make([]float64, n), make([]int64, n)
	for l := 1; l < n; l++ {
		from[l] = []int{l - 1}
	}
	for l := range n {
		seconds[l], bytes[l] = 1, 1
	}
	p, costs := dag(from, seconds, bytes, bytes)
	s, err := StatesOf(p, costs)
	if err != nil {
		t.Fatal(err)
	}
	last := s.List[n-1]
	if len(s.List) != n || last.ComputeS != n || last.OutputBytes != 1 || !s.Before(5, n-1) || s.Before(7, 7) ||
		len(s.Layers(41)) != 42 {
		t.Errorf("%d states, the last %+v", len(s.List), last)
	}
	c, err := CompressedStates(p, costs)
	if err != nil {
		t.Fatal(err)
	}
	if len(c.List) > FewStates || c.SlackS == 0 || c.List[len(c.List)-1].ComputeS != n {
		t.Errorf("%d states with %v s of slack", len(c.List), c.SlackS)
	}
}

func TestStatesRefuse(t *testing.T) {
	two, costs := dag([][]int{{}, {}}, []float64{1, 1}, make([]int64, 2), make([]int64, 2))
	if _, err := StatesOf(two, costs); err == nil || !strings.Contains(err.Error(), "layer 1 (n1) of dag is "+
		"connected to no layer") {
		t.Errorf("two pieces: %v", err)
	}
	if _, err := StatesOf(two, costs[:1]); err == nil {
		t.Error("one cost for two layers is taken")
	}
	// 24 branches have 2^24 states.
	from := [][]int{{}}
	var join []int
	for b := range 24 {
		from = append(from, []int{0})
		join = append(join, b+1)
	}
	from = append(from, join)
	n := len(from)
	wide, costs := dag(from, make([]float64, n), make([]int64, n), make([]int64, n))
	g, err := newGraph(wide, costs)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.states(make([]bool, n), 1000); err == nil || !strings.Contains(err.Error(), "dag has more than "+
		"1000 antichain states") {
		t.Errorf("24 branches: %v", err)
	}
}
