package artifact

import (
	"cmp"
	"slices"

	"github.com/millrace-ml/millrace/profile"
)

// publishedOrder returns the order in which the published code numbers states. The order matters for the code's
// all-reduce term, which has one state too many, and for its estimates of overlap. The code searches breadth first from
// layer 0 for the states that follow each state. It describes a state by the first layer of the state's antichain, in
// the order in which it lists the antichain's layers. The description is the Kind of that layer, as profile/importer
// sets it. Then the code sorts the states topologically, depth first, by these descriptions. Entry i of the result is
// the index, in the list of states, of the state at position i.
//
// The original visits the layers of a set in the order of their hashes, and edges in the order of the file. Here both
// are visited in ascending order. The results for the published profiles are the same.
func publishedOrder(p *profile.Profile, states *profile.States) []int {
	g := newAntichains(p, states)
	discovered := g.explore()
	byDescription := func(a, b int) int { return cmp.Compare(g.description(a), g.description(b)) }
	var order []int
	done := make([]bool, len(states.List))
	var visit func(i int)
	visit = func(i int) {
		if done[i] {
			return
		}
		done[i] = true
		slices.SortStableFunc(g.edges[i], byDescription)
		for _, to := range g.edges[i] {
			visit(to)
		}
		order = append(order, i)
	}
	slices.SortStableFunc(discovered, byDescription)
	for _, i := range discovered {
		visit(i)
	}
	for i := len(states.List) - 1; i >= 0; i-- {
		visit(i) // does nothing unless the published code would reject the graph
	}
	slices.Reverse(order)
	return order
}

// antichains is the graph of states, with an edge from each state to every state that has one more layer.
type antichains struct {
	p       *profile.Profile
	states  *profile.States
	past    [][]bool       // by layer: its ancestors
	readers [][]int        // by layer: the layers that read it, ascending
	of      map[string]int // state by its closure
	last    [][]int        // by state: its antichain without augmentation, in the published order
	edges   [][]int
}

func newAntichains(p *profile.Profile, states *profile.States) *antichains {
	n := len(states.List)
	g := &antichains{
		p: p, states: states, past: make([][]bool, len(p.Layers)), readers: make([][]int, len(p.Layers)),
		of: make(map[string]int, n), last: make([][]int, n), edges: make([][]int, n),
	}
	for l, layer := range p.Layers {
		g.past[l] = make([]bool, len(p.Layers))
		for _, from := range layer.From {
			if from < 0 || g.past[l][from] && slices.Contains(g.readers[from], l) {
				continue
			}
			g.readers[from] = append(g.readers[from], l)
			g.past[l][from] = true
			for q, in := range g.past[from] {
				g.past[l][q] = g.past[l][q] || in
			}
		}
	}
	set := make([]byte, len(p.Layers))
	for i := range states.List {
		clear(set)
		for _, l := range states.Layers(i) {
			set[l] = 1
		}
		g.of[string(set)] = i
	}
	return g
}

func (g *antichains) description(state int) string {
	if len(g.last[state]) == 0 {
		return ""
	}
	return g.p.Layers[g.last[state][0]].Kind
}

// explore fills in edges and antichains, and lists the states in the order in which they are first reached.
func (g *antichains) explore() []int {
	queue := []int{0}
	g.last[0] = []int{0}
	for at := 0; at < len(queue); at++ {
		i := queue[at]
		augmented := g.states.List[i].Antichain
		var list []int
		for _, l := range augmented {
			if !slices.Contains(g.last[i], l) {
				list = append(list, l)
			}
		}
		list = append(list, g.last[i]...)
		for n, a := range list {
			for _, l := range g.readers[a] {
				if slices.Contains(list, l) || slices.ContainsFunc(list, func(b int) bool { return g.past[b][l] }) {
					continue
				}
				next := slices.Clone(list)
				next[n] = l
				next = g.deaugment(next)
				to, ok := g.of[g.closure(next)]
				if !ok {
					continue
				}
				if g.last[to] == nil {
					g.last[to] = next
					queue = append(queue, to)
				}
				g.edges[i] = append(g.edges[i], to)
			}
		}
	}
	return queue
}

// deaugment removes duplicates from a list of layers, and layers that are ancestors of other layers in the list.
func (g *antichains) deaugment(list []int) []int {
	var out []int
	for _, a := range list {
		if !slices.Contains(out, a) && !slices.ContainsFunc(list, func(b int) bool { return g.past[b][a] }) {
			out = append(out, a)
		}
	}
	return out
}

func (g *antichains) closure(list []int) string {
	set := make([]byte, len(g.past))
	for _, a := range list {
		set[a] = 1
		for q, in := range g.past[a] {
			if in {
				set[q] = 1
			}
		}
	}
	return string(set)
}
