package fuse

import (
	"fmt"
	"math"

	"github.com/millrace-ml/millrace/model/aten/rules"
)

// sources finds the tensors from which queries, keys and values are taken as views: one tensor with all three, or a
// tensor for each.
func (f *attention) sources(s *scores, h *heads) ([]source, string) {
	var of [3][]source
	for i, a := range []rules.Arg{s.q, s.k, s.v} {
		if of[i] = f.origins(a.Value, h, s.turned && i == 1); len(of[i]) == 0 {
			return nil, "its queries, keys and values are not heads of [rows, positions, width]"
		}
	}
	wanted := 1 / math.Sqrt(float64(h.width))
	right := func(q, k, v source) bool {
		return math.Abs(s.scale*q.scale*k.scale-wanted) <= 1e-6*wanted && v.scale == 1
	}
	whole := h.heads * h.width
	scaled := false
	for _, q := range of[0] {
		for _, k := range of[1] {
			for _, v := range of[2] {
				if !right(q, k, v) {
					continue
				}
				scaled = true
				if q.value == k.value && k.value == v.value && q.wide == 3*whole && q.offset == 0 && k.offset == whole &&
					v.offset == 2*whole && q.swap == k.swap && k.swap == v.swap {
					return []source{q}, ""
				}
			}
		}
	}
	for _, q := range of[0] {
		for _, k := range of[1] {
			for _, v := range of[2] {
				if right(q, k, v) && q.wide == whole && k.wide == whole && v.wide == whole {
					return []source{q, k, v}, ""
				}
			}
		}
	}
	if !scaled {
		return nil, fmt.Sprintf("its scores are not scaled by 1/sqrt(%d)", h.width)
	}
	return nil, "its queries, keys and values lie otherwise"
}

// origins finds the tensors from which a tensor of heads is taken as a view. They have the shape [rows, positions,
// width] or [positions, rows, width].
func (f *attention) origins(v int, h *heads, turned bool) []source {
	chain := f.chain(v)
	var found []source
	for k := range chain {
		x := f.net.Values[chain[k].value]
		if len(x.Dims) != 3 || x.DType != "F32" && x.DType != "F64" {
			continue
		}
		for _, swap := range []bool{false, true} {
			one := source{value: chain[k].value, swap: swap}
			if f.heads(&one, chain, k, h, turned) {
				found = append(found, one)
				break
			}
		}
	}
	return found
}

// heads says whether element k of a chain is the tensor from which the heads are taken, for any number of rows.
func (f *attention) heads(s *source, chain []step, k int, h *heads, turned bool) bool {
	for _, rows := range []int64{f.net.Graph.Rows, 2*f.net.Graph.Rows + 3} {
		shape, ok := f.at(s.value, rows)
		if !ok {
			return false
		}
		got, ok := f.over(chain, k, rows)
		r, t := 0, 1
		if s.swap {
			r, t = 1, 0
		}
		if !ok || shape[r] != rows || shape[t] != h.positions {
			return false
		}
		wide := shape[2]
		perRow, perPosition := h.positions*wide, wide
		if s.swap {
			perRow, perPosition = wide, rows*wide
		}
		want := layout{offset: got.offset, dims: [][]factor{{{rows, perRow}}, {{h.heads, h.width}},
			{{h.positions, perPosition}}, {{h.width, 1}}}}
		if turned {
			want.dims[2], want.dims[3] = want.dims[3], want.dims[2]
		}
		front, ok := f.at(chain[0].value, rows)
		last, before := h.width, h.positions
		if turned {
			last, before = before, last
		}
		n := len(front)
		if !ok || n != 3 && n != 4 || front[n-1] != last || front[n-2] != before || n == 3 && front[0] != rows*h.heads ||
			n == 4 && (front[0] != rows || front[1] != h.heads) || !got.same(want) {
			return false
		}
		s.offset, s.wide, s.scale = got.offset, wide, got.scale
	}
	return true
}
