package rules

import (
	"slices"
	"strings"
)

// Recorded is the shape of a value in the trace. Once is for the example's number of rows, Twice for twice that number.
type Recorded struct {
	Once, Twice []int64 // nil: unknown
	Fixed       []bool  // by dimension: the size is the same for every number of rows from the example's number on
}

// Agrees says whether a tensor's shape fits the recorded shape. The argument `rows` is the number of rows of the
// tensor's call, and `example` is the number of rows of the recorded example. With as many rows as the example, all
// sizes must equal Once. With fewer rows, or if Twice is unknown, only the number of dimensions is compared. With twice
// as many rows, all sizes must equal Twice. With any other number of rows, only the sizes that Fixed marks are
// compared. Other sizes may change even if they are equal in Once and Twice, for instance if rows form groups of 16.
func (r Recorded) Agrees(shape []int64, rows, example int64) bool {
	switch {
	case r.Once == nil:
		return true
	case len(shape) != len(r.Once):
		return false
	case rows == example:
		return slices.Equal(shape, r.Once)
	case r.Twice == nil || rows < example:
		return true
	case rows == 2*example:
		return slices.Equal(shape, r.Twice)
	}
	for i, d := range shape {
		if i < len(r.Fixed) && r.Fixed[i] && d != r.Once[i] {
			return false
		}
	}
	return true
}

// countless lists further operators whose results have sizes that depend on the contents of tensors. The method named
// `counts` recognises the other such operators.
var countless = set(`bincount one_hot argwhere _pack_padded_sequence _pad_packed_sequence tensor_split`)

// loose says whether the sizes of a node's result may depend on the contents of tensors.
func (f *facts) loose(n *Node) bool {
	b := base(n.Op)
	unknown := func(a Arg) bool { return a.Kind != None && f.describe(a).DType == "" }
	return countless[b] || f.counts(n) || b == "index" && len(n.In) > 1 && slices.ContainsFunc(n.In[1].List, unknown)
}

// recorded returns the shape that a node's k-th value has in the trace. It returns nothing if the node now has another
// layout than in the trace, if a mode or an engine may leave the value out, or if the sizes may depend on the contents
// of tensors.
func (n *Network) recorded(of *Node, value, k int) Recorded {
	v := n.Values[value]
	others := of.Mode != nil || strings.Contains(of.Op, "scaled_dot_product")
	if v.Loose || k > 0 && others || !n.laid(v, v.Shape, n.Graph.Rows) {
		return Recorded{}
	}
	r := Recorded{Once: v.Shape}
	if n.laid(v, v.Double, 2*n.Graph.Rows) {
		r.Twice = v.Double
	}
	for _, d := range v.Dims {
		fixed := false
		if d != nil {
			_, fixed = d.Const()
		}
		r.Fixed = append(r.Fixed, fixed)
	}
	return r
}

// laid says whether a shape of a value fits the known sizes of the value for a number of rows.
func (n *Network) laid(v *Value, shape []int64, rows int64) bool {
	if shape == nil || v.Dims != nil && len(v.Dims) != len(shape) {
		return false
	}
	for i, d := range v.Dims {
		if d == nil {
			continue
		}
		if size, err := d.Eval(rows); err != nil || size != shape[i] {
			return false
		}
	}
	return true
}
