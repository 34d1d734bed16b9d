package importer

import (
	"container/heap"
	"fmt"
	"slices"
	"strings"
)

// node is one node of a file's graph.
type node struct {
	id, kind            string
	line                int // 0 in formats without lines
	forwardS, backwardS float64
	output, saved       int64
	parameters          int64
	from                []int // the nodes that it reads, each once
	readers             int
	input, unused       bool // removed as an input, or because nothing reads it
}

// graph holds a file's nodes, in the file's order.
type graph struct {
	path  string
	nodes []node
	index map[string]int
	edges map[[2]int]bool
	notes []string
}

func newGraph(path string) *graph {
	return &graph{path: path, index: map[string]int{}, edges: map[[2]int]bool{}}
}

// errorf returns an error that names a line of the file.
func (g *graph) errorf(line int, format string, args ...any) error {
	return fmt.Errorf("importer: %s:%d: %s", g.path, line, fmt.Sprintf(format, args...))
}

// connect adds an edge, unless the graph has it already.
func (g *graph) connect(from, to int) {
	if !g.edges[[2]int{from, to}] {
		g.edges[[2]int{from, to}] = true
		g.nodes[to].from = append(g.nodes[to].from, from)
		g.nodes[from].readers++
	}
}

// order returns a topological order of the nodes that were not removed. Among the nodes that may come next, it always
// takes the first in the file.
func (g *graph) order() ([]int, error) {
	missing := make([]int, len(g.nodes))
	readers := make([][]int, len(g.nodes))
	ready := &smallest{}
	kept := 0
	for n := range g.nodes {
		if g.removed(n) {
			continue
		}
		kept++
		for _, from := range g.nodes[n].from {
			if !g.removed(from) {
				missing[n]++
				readers[from] = append(readers[from], n)
			}
		}
		if missing[n] == 0 {
			heap.Push(ready, n)
		}
	}
	if kept == 0 {
		return nil, fmt.Errorf("importer: %s: there are no nodes but inputs in it; a profile needs one layer at least",
			g.path)
	}
	var order []int
	for ready.Len() > 0 {
		n := heap.Pop(ready).(int)
		order = append(order, n)
		for _, reader := range readers[n] {
			if missing[reader]--; missing[reader] == 0 {
				heap.Push(ready, reader)
			}
		}
	}
	if len(order) < kept {
		return nil, fmt.Errorf("importer: %s: the graph has a cycle: %s; a model's graph has none", g.path,
			g.cycle(missing))
	}
	return order, nil
}

func (g *graph) removed(n int) bool { return g.nodes[n].input || g.nodes[n].unused }

// cycle names the nodes of one cycle. It finds a cycle because each node with missing inputs reads another such node.
func (g *graph) cycle(missing []int) string {
	at := slices.IndexFunc(missing, func(m int) bool { return m > 0 })
	seen := map[int]int{}
	var path []int
	for {
		if first, again := seen[at]; again {
			path = path[first:]
			break
		}
		seen[at] = len(path)
		path = append(path, at)
		at = g.nodes[at].from[slices.IndexFunc(g.nodes[at].from, func(f int) bool { return missing[f] > 0 })]
	}
	slices.Reverse(path)
	var names []string
	for _, n := range path[:min(len(path), 8)] {
		names = append(names, g.nodes[n].id)
	}
	if len(path) > 8 {
		return strings.Join(names, " -> ") + fmt.Sprintf(" -> ... (%d nodes)", len(path))
	}
	return strings.Join(append(names, names[0]), " -> ")
}

// removeUnplanned removes the nodes that PipeDream's and DAPPLE's optimizers remove. First it removes sources that are
// inputs: their description begins with "Input". Then it removes sinks that only unpack a tuple.
func (g *graph) removeUnplanned() {
	var inputs, unused []string
	for n := range g.nodes {
		if node := &g.nodes[n]; len(node.from) == 0 && strings.HasPrefix(node.kind, "Input") {
			node.input = true
			inputs = append(inputs, node.id)
		}
	}
	for n := range g.nodes {
		if node := &g.nodes[n]; node.readers == 0 && !node.input && strings.HasPrefix(node.kind, "__getitem__") {
			node.unused = true
			unused = append(unused, node.id)
		}
	}
	if len(inputs) > 0 {
		g.notes = append(g.notes, fmt.Sprintf("%s: input, left out with its time, as the published optimizers do",
			listed(inputs)))
	}
	if len(unused) > 0 {
		g.notes = append(g.notes, fmt.Sprintf("%s: __getitem__ that nothing reads, left out, as the published "+
			"optimizers do", listed(unused)))
	}
}

// listed joins up to six names, and counts the others.
func listed(names []string) string {
	if len(names) > 6 {
		return strings.Join(names[:6], ", ") + fmt.Sprintf(" and %d more", len(names)-6)
	}
	return strings.Join(names, ", ")
}

// smallest is a heap of nodes, the first in the file on top.
type smallest []int

func (s smallest) Len() int           { return len(s) }
func (s smallest) Less(i, j int) bool { return s[i] < s[j] }
func (s smallest) Swap(i, j int)      { s[i], s[j] = s[j], s[i] }
func (s *smallest) Push(x any)        { *s = append(*s, x.(int)) }
func (s *smallest) Pop() any {
	last := (*s)[len(*s)-1]
	*s = (*s)[:len(*s)-1]
	return last
}
