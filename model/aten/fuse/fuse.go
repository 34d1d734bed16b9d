// Package fuse replaces operators of a network by millrace's own, which are faster or have a backward in two halves.
//
// In: a rules.Network, and readers of its tensors' elements. Out: the same network, changed and grouped into layers
// again, and a Report that says what was fused, what was not, and why. It fuses linear layers (with a following GELU or
// sum), two-dimensional convolutions, layer norms, embeddings, LSTMs with zero initial states, causal attention and
// plain max pooling. It removes dropouts that drop nothing. Losses and gradients stay the same up to rounding.
//
// Operators are not fused if millrace's operator would give another result. They are not fused either if an operator
// that is not fused also reads one of their trained parameters: in split backwards, the gradients of such a parameter
// would be added in another order than in whole backwards. The caller must provide the operators under the names and
// arguments of native/shim.
package fuse

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/millrace-ml/millrace/model/aten"
	"github.com/millrace-ml/millrace/model/aten/rules"
)

// Report says which operators were replaced by millrace's own.
type Report struct {
	Fused map[string]int `json:"fused"` // number of nodes, by millrace's operator
	Left  []Left         `json:"left,omitempty"`
}

// Left counts the operators of one name that were not replaced for one reason.
type Left struct {
	Op     string `json:"op"`
	Reason string `json:"reason"`
	Count  int    `json:"count"`
	Scope  string `json:"scope"` // module of the first such operator
}

// Apply fuses what it can. The argument `of` has the elements of the network's tensors, which decide whether a mask is
// causal.
func Apply(n *rules.Network, of map[string]*io.SectionReader) *Report {
	f := &fuser{graph: graph{net: n, tensors: map[string]*aten.Tensor{}}, report: &Report{Fused: map[string]int{}},
		reasons: map[int]string{}}
	a := &attention{fuser: f, masks: masks{graph: &f.graph, elements: of, budget: mostElements}}
	for i := range n.Graph.Tensors {
		f.tensors[n.Graph.Tensors[i].Name] = &n.Graph.Tensors[i]
	}
	for v := range n.Values {
		f.next = max(f.next, v+1)
	}
	for _, pass := range []func(){f.identities, f.weights, f.recurrent, a.fuse, f.behind, f.pools} {
		f.index()
		pass()
		f.settle()
	}
	n.Regroup()
	f.count()
	return f.report
}

// fuser is the state of one Apply.
type fuser struct {
	graph
	report  *Report
	reasons map[int]string // by value: why the node that makes the value was not replaced
}

// graph is a network with an index of the nodes that make and read its values, and with the changes of the present
// pass. Nodes keep their numbers until the pass ends.
type graph struct {
	net     *rules.Network
	tensors map[string]*aten.Tensor
	next    int // next unused number of a value

	maker  map[int]int          // the node that makes a value
	uses   map[int]int          // how often a value is read
	last   map[int]int          // the last node that reads a value
	reads  map[string]int       // how often a tensor is read
	before map[int][]rules.Node // nodes to insert before a node
	gone   map[int]bool         // nodes to remove
}

// index records which nodes make and read values and tensors.
func (g *graph) index() {
	g.maker, g.uses, g.last, g.reads = map[int]int{}, map[int]int{}, map[int]int{}, map[string]int{}
	g.before, g.gone = map[int][]rules.Node{}, map[int]bool{}
	var read func(args []rules.Arg, at int)
	read = func(args []rules.Arg, at int) {
		for _, a := range args {
			switch a.Kind {
			case rules.FromValue:
				g.uses[a.Value]++
				g.last[a.Value] = at
			case rules.FromTensor:
				g.reads[a.Tensor]++
			case rules.List:
				read(a.List, at)
			}
		}
	}
	for i, node := range g.net.Nodes {
		read(node.In, i)
		for _, v := range node.Out {
			g.maker[v] = i
		}
	}
	for _, o := range g.net.Outputs {
		read([]rules.Arg{o.Arg}, -1)
	}
}

// settle applies the insertions and removals of a pass.
func (g *graph) settle() {
	nodes := make([]rules.Node, 0, len(g.net.Nodes))
	for i, node := range g.net.Nodes {
		nodes = append(nodes, g.before[i]...)
		if !g.gone[i] {
			nodes = append(nodes, node)
		}
	}
	g.net.Nodes = nodes
}

// insert puts a new node before the node with index `at`, and returns the new node's value. The value's properties are
// copied from `like`.
func (g *graph) insert(at int, n rules.Node, like rules.Value) int {
	id := g.next
	g.next++
	g.net.Values[id] = &like
	n.Out, n.Scope = []int{id}, g.net.Nodes[at].Scope
	g.before[at] = append(g.before[at], n)
	return id
}

// identities removes dropouts that drop nothing, such as those that always run in evaluation mode.
func (f *fuser) identities() {
	same := map[int]rules.Arg{}
	var renamed func(args []rules.Arg)
	renamed = func(args []rules.Arg) {
		for i, a := range args {
			if to, ok := same[a.Value]; ok && a.Kind == rules.FromValue {
				args[i] = to
			}
			renamed(a.List)
		}
	}
	for i := range f.net.Nodes {
		node := &f.net.Nodes[i]
		node.In = slices.Clone(node.In)
		for k, a := range node.In {
			node.In[k].List = slices.Clone(a.List)
		}
		renamed(node.In)
		if strings.HasSuffix(base(node.Op), "dropout") && optional(node.In, 0).Kind == rules.FromValue &&
			(node.Mode == nil || number(node.In, node.Mode.Rate, -1) == 0) {
			same[node.Out[0]] = node.In[0]
			f.gone[i] = true
		}
	}
	for i := range f.net.Outputs {
		one := []rules.Arg{f.net.Outputs[i].Arg}
		renamed(one)
		f.net.Outputs[i].Arg = one[0]
	}
}

// leave records the reason why a node is not replaced.
func (f *fuser) leave(node *rules.Node, format string, args ...any) {
	if len(node.Out) > 0 {
		f.reasons[node.Out[0]] = fmt.Sprintf(format, args...)
	}
}

// count fills in the Report. It counts millrace's operators, and each other operator that has a recorded reason. It
// counts an operator without a recorded reason if it reads a trained tensor and is neither in `sees` nor expand.
func (f *fuser) count() {
	for i := range f.net.Nodes {
		node := &f.net.Nodes[i]
		if op, is := strings.CutPrefix(node.Op, own); is {
			f.report.Fused[op]++
			continue
		}
		if len(node.Out) == 0 {
			continue
		}
		reason, told := f.reasons[node.Out[0]]
		if !told {
			if !f.trains(node.In) || sees[base(node.Op)] || base(node.Op) == "expand" {
				continue
			}
			reason = "there is no operator of millrace for it"
		}
		op := strings.TrimPrefix(node.Op, "aten::")
		at := slices.IndexFunc(f.report.Left, func(l Left) bool { return l.Op == op && l.Reason == reason })
		if at < 0 {
			at = len(f.report.Left)
			f.report.Left = append(f.report.Left, Left{Op: op, Reason: reason, Scope: node.Scope})
		}
		f.report.Left[at].Count++
	}
}

// trains says whether a trained tensor is among the arguments.
func (g *graph) trains(args []rules.Arg) bool {
	return slices.ContainsFunc(args, func(a rules.Arg) bool {
		return a.Kind == rules.FromTensor && g.tensors[a.Tensor].Trained || g.trains(a.List)
	})
}

const own = "millrace::"

// base returns an ATen operator's name without prefix and overload.
func base(op string) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(op, "aten::"), ".")
	return name
}
