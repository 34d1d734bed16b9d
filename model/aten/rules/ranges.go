package rules

import (
	"fmt"
	"slices"
)

// Range says which whole numbers the elements of an input may be, because an operator takes them as indices.
type Range struct {
	Least, Most int64
	Skip        *int64 // one more allowed number, which the operator ignores; nil: none
	At          []int  // positions in an input's row that the range applies to, ascending; nil: all
	Only        bool   // the input is only read as indices and compared; nothing is calculated from it
	For         string // the reason: "aten::embedding in tokens takes it as an index into tokens.weight of shape [50 8]"
}

// mostPlaced is the largest number of elements that are followed through a graph, in all values together.
const mostPlaced = 1 << 24

// placed describes a value that consists of elements of an input. The list `at` has their positions in the whole input
// of the example, row after row.
type placed struct {
	input int
	shape []int64
	at    []int32
}

// follower follows the elements of inputs through operators that only move them.
type follower struct {
	net    *Network
	places map[int]placed
	total  int
	found  map[int][]Range
	mixed  map[int]bool // inputs that are also used in calculations
}

// Ranges returns the ranges of each input, by its value. An element has a range if, in every row, it reaches an
// operator as an index without any calculation in between.
func (n *Network) Ranges() map[int][]Range {
	f := &follower{net: n, places: map[int]placed{}, found: map[int][]Range{},
		mixed: map[int]bool{}}
	for _, in := range n.Graph.Inputs {
		if count := numel(in.Shape); counts(in.DType) && count <= mostPlaced {
			at := make([]int32, int(count))
			for i := range at {
				at[i] = int32(i)
			}
			f.put(in.Value, placed{in.Value, in.Shape, at})
		}
	}
	for i := range n.Nodes {
		node := &n.Nodes[i]
		indices := f.use(node)
		moved := f.move(node)
		eachValue(node.In, func(v int) {
			if p, known := f.places[v]; known && !moved && !slices.Contains(indices, v) && !compared[base(node.Op)] {
				f.mixed[p.input] = true
			}
		})
	}
	for input, ranges := range f.found {
		for i := range ranges {
			ranges[i].Only = !f.mixed[input]
		}
	}
	return f.found
}

func (f *follower) put(value int, p placed) {
	if f.total += len(p.at); f.total <= mostPlaced {
		f.places[value] = p
	}
}

// number returns the value of an argument that is a number. If the argument depends on the number of rows, number
// returns its value for the example's number of rows.
func (f *follower) number(n *Node, arg int) (int64, bool) {
	if arg >= len(n.In) || n.In[arg].Kind != Size {
		return 0, false
	}
	v, err := n.In[arg].Size.Eval(f.net.Graph.Rows)
	return v, err == nil
}

// use records the ranges of elements that a node takes as indices, and returns the values with those elements.
func (f *follower) use(n *Node) (indices []int) {
	x, is := IndexedBy(n.Op)
	if !is || x.Index >= len(n.In) {
		return nil
	}
	number := func(arg int) (int64, bool) { return f.number(n, arg) }
	if !x.Listed {
		if f.bound(n, x, n.In[x.Index], func(rank int) int { return x.DimOf(rank, number) }, x.Skipped(number)) {
			indices = append(indices, n.In[x.Index].Value)
		}
		return indices
	}
	for d, of := range n.In[x.Index].List {
		if f.bound(n, x, of, func(rank int) int { return min(d, rank-1) }, nil) {
			indices = append(indices, of.Value)
		}
		if f.mayMask(of) {
			break // after a mask, the position of an index does not say its dimension
		}
	}
	return indices
}

// mayMask says whether an index may be a mask of several dimensions. Such a mask replaces one index for each of its
// dimensions.
func (f *follower) mayMask(a Arg) bool {
	return len(f.net.shape(a)) > 1 && (a.Kind != FromValue || !counts(f.net.Values[a.Value].DType))
}

