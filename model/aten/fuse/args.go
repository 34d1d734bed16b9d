package fuse

import (
	"github.com/millrace-ml/millrace/model/aten"
	"github.com/millrace-ml/millrace/model/aten/rules"
)

// value returns an argument that refers to a value.
func value(v int) rules.Arg { return rules.Arg{Kind: rules.FromValue, Value: v} }

func integer(n int64) rules.Arg {
	return rules.Arg{Kind: rules.Literal, Literal: aten.Arg{Kind: aten.Int, Int: n}}
}

func float(x float64) rules.Arg {
	return rules.Arg{Kind: rules.Literal, Literal: aten.Arg{Kind: aten.Float, Float: x}}
}

func flag(on bool) rules.Arg {
	return rules.Arg{Kind: rules.Literal, Literal: aten.Arg{Kind: aten.Bool, Bool: on}}
}

func list(args ...rules.Arg) rules.Arg { return rules.Arg{Kind: rules.List, List: args} }

func sizes(dims []*rules.Expr) rules.Arg {
	l := rules.Arg{Kind: rules.List}
	for _, d := range dims {
		l.List = append(l.List, rules.Arg{Kind: rules.Size, Size: d})
	}
	return l
}

// fixed returns the value of an argument that is a number and does not depend on the rows. A bool counts as 0 or 1.
func fixed(a rules.Arg) (float64, bool) {
	switch {
	case (a.Kind == rules.Size || a.Kind == rules.Wrapped) && a.Size != nil:
		c, ok := a.Size.Const()
		return float64(c), ok
	case a.Kind != rules.Literal && a.Kind != rules.Wrapped:
		return 0, false
	case a.Literal.Kind == aten.Int:
		return float64(a.Literal.Int), true
	case a.Literal.Kind == aten.Float:
		return a.Literal.Float, true
	case a.Literal.Kind == aten.Bool && a.Literal.Bool:
		return 1, true
	}
	return 0, a.Literal.Kind == aten.Bool
}

// number returns argument i as a number. If the argument is left out, number returns its parameter `otherwise`. If the
// argument is not a fixed number, it returns `none`.
func number(in []rules.Arg, i int, otherwise float64) float64 {
	if i < 0 || i >= len(in) || in[i].Kind == rules.None {
		return otherwise
	}
	if x, ok := fixed(in[i]); ok {
		return x
	}
	return none
}

// none marks an argument that is not a fixed number. No operator here has an argument of this size.
const none = -1e300

// numbers returns argument i as integers, if the argument is a list of fixed numbers.
func numbers(in []rules.Arg, i int) ([]int64, bool) {
	if i >= len(in) || in[i].Kind != rules.List {
		return nil, false
	}
	out := make([]int64, len(in[i].List))
	for k, a := range in[i].List {
		x, ok := fixed(a)
		if out[k] = int64(x); !ok {
			return nil, false
		}
	}
	return out, true
}

// all returns true if argument i is a list of `count` numbers, or of one number, and all of these numbers equal `each`.
// It also returns true if the argument is left out.
func all(in []rules.Arg, i, count int, each int64) bool {
	if i >= len(in) {
		return true
	}
	ns, ok := numbers(in, i)
	if !ok || len(ns) != count && len(ns) != 1 {
		return false
	}
	for _, n := range ns {
		if n != each {
			return false
		}
	}
	return true
}

// word returns the text of argument i, or the parameter `otherwise` if the argument is no text.
func word(in []rules.Arg, i int, otherwise string) string {
	if i >= len(in) || in[i].Kind != rules.Literal || in[i].Literal.Kind != aten.Word {
		return otherwise
	}
	return in[i].Literal.Text
}

// tensor returns argument i if it is a tensor of the module with `dims` dimensions, else nil.
func (g *graph) tensor(in []rules.Arg, i, dims int) *aten.Tensor {
	if i >= len(in) || in[i].Kind != rules.FromTensor {
		return nil
	}
	if t := g.tensors[in[i].Tensor]; len(t.Shape) == dims {
		return t
	}
	return nil
}

// absent says whether argument i is left out.
func absent(in []rules.Arg, i int) bool { return i >= len(in) || in[i].Kind == rules.None }

// optional returns argument i, or an empty one if it is left out.
func optional(in []rules.Arg, i int) rules.Arg {
	if i >= len(in) {
		return rules.Arg{}
	}
	return in[i]
}

// shape returns the shape of an argument in the example, or nil if it is unknown.
func (g *graph) shape(a rules.Arg) []int64 {
	switch a.Kind {
	case rules.FromValue:
		return g.net.Values[a.Value].Shape
	case rules.FromTensor:
		return g.tensors[a.Tensor].Shape
	}
	return nil
}

// made returns the node that computes an argument. It returns nil if there is no such node, or if the argument's value
// is read more than once.
func (g *graph) made(a rules.Arg) *rules.Node {
	if a.Kind != rules.FromValue || g.uses[a.Value] != 1 {
		return nil
	}
	return g.makes(a)
}

// makes returns the node that computes an argument; nil if there is none.
func (g *graph) makes(a rules.Arg) *rules.Node {
	if a.Kind != rules.FromValue {
		return nil
	}
	at, ok := g.maker[a.Value]
	if !ok {
		return nil
	}
	return &g.net.Nodes[at]
}
