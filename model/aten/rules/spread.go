package rules

// Spread says how the rows of a call lie in a tensor: along a dimension of Lead x rows x Tail elements, the last of
// which run fastest. What is given from layer to layer has the rows first, and then its other dimensions; where that
// one has more than the rows, Lead and Tail are in its place.
type Spread struct {
	Dim        int // -1: none, or nobody can tell
	Lead, Tail int64
}

var nowhere = Spread{Dim: -1}

// Alone says whether the rows have a dimension of their own.
func (s Spread) Alone() bool { return s.Lead == 1 && s.Tail == 1 }

// reshaping are the operators that keep the order of elements.
var reshaping = set(`view reshape flatten unflatten _unsafe_view view_as reshape_as squeeze unsqueeze _reshape_alias`)

// spread finds the rows of a value that a node yields.
func (w *walker) spread(n *Node, v *Value) Spread {
	dim, per := rowsIn(v.Dims)
	if dim < 0 {
		return nowhere
	}
	if per == 1 {
		return Spread{dim, 1, 1}
	}
	for _, a := range n.In {
		if a.Kind != FromValue {
			continue
		}
		x := w.net.Values[a.Value]
		if x.Spread.Dim < 0 {
			continue
		}
		if _, same := rowsIn(x.Dims); same == per {
			return Spread{dim, x.Spread.Lead, x.Spread.Tail}
		}
		if reshaping[base(n.Op)] {
			// As many elements lie in front of a row as did before.
			front, before := size(x.Dims[:x.Spread.Dim])*x.Spread.Lead, size(v.Dims[:dim])
			if before > 0 && front%before == 0 && per%(front/before) == 0 && front > 0 {
				return Spread{dim, front / before, per / (front / before)}
			}
		}
		return nowhere
	}
	return nowhere
}

// rowsIn finds the only dimension that is the rows, per times.
func rowsIn(dims []*Expr) (dim int, per int64) {
	dim = -1
	for d, e := range dims {
		if e == nil {
			return -1, 0
		}
		c, k, ok := monomial(e)
		switch {
		case !ok || k > 1 || k == 1 && (dim >= 0 || c < 1):
			return -1, 0
		case k == 1:
			dim, per = d, c
		}
	}
	return dim, per
}

// size is the product of sizes that do not depend on the rows; 0 where it is too large.
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

// sample is the shape of one row of a value, as layers give it on.
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
