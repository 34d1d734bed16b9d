// Package rules makes a traced PyTorch graph functional, free of its mode, and a chain of layers.
//
// In: an aten.Graph as it was traced: in training mode, with the rows of one example. Out: a Network. Its nodes write
// nothing but the module's own buffers; numbers are folded into expressions of the rows of a call, so that what was
// traced with 4 rows runs with 2; operators whose behaviour depends on the mode are marked; each value says whether it
// has a gradient; nodes are grouped into layers at the places where few tensors cross.
//
// Refused, with the node, its scope and what to change: operators that draw random numbers, other than dropout;
// writing parameters, constants, and views of buffers in place; reading a tensor that another name may or may not have
// changed; sizes of which nobody can tell whether they are the batch; control flow and objects.
//
// Its driver evaluates each Size with the rows of the call; replaces the arguments that a Mode names: by whether it
// trains, and by masks drawn from counters at the node's Site; passes a Wrapped number as PyTorch wraps one; runs the
// nodes of a layer in order, those with Updates and no values in training alone, and has buffers written once a
// forward and not on recompute; and gives a parameter that several layers hold one owner, which adds their gradients.
package rules

import (
	"fmt"
	"slices"
	"strings"

	"github.com/millrace-ml/millrace/model/aten"
)

// Network is a graph whose nodes are functional, and its layers.
type Network struct {
	Graph   *aten.Graph    // as it was traced; inputs and tensors are read from it
	Nodes   []Node         // each behind those that it reads of
	Values  map[int]*Value // inputs of the graph, and what nodes yield
	Outputs []Output       // the mean loss, then numbers to report
	Layers  []Layer        // in the order of the nodes; the last one yields the outputs
}

// Output is a number that the network yields.
type Output struct {
	Name string
	Arg  Arg
}

// Node is one call of an operator that changes none of its arguments but buffers.
type Node struct {
	Op      string
	In      []Arg
	Out     []int // values; of an operator that yields a list, its elements
	List    bool  // it yields a list
	Scope   string
	Site    int      // number of the traced node: where masks of dropout are drawn
	Mode    *Mode    // nil where training and evaluating are the same
	Updates []string // buffers that it writes
	Always  bool     // it changes a buffer in evaluation too, for those that read it there
}

// Mode says which arguments of a node the driver sets; -1 is none.
type Mode struct {
	Train int // whether it trains
	Rate  int // of dropout: nothing where it does not train
}

// Value is a tensor that an input or a node gives.
type Value struct {
	Dims   []*Expr // nil: unknown; an element nil: that size is unknown
	Shape  []int64 // in the example; nil: unknown
	DType  aten.DType
	Batch  bool    // depends on an input of the graph
	Grad   bool    // has a gradient
	Known  bool    // depends on no trained parameter
	Double []int64 // its shape with twice the rows of the example; nil: unknown
	Loose  bool    // its sizes may depend on what tensors hold
	// Spread is where its rows lie.
	Spread Spread
}

// Kind is a kind of argument of a Node.
type Kind int

// The kinds of arguments.
const (
	None Kind = iota
	FromValue
	FromTensor
	Size    // an integer that depends on the rows
	Wrapped // a number where the schema says Tensor
	Literal // as it was traced
	List
)

// Arg is an argument of a Node. Kind says which field counts.
type Arg struct {
	Kind    Kind
	Value   int      // FromValue
	Tensor  string   // FromTensor
	Size    *Expr    // Size; Wrapped, where Literal is none
	Literal aten.Arg // Literal, Wrapped: a number, a word, a device
	List    []Arg
}

// maxRank is the most dimensions that a tensor of a graph may have.
const maxRank = 64

// Normalise applies the rules to a graph and groups it into layers.
func Normalise(g *aten.Graph) (*Network, error) {
	if g.Rows < 1 {
		return nil, fmt.Errorf("the graph has %d rows; an example has at least 1", g.Rows)
	}
	if g.NoLoss {
		return nil, fmt.Errorf("the module returns no loss; give --loss %s", strings.Join(Losses, ", --loss "))
	}
	if len(g.Outputs) == 0 {
		return nil, fmt.Errorf("the graph has no outputs; the first one is the mean loss")
	}
	w := newWalker(g)
	if err := w.inputs(); err != nil {
		return nil, err
	}
	for i := range g.Nodes {
		if err := w.node(i); err != nil {
			n := &g.Nodes[i]
			where := scopeName(n.Scope)
			if n.Where != "" {
				where += ", " + n.Where
			}
			return nil, fmt.Errorf("node %d, %s in %s: %w", i, n.Op, where, err)
		}
	}
	for _, o := range g.Outputs {
		arg, err := w.resolve(o.Arg)
		if err != nil {
			return nil, fmt.Errorf("output %s: %w", o.Name, err)
		}
		if arg.Kind != FromValue {
			return nil, fmt.Errorf("output %s is no tensor that a node yields; give one computed of the inputs", o.Name)
		}
		w.net.Outputs = append(w.net.Outputs, Output{o.Name, arg})
	}
	if !w.net.Values[w.net.Outputs[0].Arg.Value].Grad {
		return nil, fmt.Errorf("the loss %s has no gradient; compute it of trained parameters, without detach",
			w.net.Outputs[0].Name)
	}
	w.net.Regroup()
	return w.net, nil
}

// Regroup leaves out nodes that nobody reads of, and groups the others into layers, anew where nodes were replaced.
func (n *Network) Regroup() {
	n.dropDead()
	n.Layers = nil
	n.group()
}

func scopeName(s string) string {
	if s == "" {
		return "the model itself"
	}
	return s
}

// dropDead removes the nodes whose results nobody reads and that write no buffer.
func (n *Network) dropDead() {
	used := map[int]bool{}
	for _, o := range n.Outputs {
		eachValue([]Arg{o.Arg}, func(v int) { used[v] = true })
	}
	keep := make([]Node, 0, len(n.Nodes))
	for i := len(n.Nodes) - 1; i >= 0; i-- {
		node := n.Nodes[i]
		if len(node.Updates) == 0 && !slices.ContainsFunc(node.Out, func(v int) bool { return used[v] }) {
			for _, v := range node.Out {
				delete(n.Values, v)
			}
			continue
		}
		eachValue(node.In, func(v int) { used[v] = true })
		keep = append(keep, node)
	}
	slices.Reverse(keep)
	n.Nodes = keep
}

// eachValue calls f with each value among arguments.
func eachValue(args []Arg, f func(int)) {
	for _, a := range args {
		switch a.Kind {
		case FromValue:
			f(a.Value)
		case List:
			eachValue(a.List, f)
		}
	}
}

// eachTensor calls f with each tensor of the module among arguments.
func eachTensor(args []Arg, f func(string)) {
	for _, a := range args {
		switch a.Kind {
		case FromTensor:
			f(a.Tensor)
		case List:
			eachTensor(a.List, f)
		}
	}
}
