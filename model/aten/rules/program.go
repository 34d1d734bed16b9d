package rules

import (
	"fmt"
	"slices"
	"strings"

	"github.com/millrace-ml/millrace/model/aten"
)

// Program is the computation of a layer. Its values are numbered: first its inputs, then the results of its calls.
// Parameters are numbered separately.
type Program struct {
	Inputs  []Spread // by input tensor: where its rows are; the caller passes the tensor with rows first
	Rows    int      // index of an input whose first dimension is the rows of a call
	Params  int      // number of parameters that it reads
	Values  int
	Calls   []Call
	Example int64    // rows of the example
	Out     []int    // values that it returns
	Yields  []Spread // by value in Out: where its rows are; the value is passed on with rows first
	Loss    bool     // it returns numbers: the mean loss, and numbers to report
	// State lists parameters in ascending order. It contains each parameter that one call writes and another call
	// reads. It also contains each parameter that is written together with one of these. If the forward is computed
	// again for a backward, it must start from the old values of all these parameters.
	State []int
}

// Call is one call of an operator in a Program.
type Call struct {
	Op      string
	In      []Operand
	Out     []int // values; if the operator returns a list, the list's elements
	List    bool
	Site    int   // for a dropout: the number from which its masks are drawn
	Mode    *Mode // nil if training and evaluation do not differ
	Updates []int // parameters that it writes
	Always  bool  // see Node.Always
	Spread  Spread
	Where   string     // the calling module and the line, for messages; not in the text form
	Shapes  []Recorded // recorded shapes of its results; not in the text form
}

// Norm says whether a Call is a batch or instance norm, whose arguments 3 and 4 are running statistics.
func (c *Call) Norm() bool {
	b := base(c.Op)
	return b == "batch_norm" || b == "instance_norm"
}

// Operand is an argument of a Call. Kind says which field is used. If Kind is FromTensor, Index is the number of a
// parameter of the layer.
type Operand struct {
	Kind    Kind
	Index   int      // for FromValue and FromTensor
	Size    *Expr    // for Size, and for Wrapped without a Literal
	Literal aten.Arg // for Literal and Wrapped
	List    []Operand
}

// Program compiles a layer of the network. The argument `reads` lists the values that the layer is given. These must
// include all values that the layer needs.
func (n *Network) Program(layer int, reads []int) (*Program, error) {
	l := &n.Layers[layer]
	p := &Program{Rows: -1, Params: len(l.Tensors), Example: n.Graph.Rows}
	values, params := map[int]int{}, map[string]int{}
	for i, v := range reads {
		values[v] = i
		s := n.Values[v].Spread
		if p.Inputs = append(p.Inputs, s); p.Rows < 0 && s.Dim >= 0 {
			p.Rows = i
		}
	}
	if p.Rows < 0 {
		return nil, fmt.Errorf("layer %s reads no tensor that has rows", l.Name)
	}
	for i, h := range l.Tensors {
		params[h.Tensor] = i
	}
	p.Values = len(reads)
	var operands func(args []Arg) []Operand
	operands = func(args []Arg) []Operand {
		out := make([]Operand, len(args))
		for i, a := range args {
			out[i] = Operand{Kind: a.Kind, Size: a.Size, Literal: a.Literal}
			switch a.Kind {
			case FromValue:
				out[i].Index = values[a.Value]
			case FromTensor:
				out[i].Index = params[a.Tensor]
			case List:
				out[i].List = operands(a.List)
			}
		}
		return out
	}
	for _, at := range l.Nodes {
		node := &n.Nodes[at]
		c := Call{Op: wherever(node.Op), In: operands(node.In), List: node.List, Site: node.Site, Mode: node.Mode,
			Spread: nowhere, Where: n.where(node), Always: node.Always}
		for _, b := range node.Updates {
			c.Updates = append(c.Updates, params[b])
		}
		if node.Mode != nil && len(node.In) > 0 && node.In[0].Kind == FromValue {
			c.Spread = n.Values[node.In[0].Value].Spread
		}
		for _, v := range node.Out {
			values[v] = p.Values
			c.Out = append(c.Out, p.Values)
			c.Shapes = append(c.Shapes, n.recorded(node, v, len(c.Shapes)))
			p.Values++
		}
		p.Calls = append(p.Calls, c)
	}
	for _, t := range l.Out {
		p.Out, p.Yields = append(p.Out, values[t.Value]), append(p.Yields, n.Values[t.Value].Spread)
	}
	if layer == len(n.Layers)-1 {
		p.Loss = true
		for _, o := range n.Outputs {
			p.Out = append(p.Out, values[o.Arg.Value])
		}
	}
	p.findState()
	return p, nil
}

