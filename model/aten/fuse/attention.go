package fuse

import (
	"fmt"
	"math"
	"slices"

	"github.com/millrace-ml/millrace/model/aten/rules"
)

// never is the largest score that is treated as masked out, because softmax turns it to 0.
const never = -1e4

// scores describes attention as a network computes it: softmax(scale QK^T + mask)V for queries Q, keys K and values V.
type scores struct {
	q, k, v  rules.Arg
	turned   bool    // k is transposed: its last dimension is the positions
	scale    float64 // factor of the scores
	blocked  []rules.Arg
	how      []how     // the meaning of each mask in blocked
	by       []float64 // the factor that each mask in blocked is multiplied by
	rate     float64   // dropout rate of the softmax
	site     int
	causal   bool // causal by a flag, without a mask in the graph
	yields   int
	at       int // index of the node with the result
	problems string
}

// how says what the elements of a mask mean.
type how int

const (
	added   how = iota // the elements are added to the scores
	filled             // an element that is true masks its score out
	allowed            // an element that is true keeps its score
)

// attention is the pass that fuses causal self-attention.
type attention struct {
	*fuser
	masks masks
}

// fuse replaces attention by millrace's operator wherever this operator computes the same result.
func (f *attention) fuse() {
	for i := range f.net.Nodes {
		node := &f.net.Nodes[i]
		if len(node.In) == 0 || len(node.Out) == 0 {
			continue
		}
		var s *scores
		switch base(node.Op) {
		case "softmax", "_softmax":
			s = f.written(i, node)
		case "scaled_dot_product_attention", "_scaled_dot_product_attention":
			s = f.called(i, node)
		}
		if s == nil {
			continue
		}
		if s.problems == "" {
			s.problems = f.fuseAttention(s)
		}
		if s.problems != "" {
			f.leave(node, "%s", s.problems)
		}
	}
}

// called recognises a call of PyTorch's own attention operator.
func (f *attention) called(at int, n *rules.Node) *scores {
	in := n.In
	if len(in) < 3 {
		return nil
	}
	causal := 5
	if base(n.Op)[0] == '_' {
		causal = 6
	}
	s := &scores{q: in[0], k: in[1], v: in[2], scale: none, rate: number(in, 4, 0), site: n.Site, yields: n.Out[0],
		causal: number(in, causal, 0) != 0, at: at}
	if shape := f.shape(in[0]); len(shape) > 0 {
		s.scale = 1 / math.Sqrt(float64(shape[len(shape)-1]))
	}
	if causal == 5 {
		s.scale = number(in, 6, s.scale)
	}
	if len(n.Out) > 1 && f.uses[n.Out[1]] > 0 {
		s.problems = "its weights are read too"
	}
	if !absent(in, 3) {
		mask := added
		if in[3].Kind == rules.FromValue && f.net.Values[in[3].Value].DType == "BOOL" ||
			in[3].Kind == rules.FromTensor && f.tensors[in[3].Tensor].DType == "BOOL" {
			mask = allowed
		}
		s.block(in[3], mask, 1)
	}
	return s
}

// written recognises attention that is written out around a softmax; it returns nil for anything else.
func (f *attention) written(at int, n *rules.Node) *scores {
	s := &scores{scale: 1, site: n.Site}
	if !f.scored(s, n.In[0]) {
		return nil
	}
	out := n.Out[0]
	reader := f.reader(out)
	if reader < 0 {
		s.problems = "its weights are read by several"
		return s
	}
	next := &f.net.Nodes[reader]
	if base(next.Op) == "dropout" && next.In[0].Kind == rules.FromValue {
		s.rate, s.site = number(next.In, 1, none), next.Site
		if next.Mode == nil || s.rate >= 1 {
			s.problems = "its dropout drops always, or all"
			return s
		}
		if out = next.Out[0]; f.reader(out) < 0 {
			s.problems = "its weights are read by several"
			return s
		}
		reader = f.reader(out)
		next = &f.net.Nodes[reader]
	}
	if b := base(next.Op); b != "matmul" && b != "bmm" || len(next.In) != 2 || next.In[0].Kind != rules.FromValue ||
		next.In[0].Value != out || next.In[1].Kind != rules.FromValue || next.In[1].Value == out {
		return nil
	}
	rank := len(f.shape(value(out)))
	if d := number(n.In, 1, none); d != -1 && d != float64(rank-1) {
		s.problems = "its softmax is not over the last dimension"
	}
	s.v, s.yields, s.at = next.In[1], next.Out[0], reader
	return s
}

// reader returns the node that reads a value. It returns -1 if the value is not read exactly once, or if only the
// network's output reads it.
func (g *graph) reader(v int) int {
	if g.uses[v] != 1 {
		return -1
	}
	return g.last[v]
}

func (s *scores) block(mask rules.Arg, as how, by float64) {
	s.blocked, s.how, s.by = append(s.blocked, mask), append(s.how, as), append(s.by, by)
}

