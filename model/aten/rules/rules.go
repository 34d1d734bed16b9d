// Package rules turns a traced PyTorch graph into a chain of functional layers that do not depend on the mode.
//
// In: an aten.Graph, traced in training mode with the rows of one example. Out: a Network. Its nodes write only the
// module's own buffers. Numbers become expressions of the number of rows of a call, so that a graph traced with 4 rows
// runs with 2. Operators that depend on the mode are marked. Each value says whether it has a gradient. Nodes are
// grouped into layers at places where few tensors cross.
//
// The following is refused: operators that draw random numbers, except dropout; in-place writes to parameters,
// constants, and views of buffers; reads of a tensor that may have been changed under another name; sizes that might or
// might not be the batch; control flow and objects. The error names the node and its scope, and says what to change.
//
// The caller evaluates each Size with the rows of the call. It sets the arguments that a Mode names: the flag for
// training, and the dropout rate, with masks drawn from counters at the node's Site. It passes a Wrapped number as a
// scalar tensor, as PyTorch does. It runs the nodes of a layer in order. Nodes with Updates and without values run only
// in training, unless they are marked as Always. Buffers are written once for each forward in training, and not in a
// recomputation. If several layers hold a parameter, one of these layers owns it, and adds up the gradients of all of
// them.
package rules

import (
	"fmt"
	"slices"
	"strings"

	"github.com/millrace-ml/millrace/model/aten"
)

// Network is a graph whose nodes are functional, and its layers.
type Network struct {
	Graph   *aten.Graph    // the trace; inputs and tensors are read from it
	Nodes   []Node         // each after the nodes whose values it reads
	Values  map[int]*Value // inputs of the graph and results of nodes
	Outputs []Output       // the mean loss, then numbers to report
	Layers  []Layer        // in the order of the nodes; the last one returns the outputs
}

// Output is a number that the network returns.
type Output struct {
	Name string
	Arg  Arg
}

// Node is one call of an operator. It changes no arguments except buffers.
type Node struct {
	Op      string
	In      []Arg
	Out     []int // values; if the operator returns a list, the list's elements
	List    bool  // it returns a list
	Scope   string
	Site    int      // number of the traced node, from which dropout masks are drawn
	Mode    *Mode    // nil if training and evaluation do not differ
	Updates []string // buffers that it writes
	Always  bool     // it also runs in evaluation (see aten.Node.Always)
}

// Mode says which arguments of a node the caller sets; -1 means none.
type Mode struct {
	Train int // the flag for training
	Rate  int // the rate of dropout, which has an effect only in training
}

// Value is an input or a result of a node.
type Value struct {
	Dims   []*Expr // nil: unknown; a nil element: that size is unknown
	Shape  []int64 // in the example; nil: unknown
	DType  aten.DType
	Batch  bool    // it depends on an input of the graph, or on the number of rows
	Grad   bool    // it has a gradient
	Known  bool    // it depends on no trained parameter
	Double []int64 // its shape with twice the rows of the example; nil: unknown
	Loose  bool    // its sizes may depend on the contents of tensors
	// Spread says where the value's rows are.
	Spread Spread
}

// Kind is a kind of argument of a Node.
type Kind int

// The kinds of arguments.
const (
	None Kind = iota
	FromValue
	FromTensor
	Size    // an integer that depends on the number of rows
	Wrapped // a number where the schema has a Tensor
	Literal // unchanged from the trace
	List
)

// Arg is an argument of a Node. Kind says which field is used.
type Arg struct {
	Kind    Kind
	Value   int      // for FromValue
	Tensor  string   // for FromTensor
	Size    *Expr    // for Size, and for Wrapped without a Literal
	Literal aten.Arg // for Literal and Wrapped: a number, a word, a device
	List    []Arg
}

// maxRank is the largest number of dimensions of a tensor in a graph.
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

// Regroup removes nodes whose results are not read and that write no buffer. Then it groups the others into layers
// again. Code that has replaced nodes calls it.
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

// dropDead removes nodes whose results are not read and that write no buffer.
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

// eachValue calls f with each value among the arguments.
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

// eachTensor calls f with each tensor of the module among the arguments.
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