// where returns a text that describes the place in the module's code that called a node.
func (n *Network) where(node *Node) string {
	text := scopeName(node.Scope)
	if node.Site >= 0 && node.Site < len(n.Graph.Nodes) && n.Graph.Nodes[node.Site].Where != "" {
		text += ", " + n.Graph.Nodes[node.Site].Where
	}
	return text
}

// wherever replaces an operator that needs certain strides by one that accepts any. A tensor that has crossed between
// layers may have other strides than in the trace.
func wherever(op string) string {
	switch op {
	case "aten::view", "aten::_unsafe_view":
		return "aten::reshape"
	case "aten::view_as":
		return "aten::reshape_as"
	}
	return op
}

// findState finds the parameters that one call writes and another call reads. Then it adds each parameter that is
// written together with one of these.
func (p *Program) findState() {
	read := map[int]bool{}
	for _, c := range p.Calls {
		eachParam(c.In, func(i int) { read[i] = read[i] || !slices.Contains(c.Updates, i) })
	}
	for again := true; again; {
		again = false
		for _, c := range p.Calls {
			if !slices.ContainsFunc(c.Updates, func(i int) bool { return read[i] }) {
				continue
			}
			for _, i := range c.Updates {
				if !slices.Contains(p.State, i) {
					p.State, read[i], again = append(p.State, i), true, true
				}
			}
		}
	}
	slices.Sort(p.State)
}

func eachParam(in []Operand, f func(int)) {
	for _, o := range in {
		if o.Kind == FromTensor {
			f(o.Index)
		}
		eachParam(o.List, f)
	}
}

// MarshalText writes a Program. Programs with equal texts compute the same function.
func (p *Program) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

func (p *Program) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "inputs %v, rows of v%d, %d parameters\n", p.Inputs, p.Rows, p.Params)
	for _, c := range p.Calls {
		for i, v := range c.Out {
			fmt.Fprintf(&b, "%sv%d", map[bool]string{true: ", "}[i > 0], v)
		}
		fmt.Fprintf(&b, " = %s(%s)", c.Op, words(c.In))
		if c.List {
			b.WriteString(" list")
		}
		if c.Mode != nil {
			fmt.Fprintf(&b, " mode %d %d site %d rows %v", c.Mode.Train, c.Mode.Rate, c.Site, c.Spread)
		}
		if len(c.Updates) > 0 {
			fmt.Fprintf(&b, " writes %v%s", c.Updates, map[bool]string{true: " always"}[c.Always])
		}
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "yields %v as %v, loss %v\n", p.Out, p.Yields, p.Loss)
	return b.String()
}

// words returns operands as text.
func words(in []Operand) string {
	var all []string
	for _, o := range in {
		switch o.Kind {
		case None:
			all = append(all, "none")
		case FromValue:
			all = append(all, fmt.Sprintf("v%d", o.Index))
		case FromTensor:
			all = append(all, fmt.Sprintf("p%d", o.Index))
		case List:
			all = append(all, "["+words(o.List)+"]")
		case Wrapped:
			all = append(all, "wrapped "+number(o))
		default:
			all = append(all, number(o))
		}
	}
	return strings.Join(all, ", ")
}

func number(o Operand) string {
	switch {
	case o.Kind == Size || o.Kind == Wrapped && o.Literal.Kind == aten.None:
		return o.Size.String()
	case o.Literal.Kind == aten.Int:
		return fmt.Sprint(o.Literal.Int)
	case o.Literal.Kind == aten.Float:
		return fmt.Sprintf("float %v", o.Literal.Float)
	case o.Literal.Kind == aten.Bool:
		return fmt.Sprint(o.Literal.Bool)
	case o.Literal.Kind == aten.Word:
		return fmt.Sprintf("%q", o.Literal.Text)
	case o.Literal.Kind == aten.Device:
		return "device"
	}
	return "none"
}
