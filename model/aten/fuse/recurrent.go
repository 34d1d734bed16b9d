package fuse

import (
	"slices"

	"github.com/millrace-ml/millrace/model/aten/rules"
)

// recurrent fuses LSTMs that begin with zero states and whose final states are not read.
func (f *fuser) recurrent() {
	for i := range f.net.Nodes {
		node := &f.net.Nodes[i]
		if node.Op != "aten::lstm.input" || len(node.In) < 9 {
			continue
		}
		if reason := f.lstm(i, node); reason != "" {
			f.leave(node, "%s", reason)
		}
	}
}

// lstm replaces an LSTM by one of millrace's LSTM operators for each layer and direction. If it cannot, it returns the
// reason.
func (f *fuser) lstm(at int, node *rules.Node) string {
	in := node.In
	layers, ways, front := number(in, 4, none), 1, number(in, 8, 0) != 0
	if number(in, 7, 0) != 0 {
		ways = 2
	}
	rate := 0.0
	if node.Mode != nil {
		rate = number(in, 5, 0)
	}
	weights := in[2].List
	switch {
	case slices.ContainsFunc(node.Out[1:], func(v int) bool { return f.uses[v] > 0 }):
		return "its last state or cell is read too"
	case !f.zeros(in[1]):
		return "its first state or cell is not zero"
	case number(in, 3, 0) != 1 || layers < 1 || len(weights) != 4*ways*int(layers):
		return "it is without biases, or projects its states"
	case in[0].Kind != rules.FromValue || len(f.net.Values[in[0].Value].Dims) != 3 || rate >= 1 || rate < 0:
		return "its input is no batch of sequences, or its dropout drops all"
	case node.Mode == nil && number(in, 5, 0) > 0:
		return "its dropout drops in training and evaluation alike"
	}
	for i := range weights {
		t := f.tensor(weights, i, 2-i%4/2)
		if t == nil || t.Trained && f.reads[t.Name] != 1 {
			return "its weights are computed, or read by others too"
		}
	}
	units := f.tensors[weights[1].Tensor].Shape[1]
	x, of := in[0], *f.net.Values[in[0].Value]
	if !front {
		of = swappedFront(of)
		x = value(f.insert(at, rules.Node{Op: "aten::transpose.int", In: []rules.Arg{x, integer(0), integer(1)}}, of))
	}
	one := of
	one.Grad = one.Grad || f.trains(weights)
	out := func(units int64) rules.Value {
		v := one
		v.Dims = []*rules.Expr{of.Dims[0], of.Dims[1], rules.Constant(units)}
		v.Shape = []int64{of.Shape[0], of.Shape[1], units}
		v.Spread = rules.Spread{Dim: 0, Lead: 1, Tail: 1}
		return v
	}
	for l := range int(layers) {
		if l > 0 && rate > 0 {
			x = value(f.insert(at, rules.Node{Op: "aten::dropout", In: []rules.Arg{x, float(rate), flag(true)},
				Mode: &rules.Mode{Train: 2, Rate: 1}, Site: node.Site<<16 | l}, out(units*int64(ways))))
		}
		var both []rules.Arg
		for w := range ways {
			p := weights[4*(l*ways+w):]
			both = append(both, value(f.insert(at, rules.Node{Op: own + "lstm",
				In: []rules.Arg{x, p[0], p[1], p[2], flag(w == 1), p[3]}}, out(units))))
		}
		if x = both[0]; ways == 2 {
			x = value(f.insert(at, rules.Node{Op: "aten::cat", In: []rules.Arg{list(both...), integer(2)}}, out(2*units)))
		}
	}
	if front {
		f.yield(at, x.Value)
		return ""
	}
	*node = rules.Node{Op: "aten::transpose.int", In: []rules.Arg{x, integer(0), integer(1)}, Out: node.Out[:1],
		Scope: node.Scope, Site: node.Site}
	return ""
}

// yield replaces the node with index `at` by the last node that was inserted before it. The inserted node made value v.
// From now on it makes the first value of the replaced node instead.
func (g *graph) yield(at, v int) {
	last := &g.before[at][len(g.before[at])-1]
	delete(g.net.Values, v)
	last.Out = g.net.Nodes[at].Out[:1]
	g.gone[at] = true
}

// swappedFront returns a value's description with its first two dimensions exchanged.
func swappedFront(v rules.Value) rules.Value {
	v.Dims = []*rules.Expr{v.Dims[1], v.Dims[0], v.Dims[2]}
	v.Shape = []int64{v.Shape[1], v.Shape[0], v.Shape[2]}
	v.Spread = rules.Spread{Dim: 1 - v.Spread.Dim, Lead: 1, Tail: 1}
	return v
}

func (f *fuser) zeros(states rules.Arg) bool {
	return states.Kind == rules.List && !slices.ContainsFunc(states.List, func(a rules.Arg) bool {
		n := f.makes(a)
		return n == nil || base(n.Op) != "zeros" && base(n.Op) != "new_zeros" && base(n.Op) != "zeros_like"
	})
}
