package fuse

import (
	"slices"

	"github.com/millrace-ml/millrace/model/aten/rules"
)

// factor is a loop over `size` elements whose positions differ by `stride`.
type factor struct{ size, stride int64 }

// layout says where the elements of a tensor are in another tensor, which is contiguous. Each dimension is a list of
// loops, the outermost first. So views that merge dimensions have layouts too.
type layout struct {
	dims   [][]factor
	offset int64
	scale  float64 // factor by which the elements are multiplied
}

// plainly returns the trivial layout, in which each element of a contiguous tensor is at its own position.
func plainly(shape []int64) layout {
	l := layout{dims: make([][]factor, len(shape)), scale: 1}
	stride := int64(1)
	for d := len(shape) - 1; d >= 0; d-- {
		l.dims[d] = []factor{{shape[d], stride}}
		stride *= shape[d]
	}
	return l
}

// flat returns the loops over all elements. A loop that continues the one before it is merged with it.
func (l layout) flat() []factor {
	var out []factor
	for _, d := range l.dims {
		for _, one := range d {
			if one.size == 1 {
				continue
			}
			if n := len(out); n > 0 && out[n-1].stride == one.size*one.stride {
				out[n-1] = factor{out[n-1].size * one.size, one.stride}
				continue
			}
			out = append(out, one)
		}
	}
	return out
}

// shaped returns the layout with another shape and with the elements in the same order. It returns false if a dimension
// would end inside a loop.
func (l layout) shaped(shape []int64) (layout, bool) {
	loops := l.flat()
	dims := make([][]factor, len(shape))
	for d, size := range shape {
		for size > 1 {
			if len(loops) == 0 {
				return l, false
			}
			one := loops[0]
			switch {
			case size%one.size == 0:
				dims[d], loops = append(dims[d], one), loops[1:]
				size /= one.size
			case one.size%size == 0:
				dims[d] = append(dims[d], factor{size, one.stride * (one.size / size)})
				loops = append([]factor{{one.size / size, one.stride}}, loops[1:]...)
				size = 1
			default:
				return l, false
			}
		}
	}
	return layout{dims, l.offset, l.scale}, len(loops) == 0
}

// swapped exchanges two dimensions.
func (l layout) swapped(a, b int) (layout, bool) {
	n := len(l.dims)
	if a < 0 {
		a += n
	}
	if b < 0 {
		b += n
	}
	if a < 0 || b < 0 || a >= n || b >= n {
		return l, false
	}
	l.dims = slices.Clone(l.dims)
	l.dims[a], l.dims[b] = l.dims[b], l.dims[a]
	return l, true
}

// narrowed takes `size` elements of dimension d, beginning with element `from`.
func (l layout) narrowed(d int, from, size int64) (layout, bool) {
	if d < 0 {
		d += len(l.dims)
	}
	if d < 0 || d >= len(l.dims) || from < 0 {
		return l, false
	}
	one := layout{dims: [][]factor{l.dims[d]}}.flat()
	if len(one) != 1 || from+size > one[0].size {
		return l, false
	}
	l.dims = slices.Clone(l.dims)
	l.dims[d] = []factor{{size, one[0].stride}}
	l.offset += from * one[0].stride
	return l, true
}

// same says whether two layouts have the same elements in the same order.
func (l layout) same(of layout) bool {
	return l.offset == of.offset && slices.Equal(l.flat(), of.flat())
}

// at returns the shape of a value for a number of rows.
func (g *graph) at(v int, rows int64) ([]int64, bool) {
	x := g.net.Values[v]
	if x.Dims == nil {
		return nil, false
	}
	shape := make([]int64, len(x.Dims))
	for i, d := range x.Dims {
		if d == nil {
			return nil, false
		}
		var err error
		if shape[i], err = d.Eval(rows); err != nil || shape[i] < 1 {
			return nil, false
		}
	}
	return shape, true
}

// step is one value of a chain of views, with its index among the results of its node.
type step struct{ value, element int }

// longest is the largest number of views or operators in a row that are followed.
const longest = 24

// chain returns a value, then the value of which it is a view, and so on. It returns at most `longest` values.
func (g *graph) chain(v int) []step {
	out := []step{{v, 0}}
	for len(out) < longest {
		n := g.makes(value(v))
		if n == nil || !sees[base(n.Op)] || len(n.In) == 0 || n.In[0].Kind != rules.FromValue {
			break
		}
		out[len(out)-1].element = slices.Index(n.Out, v)
		v = n.In[0].Value
		out = append(out, step{v, 0})
	}
	return out
}