// bound records the range of an operator's index, and returns whether there is one.
func (f *follower) bound(n *Node, x Indexed, index Arg, dimOf func(rank int) int, skip *int64) bool {
	if index.Kind != FromValue {
		return false
	}
	p, known := f.places[index.Value]
	if !known {
		return false
	}
	size, name, ok := f.size(n.In[x.Of], dimOf)
	if !ok {
		return false
	}
	at, ok := f.inEveryRow(p)
	if !ok {
		return false
	}
	if x.Ignored > 0 {
		name = fmt.Sprintf("%d classes", size)
	}
	r := Range{Skip: skip, At: at, For: fmt.Sprintf("%s in %s takes it as an index into %s", n.Op,
		scopeName(n.Scope), name)}
	r.Least, r.Most = x.Range(size)
	f.found[p.input] = append(f.found[p.input], r)
	return true
}

// size returns the size of an argument's indexed dimension, if it does not depend on the rows. It also describes the
// argument.
func (f *follower) size(of Arg, dimOf func(rank int) int) (int64, string, bool) {
	switch of.Kind {
	case FromTensor:
		shape := f.net.shape(of)
		if d := dimOf(len(shape)); d >= 0 {
			return shape[d], fmt.Sprintf("%s of shape %v", of.Tensor, shape), true
		}
	case FromValue:
		dims := f.net.Values[of.Value].Dims
		if d := dimOf(len(dims)); d >= 0 && dims[d] != nil {
			if n, fixed := dims[d].Const(); fixed {
				return n, fmt.Sprintf("%d elements", n), true
			}
		}
	}
	return 0, "", false
}

// inEveryRow returns the positions in a row of the input whose elements p contains for every row; nil means all
// positions. It returns false if there is no such position.
func (f *follower) inEveryRow(p placed) (at []int, ok bool) {
	rows := int(f.net.Graph.Rows)
	var each int
	for _, in := range f.net.Graph.Inputs {
		if in.Value == p.input {
			each = int(numel(in.Shape)) / rows
		}
	}
	seen := make([]bool, rows*each)
	for _, i := range p.at {
		seen[i] = true
	}
	for i := range each {
		all := true
		for row := range rows {
			all = all && seen[row*each+i]
		}
		if all {
			at = append(at, i)
		}
	}
	if len(at) == each {
		return nil, true
	}
	return at, len(at) > 0
}

// move records which elements the results of a node have, if the node only moves elements; otherwise it returns false.
func (f *follower) move(n *Node) bool {
	f.moved(n)
	return len(n.Out) > 0 && !slices.ContainsFunc(n.Out, func(v int) bool { return f.places[v].at == nil })
}

func (f *follower) moved(n *Node) {
	if len(n.In) == 0 || n.In[0].Kind != FromValue || len(n.Updates) > 0 {
		return
	}
	p, known := f.places[n.In[0].Value]
	if !known {
		return
	}
	b := base(n.Op)
	if n.List {
		f.parts(n, b, p)
		return
	}
	if len(n.Out) != 1 {
		return
	}
	out := f.net.Values[n.Out[0]]
	if out.Shape == nil || !counts(out.DType) {
		return
	}
	switch {
	case reshaping[b] || maybe[b] && b != "einsum" && b != "sum_to_size" || b == "clone" || b == "detach" || b == "alias":
		if numel(out.Shape) == float64(len(p.at)) {
			f.put(n.Out[0], placed{p.input, out.Shape, p.at})
		}
	case b == "expand" || b == "expand_as" || b == "broadcast_to":
		f.strided(n.Out[0], p, out.Shape, expanded(p.shape, out.Shape), 0)
	case b == "select":
		if d, ok := f.dim(n, 1, len(p.shape)); ok {
			if i, ok := f.number(n, 2); ok {
				apart := strides(p.shape)
				f.strided(n.Out[0], p, out.Shape, slices.Delete(slices.Clone(apart), d, d+1), from(i, p.shape[d])*apart[d])
			}
		}
	case b == "slice" || b == "narrow":
		f.sliced(n, b, p, out.Shape)
	case b == "transpose" || b == "swapaxes" || b == "swapdims" || b == "t" || b == "permute":
		if order := f.order(n, b, len(p.shape)); order != nil {
			s := make([]int64, len(order))
			for i, d := range order {
				s[i] = strides(p.shape)[d]
			}
			f.strided(n.Out[0], p, out.Shape, s, 0)
		}
	}
}
