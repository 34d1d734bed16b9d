package fuse

import (
	"slices"

	"github.com/millrace-ml/millrace/model/aten/rules"
)

// emitAttention puts millrace's attention in the place of the last node that f.ahead finds. It also inserts nodes that
// rearrange the attention's input and result.
func (f *attention) emitAttention(s *scores, h *heads, from []source) {
	end, last, swap := f.ahead(s, h)
	whole := h.heads * h.width
	like := *f.net.Values[from[0].value] // for its rows and positions; the loop sets its gradient flag
	for _, one := range from {
		like.Grad = like.Grad || f.net.Values[one.value].Grad
	}
	var parts []rules.Arg
	for _, one := range from {
		x := *f.net.Values[one.value]
		arg := value(one.value)
		if one.swap {
			x.Dims = []*rules.Expr{x.Dims[1], x.Dims[0], x.Dims[2]}
			x.Shape, x.Spread = []int64{x.Shape[1], x.Shape[0], x.Shape[2]}, rules.Spread{Dim: 0, Lead: 1, Tail: 1}
			arg = value(f.insert(end, rules.Node{Op: "aten::transpose.int", In: []rules.Arg{arg, integer(0), integer(1)}}, x))
		}
		like.Dims, like.Shape, like.Spread = slices.Clone(x.Dims), slices.Clone(x.Shape), x.Spread
		parts = append(parts, arg)
	}
	qkv := parts[0]
	if len(parts) > 1 {
		all := like
		all.Dims, all.Shape = slices.Clone(like.Dims), slices.Clone(like.Shape)
		all.Dims[2], all.Shape[2] = rules.Constant(3*whole), 3*whole
		qkv = value(f.insert(end, rules.Node{Op: "aten::cat", In: []rules.Arg{list(parts...), integer(2)}}, all))
	}
	like.Dims[2], like.Shape[2] = rules.Constant(whole), whole
	attention := rules.Node{Op: own + "causal_attention", In: []rules.Arg{qkv, integer(h.heads), {}}, Site: s.site}
	if s.rate > 0 {
		attention.In[2], attention.Mode = float(s.rate), &rules.Mode{Train: -1, Rate: 2}
	}
	to := f.net.Values[last]
	if last != s.yields && !swap && alike(to.Dims, like.Dims) {
		attention.Out, attention.Scope = []int{last}, f.net.Nodes[end].Scope
		f.net.Nodes[end] = attention
		return
	}
	y := f.insert(end, attention, like)
	node := &f.net.Nodes[end]
	switch {
	case last == s.yields:
		dims := []*rules.Expr{like.Dims[0], like.Dims[1], rules.Constant(h.heads), rules.Constant(h.width)}
		apart := like
		apart.Dims = dims
		apart.Shape = []int64{like.Shape[0], like.Shape[1], h.heads, h.width}
		y = f.insert(end, rules.Node{Op: "aten::reshape", In: []rules.Arg{value(y), sizes(dims)}}, apart)
		apart.Dims = []*rules.Expr{dims[0], dims[2], dims[1], dims[3]}
		apart.Shape = []int64{like.Shape[0], h.heads, like.Shape[1], h.width}
		y = f.insert(end, rules.Node{Op: "aten::transpose.int", In: []rules.Arg{value(y), integer(1), integer(2)}}, apart)
	case swap:
		turned := like
		turned.Dims = []*rules.Expr{like.Dims[1], like.Dims[0], like.Dims[2]}
		turned.Shape = []int64{like.Shape[1], like.Shape[0], like.Shape[2]}
		turned.Spread = rules.Spread{Dim: 1, Lead: 1, Tail: 1}
		y = f.insert(end, rules.Node{Op: "aten::transpose.int", In: []rules.Arg{value(y), integer(0), integer(1)}}, turned)
	}
	*node = rules.Node{Op: "aten::reshape", In: []rules.Arg{value(y), sizes(to.Dims)}, Out: []int{last}, Scope: node.Scope,
		Site: node.Site}
}

// ahead follows the views after attention. It returns the last view with the order [rows, positions, width] or, if
// `swap` is true, [positions, rows, width]. Dimensions of this view may be merged. If there is no such view, ahead
// returns the node that makes attention's result.
func (f *attention) ahead(s *scores, h *heads) (end, last int, swap bool) {
	end, last = s.at, s.yields
	var behind []step
	for range longest {
		v := s.yields
		if len(behind) > 0 {
			v = behind[len(behind)-1].value
		}
		at := f.reader(v)
		if at < 0 || len(f.net.Nodes[at].Out) != 1 {
			return end, last, swap
		}
		n := &f.net.Nodes[at]
		if b := base(n.Op); !sees[b] || b == "mul" || b == "div" || n.In[0].Kind != rules.FromValue || n.In[0].Value != v {
			return end, last, swap
		}
		behind = append(behind, step{n.Out[0], 0})
		for _, turned := range []bool{false, true} {
			if f.again(behind, h, turned) {
				end, last, swap = at, n.Out[0], turned
				break
			}
		}
	}
	return end, last, swap
}

// again says whether the last view after attention has its elements in the order [rows, positions, width]. If `turned`
// is true, it asks for the order [positions, rows, width] instead. The view must have this order for any number of
// rows.
func (f *attention) again(behind []step, h *heads, turned bool) bool {
	whole := h.heads * h.width
	for _, rows := range []int64{f.net.Graph.Rows, 2*f.net.Graph.Rows + 3} {
		// The result is a view [rows, heads, positions, width] of attention's [rows, positions, width].
		l := layout{scale: 1, dims: [][]factor{{{rows, h.positions * whole}}, {{h.heads, h.width}},
			{{h.positions, whole}}, {{h.width, 1}}}}
		shape, ok := f.at(f.net.Nodes[f.maker[behind[0].value]].In[0].Value, rows)
		if ok {
			l, ok = l.shaped(shape)
		}
		for _, s := range behind {
			if ok {
				l, ok = f.through(l, s, rows)
			}
		}
		want := layout{dims: [][]factor{{{rows, h.positions * whole}}, {{h.positions, whole}}, {{whole, 1}}}}
		if turned {
			want.dims[0], want.dims[1] = want.dims[1], want.dims[0]
		}
		if !ok || !l.same(want) {
			return false
		}
	}
	return true
}
