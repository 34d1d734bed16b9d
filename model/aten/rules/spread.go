package rules

// Spread says where the rows of a call are in a tensor. One dimension of the tensor, Dim, has Lead x rows x Tail
// elements, in which Tail varies fastest. Between layers a tensor has its rows first, as a dimension of their own. Its
// other dimensions follow. If Lead or Tail is more than 1, the tensor then has the two dimensions Lead and Tail in
// place of Dim.
type Spread struct {
	Dim        int // the dimension, or NoRows, or RowsUnknown
	Lead, Tail int64
}

// NoRows is the Dim of a tensor without rows, or with rows that an operator has mixed up. RowsUnknown is the Dim of a
// tensor whose sizes do not tell where its rows are.
const (
	NoRows      = -1
	RowsUnknown = -2
)

var nowhere, unknown = Spread{Dim: NoRows}, Spread{Dim: RowsUnknown}

// Alone says whether the rows have a dimension of their own.
func (s Spread) Alone() bool { return s.Lead == 1 && s.Tail == 1 }

var (
	// reshaping lists the operators that keep the order of elements.
	reshaping = set(`view reshape flatten unflatten _unsafe_view view_as reshape_as squeeze unsqueeze _reshape_alias`)
	// scrambling lists operators that mix up rows which share a dimension with other elements.
	scrambling = set("flip roll gather index_select index_put scatter scatter_add index_add index_fill index_copy")
	// keeping lists the operators that keep rows in order and are not in the lists `alike`, `broadcast`, `samplewise`,
	// `moved` or `reduced`.
	keeping = set(`linear matmul mm bmm addmm baddbmm embedding cat stack chunk split split_with_sizes unbind expand
		expand_as`)
)

// spread finds where the rows are in a node's result.
func (f *facts) spread(n *Node, v *Value) Spread {
	dim, per := rowsIn(v.Dims)
	if dim == NoRows && (v.Dims != nil || !v.Batch) {
		return nowhere
	}
	if dim < 0 {
		return unknown
	}
	b := base(n.Op)
	if reshaping[b] {
		return f.reshaped(n, v, dim, per)
	}
	if per > 1 && (scrambling[b] ||
		!alike[b] && !broadcast[b] && !samplewise[b] && !moved[b] && !reduced[b] && !keeping[b]) {
		return nowhere
	}
	found := Spread{dim, 0, 0}
	if !f.joined(n.In, per, &found) || per > 1 && found.Lead == 0 {
		return nowhere
	}
	if found.Lead == 0 { // no argument has rows: the result is made only from sizes
		found.Lead, found.Tail = 1, 1
	}
	return found
}

// joined says whether all argument tensors with rows have them in the same place, and records the place in `found`.
func (f *facts) joined(args []Arg, per int64, found *Spread) bool {
	for _, a := range args {
		switch a.Kind {
		case List:
			if !f.joined(a.List, per, found) {
				return false
			}
		case FromValue:
			x := f.net.Values[a.Value]
			dim, other := rowsIn(x.Dims)
			if dim < 0 {
				continue
			}
			s := x.Spread
			if s.Dim < 0 || other != per || found.Lead > 0 && (s.Lead != found.Lead || s.Tail != found.Tail) {
				return false
			}
			found.Lead, found.Tail = s.Lead, s.Tail
		}
	}
	return true
}

// reshaped follows the rows through a view. A view does not change how many elements come before the rows.
func (f *facts) reshaped(n *Node, v *Value, dim int, per int64) Spread {
	x := f.describe(n.In[0])
	if x.Spread.Dim < 0 {
		return nowhere
	}
	front, before := size(x.Dims[:x.Spread.Dim])*x.Spread.Lead, size(v.Dims[:dim])
	if front == 0 || before == 0 || front%before != 0 || per%(front/before) != 0 {
		return nowhere
	}
	return Spread{dim, front / before, per / (front / before)}
}

// rowsIn finds the dimension whose size depends on the rows, if there is only one. `per` is the number of its elements
// for each row.
func rowsIn(dims []*Expr) (dim int, per int64) {
	dim = NoRows
	for d, e := range dims {
		if e == nil {
			return RowsUnknown, 0
		}
		c, k, ok := monomial(e)
		switch {
		case !ok || k > 1 || k == 1 && (dim >= 0 || c < 1):
			return RowsUnknown, 0
		case k == 1:
			dim, per = d, c
		}
	}
	return dim, per
}

// size returns the product of sizes that do not depend on the rows, or 0 if it is too large.
func size(dims []*Expr) int64 {
	n := int64(1)
	for _, d := range dims {
		c, _ := d.Const()
		var err error
		if n, err = apply('*', n, c); err != nil {
			return 0
		}
	}
	return n
}

// sample returns the shape of one row of a value, as a layer passes it to the next one.
func (v *Value) sample() []int64 {
	shape := []int64{}
	for d, e := range v.Dims {
		if d != v.Spread.Dim {
			c, _ := e.Const()
			shape = append(shape, c)
		} else if !v.Spread.Alone() {
			shape = append(shape, v.Spread.Lead, v.Spread.Tail)
		}
	}
	return shape
}