// sees lists the operators for which the layout of the result follows from the layout of the input.
var sees = map[string]bool{
	"view": true, "reshape": true, "_unsafe_view": true, "flatten": true, "unflatten": true, "squeeze": true,
	"unsqueeze": true, "view_as": true, "reshape_as": true, "contiguous": true, "clone": true, "alias": true,
	"transpose": true, "swapaxes": true, "swapdims": true, "t": true, "permute": true, "split": true,
	"split_with_sizes": true, "chunk": true, "narrow": true, "slice": true, "select": true, "unbind": true,
	"mul": true, "div": true,
}

// over returns the layout of the first value of a chain within element k of the chain, for a number of rows.
func (g *graph) over(chain []step, k int, rows int64) (layout, bool) {
	shape, ok := g.at(chain[k].value, rows)
	if !ok {
		return layout{}, false
	}
	l := plainly(shape)
	for i := k - 1; i >= 0 && ok; i-- {
		l, ok = g.through(l, chain[i], rows)
	}
	return l, ok
}

// through returns the layout of a node's result, from the layout of its input.
func (g *graph) through(l layout, s step, rows int64) (layout, bool) {
	n := g.makes(value(s.value))
	shape, ok := g.at(s.value, rows)
	if !ok {
		return l, false
	}
	in := n.In
	switch b := base(n.Op); b {
	case "mul", "div":
		x := none
		if len(in) > 1 && len(in) < 3 {
			x = number(in, 1, none)
		}
		if x == none || b == "div" && x == 0 {
			return l, false
		}
		if b == "div" {
			x = 1 / x
		}
		l.scale *= x
		return l, true
	case "contiguous", "clone", "alias":
		return l, true
	case "t":
		if len(l.dims) != 2 {
			return l, false
		}
		return l.swapped(0, 1)
	case "transpose", "swapaxes", "swapdims":
		return l.swapped(int(number(in, 1, none)), int(number(in, 2, none)))
	case "permute":
		return l.permuted(in)
	case "split", "split_with_sizes", "chunk":
		d := int(number(in, 2, 0))
		from := int64(0)
		for _, before := range n.Out[:s.element] {
			front, known := g.at(before, rows)
			if at := place(d, len(front)); known && at >= 0 {
				from += front[at]
			} else {
				return l, false
			}
		}
		return l.taken(d, from, shape)
	case "narrow":
		return l.taken(int(number(in, 1, none)), int64(number(in, 2, none)), shape)
	case "slice":
		if number(in, 4, 1) != 1 {
			return l, false
		}
		return l.taken(int(number(in, 1, 0)), int64(number(in, 2, 0)), shape)
	case "select":
		return l.selected(int(number(in, 1, none)), int64(number(in, 2, none)), shape)
	case "unbind":
		return l.selected(int(number(in, 1, 0)), int64(s.element), shape)
	}
	return l.shaped(shape)
}

// place returns a dimension counted from the front, or -1 if it does not exist.
func place(d, dims int) int {
	if d < 0 {
		d += dims
	}
	if d < 0 || d >= dims {
		return -1
	}
	return d
}

func (l layout) permuted(in []rules.Arg) (layout, bool) {
	order, ok := numbers(in, 1)
	if !ok || len(order) != len(l.dims) {
		return l, false
	}
	dims := make([][]factor, len(order))
	for i, d := range order {
		at := place(int(d), len(order))
		if at < 0 {
			return l, false
		}
		dims[i] = l.dims[at]
	}
	l.dims = dims
	return l, true
}

// taken narrows dimension d to its size in `shape`, beginning with element `from`.
func (l layout) taken(d int, from int64, shape []int64) (layout, bool) {
	at := place(d, len(shape))
	if at < 0 || len(shape) != len(l.dims) {
		return l, false
	}
	return l.narrowed(at, from, shape[at])
}

// selected takes element `from` of dimension d and removes the dimension.
func (l layout) selected(d int, from int64, shape []int64) (layout, bool) {
	l, ok := l.narrowed(d, from, 1)
	if !ok {
		return l, false
	}
	return l.shaped(shape)
}
