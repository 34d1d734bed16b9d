// Package fuse replaces operators of a network by those of millrace, which go back in two halves or are faster.
//
// In: a rules.Network, and what reads the elements of its tensors. Out: the same network, changed and grouped again,
// and a Report of what was fused and what was left alone, and why. Linear layers (with GELU behind them, or a sum),
// convolutions in two dimensions, layer norms, embeddings, LSTMs from zero states, causal attention and plain max
// pooling are fused; a dropout that drops nothing goes. Losses and gradients are what they were but for rounding.
//
// Left alone: all that an operator of millrace does not compute alike, and parameters that any other operator reads
// too: their gradients come in one order with whole backwards and in another with halves.
// Its driver computes the operators by the names and arguments that native/shim has them under.
package fuse

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/millrace-ml/millrace/model/aten"
	"github.com/millrace-ml/millrace/model/aten/rules"
)

// Report says what became of the operators that millrace has its own for.
type Report struct {
	Fused map[string]int `json:"fused"` // by the operator of millrace
	Left  []Left         `json:"left,omitempty"`
}

// Left are operators that were left alone for one reason.
type Left struct {
	Op     string `json:"op"`
	Reason string `json:"reason"`
	Count  int    `json:"count"`
	Scope  string `json:"scope"` // of the first of them
}

// Apply fuses what it can. of has the elements of the network's tensors, for the masks of attention.
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

// fuser is one Apply.
type fuser struct {
	graph
	report  *Report
	reasons map[int]string // why the node that yields a value was left alone
}

// graph is a network, who yields and who reads what in it, and what a pass has changed. Nodes keep their numbers until
// the pass is over.
type graph struct {
	net     *rules.Network
	tensors map[string]*aten.Tensor
	next    int // a value that nobody has

	maker  map[int]int          // node that yields a value
	uses   map[int]int          // times that a value is read
	last   map[int]int          // node that reads a value, the last one
	reads  map[string]int       // times that a tensor is read
	before map[int][]rules.Node // to be inserted in front of a node
	gone   map[int]bool         // nodes that are replaced
}

// index notes who yields and who reads what.
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

// settle takes over what a pass has inserted and removed.
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

// insert puts a node in front of another and returns its value. The facts known of the value are those of like.
func (g *graph) insert(at int, n rules.Node, like rules.Value) int {
	id := g.next
	g.next++
	g.net.Values[id] = &like
	n.Out, n.Scope = []int{id}, g.net.Nodes[at].Scope
	g.before[at] = append(g.before[at], n)
	return id
}

// identities removes dropouts that drop nothing, or nothing in evaluation where they are always in that.
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

// leave notes why a node is left alone.
func (f *fuser) leave(node *rules.Node, format string, args ...any) {
	if len(node.Out) > 0 {
		f.reasons[node.Out[0]] = fmt.Sprintf(format, args...)
	}
}

// count counts the operators of millrace, and of the others those that hold what is trained or were left for a reason.
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

// trains says whether a trained tensor is among arguments.
func (g *graph) trains(args []rules.Arg) bool {
	return slices.ContainsFunc(args, func(a rules.Arg) bool {
		return a.Kind == rules.FromTensor && g.tensors[a.Tensor].Trained || g.trains(a.List)
	})
}

// own is how the names of millrace's operators begin.
const own = "millrace::"

// base is an operator's name without its overload, for ATen's alone.
func base(op string) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(op, "aten::"), ".")
	return name
}
