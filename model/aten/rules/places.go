package rules

import "slices"

// strides returns, for each dimension of a contiguous tensor, the distance between neighbours.
func strides(shape []int64) []int64 {
	s, step := make([]int64, len(shape)), int64(1)
	for d := len(shape) - 1; d >= 0; d-- {
		s[d], step = step, step*shape[d]
	}
	return s
}

// from returns the index i of a dimension of `length` elements, counted from the front. A negative i counts from the
// end.
func from(i, length int64) int64 {
	if i < 0 {
		i += length
	}
	return i
}

// strided records that a value consists of elements of p. They have the given shape and the strides `apart`, and the
// first one is at `offset`. It records nothing if some elements would be outside of p, or if there are too many.
func (f *follower) strided(value int, p placed, shape, apart []int64, offset int64) {
	count := numel(shape)
	if len(apart) != len(shape) || count > mostPlaced {
		return
	}
	last := offset
	for d, n := range shape {
		if n < 1 || apart[d] < 0 {
			return
		}
		last += (n - 1) * apart[d]
	}
	if offset < 0 || last >= int64(len(p.at)) {
		return
	}
	at, where := make([]int32, 0, int(count)), make([]int64, len(shape))
	for range int(count) {
		i := offset
		for d, w := range where {
			i += w * apart[d]
		}
		at = append(at, p.at[i])
		for d := len(shape) - 1; d >= 0; d-- {
			if where[d]++; where[d] < shape[d] {
				break
			}
			where[d] = 0
		}
	}
	f.put(value, placed{p.input, slices.Clone(shape), at})
}

// expanded returns the strides with which a tensor of one shape is expanded to another shape.
func expanded(of, to []int64) []int64 {
	if len(of) > len(to) {
		return nil
	}
	s, own := make([]int64, len(to)), strides(of)
	for d := range of {
		if back := len(to) - len(of) + d; of[d] == to[back] {
			s[back] = own[d]
		} else if of[d] != 1 {
			return nil
		}
	}
	return s
}

// dim reads an argument that is the number of a dimension.
func (f *follower) dim(n *Node, arg, rank int) (int, bool) {
	d, ok := f.number(n, arg)
	d = from(d, int64(rank))
	return int(d), ok && d >= 0 && d < int64(rank)
}

// sliced records the elements of a slice or a narrow.
func (f *follower) sliced(n *Node, b string, p placed, shape []int64) {
	d, ok := f.dim(n, 1, len(p.shape))
	if !ok {
		return
	}
	start, given := f.number(n, 2)
	if !given && (b == "narrow" || len(n.In) > 2 && n.In[2].Kind != None) {
		return
	}
	apart := strides(p.shape)
	offset := min(max(from(start, p.shape[d]), 0), p.shape[d]) * apart[d]
	if step, given := f.number(n, 4); given && b == "slice" {
		apart[d] *= step
	}
	f.strided(n.Out[0], p, shape, apart, offset)
}

// order returns the dimensions of a view in their new order; nil if it is unknown.
func (f *follower) order(n *Node, b string, rank int) []int {
	order := make([]int, rank)
	for i := range order {
		order[i] = i
	}
	switch b {
	case "t":
		slices.Reverse(order)
	case "permute":
		if len(n.In) < 2 || len(n.In[1].List) != rank {
			return nil
		}
		for i, a := range n.In[1].List {
			d, ok := index(a, rank)
			if !ok {
				return nil
			}
			order[i] = d
		}
	default:
		i, ok := f.dim(n, 1, rank)
		j, fine := f.dim(n, 2, rank)
		if !ok || !fine {
			return nil
		}
		order[i], order[j] = order[j], order[i]
	}
	return order
}

// parts records the elements of each tensor in a list. These tensors are the parts into which an operator cuts a tensor
// along one dimension.
func (f *follower) parts(n *Node, b string, p placed) {
	arg := map[string]int{"unbind": 1, "chunk": 2, "split": 2, "split_with_sizes": 2}[b]
	if arg == 0 {
		return
	}
	d := 0
	if arg < len(n.In) {
		var ok bool
		if d, ok = f.dim(n, arg, len(p.shape)); !ok {
			return
		}
	}
	offset := int64(0)
	for _, v := range n.Out {
		shape, apart, step := f.net.Values[v].Shape, strides(p.shape), int64(1)
		if b == "unbind" {
			apart = slices.Delete(apart, d, d+1)
		} else if len(shape) == len(p.shape) {
			step = shape[d]
		}
		if shape == nil {
			return
		}
		f.strided(v, p, shape, apart, offset*strides(p.shape)[d])
		offset += step
	}
}