// scored follows scores backwards to the product of queries and keys. On the way, it records factors and masks in s. It
// returns false if there is no such product.
func (f *attention) scored(s *scores, a rules.Arg) bool {
	for range longest {
		n := f.made(a)
		if n == nil || len(n.In) < 2 {
			return false
		}
		in := n.In
		switch base(n.Op) {
		case "mul", "div":
			x := number(in, 1, none)
			if len(in) != 2 || x == none || x == 0 {
				return false
			}
			if base(n.Op) == "div" {
				x = 1 / x
			}
			s.scale *= x
			a = in[0]
		case "masked_fill":
			if len(in) != 3 {
				return false
			}
			f.hides(s, in[2])
			s.block(in[1], filled, 1)
			a = in[0]
		case "where":
			if len(in) != 3 {
				return false
			}
			as, rest, other := allowed, in[1], in[2]
			if rest.Kind != rules.FromValue || !f.net.Values[rest.Value].Grad {
				as, rest, other = filled, in[2], in[1]
			}
			f.hides(s, other)
			s.block(in[0], as, 1)
			a = rest
		case "add":
			if number(in, 2, 1) != 1 {
				return false
			}
			mask, rest := in[1], in[0]
			if rest.Kind != rules.FromValue || !f.net.Values[rest.Value].Grad {
				mask, rest = rest, mask
			}
			s.block(mask, added, s.scale)
			a = rest
		case "matmul", "bmm":
			s.q, s.k, s.turned = in[0], in[1], true
			return true
		case "baddbmm":
			if len(in) < 3 || number(in, 3, 1) != 1 || number(in, 4, 1) == none {
				return false
			}
			s.block(in[0], added, s.scale)
			s.q, s.k, s.turned = in[1], in[2], true
			s.scale *= number(in, 4, 1)
			return true
		default:
			return false
		}
	}
	return false
}

// hides records a problem unless a mask hides scores completely. The mask sets hidden scores to the argument `a`, which
// must be constant. After multiplication by the factors that follow, these scores must be at most -1e4 (see never).
func (f *attention) hides(s *scores, a rules.Arg) {
	f.masks.known = map[int]*array{}
	x := f.masks.constant(a)
	if x == nil || slices.ContainsFunc(x.data, func(x float32) bool { return !(float64(x)*s.scale <= never) }) {
		s.problems = "its mask sets scores to what may count"
	}
}

// fuseAttention replaces the operators by millrace's attention. If it cannot, it returns the reason.
func (f *attention) fuseAttention(s *scores) string {
	for _, a := range []rules.Arg{s.q, s.k, s.v} {
		if a.Kind != rules.FromValue {
			return "its queries, keys or values are computed otherwise"
		}
	}
	shape := f.net.Values[s.q.Value].Shape
	if n := len(shape); n != 3 && n != 4 {
		return "its queries are not [rows, heads, positions, width]"
	}
	n := len(shape)
	h := &heads{positions: shape[n-2], width: shape[n-1]}
	if reason := f.isCausal(s, h.positions); reason != "" {
		return reason
	}
	if n == 4 {
		h.heads = shape[1]
	} else {
		h.heads = shape[0] / max(1, f.net.Graph.Rows)
	}
	if s.rate < 0 || s.rate >= 1 {
		return "it drops all"
	}
	if _, known := f.at(s.yields, f.net.Graph.Rows); !known {
		return "the sizes of what it yields are not known"
	}
	x, reason := f.sources(s, h)
	if reason != "" {
		return reason
	}
	f.emitAttention(s, h, x)
	return ""
}

// isCausal returns "" if the attention is causal, by its own flag or by all its masks together. Otherwise it returns
// the reason why not.
func (f *attention) isCausal(s *scores, t int64) string {
	if s.causal && len(s.blocked) == 0 {
		return ""
	}
	if len(s.blocked) == 0 {
		return "it is not causal"
	}
	if t*t > largest {
		return fmt.Sprintf("its mask has %d elements, of which nobody looks at", t*t)
	}
	hidden := make([]bool, t*t)
	f.masks.known = map[int]*array{}
	for i, arg := range s.blocked {
		mask := f.masks.constant(arg)
		if mask == nil {
			return "its mask depends on the batch, or is computed by operators that are not known here"
		}
		rank := len(mask.shape)
		if rank < 2 || int64(len(mask.data)) != t*t || mask.shape[rank-1] != t || mask.shape[rank-2] != t {
			return fmt.Sprintf("its mask is %v for %d positions", mask.shape, t)
		}
		for k, x := range mask.data {
			switch {
			case s.how[i] != added:
				hidden[k] = hidden[k] || (x != 0) == (s.how[i] == filled)
			case float64(x)*s.by[i] <= never:
				hidden[k] = true
			case x != 0:
				return "its mask adds numbers to scores that count"
			}
		}
	}
	for i := range t {
		for j := range t {
			if hidden[i*t+j] != (j > i) {
				return "its mask is not causal"
			}
		}
	}
	if s.causal {
		return "its mask is given twice"
	}
	return ""
}

// heads holds the number of heads of an attention, its positions, and the width of a head.
type heads struct{ heads, positions, width int64 }

// source is a tensor that contains queries, keys or values. Its shape is [rows, positions, width] or, if `swap` is
// true, [positions, rows, width].
type source struct {
	value  int
	swap   bool
	offset int64
	wide   int64
	scale  float64
}
