package rules

import "slices"

var (
	moved   = set("transpose swapaxes swapdims t permute unsqueeze squeeze select slice narrow")
	reduced = set("mean sum amax amin argmax argmin any all max min prod logsumexp norm linalg_vector_norm var std")
)

// movedSizes returns the sizes of a view that moves, adds, removes or shortens dimensions.
func (f *facts) movedSizes(b string, n *Node, x []*Expr) []*Expr {
	if x == nil {
		return nil
	}
	dims := slices.Clone(x)
	at := func(i, rank int) (int, bool) {
		if i >= len(n.In) {
			return 0, false
		}
		return index(n.In[i], rank)
	}
	switch b {
	case "t":
		slices.Reverse(dims)
		return dims
	case "transpose", "swapaxes", "swapdims":
		i, ok := at(1, len(x))
		j, fine := at(2, len(x))
		if !ok || !fine {
			return nil
		}
		dims[i], dims[j] = dims[j], dims[i]
		return dims
	case "permute":
		if len(n.In) < 2 || len(n.In[1].List) != len(x) {
			return nil
		}
		for i, a := range n.In[1].List {
			j, ok := index(a, len(x))
			if !ok {
				return nil
			}
			dims[i] = x[j]
		}
		return dims
	case "unsqueeze":
		if i, ok := at(1, len(x)+1); ok {
			return slices.Insert(dims, i, constant(1))
		}
		return nil
	case "squeeze":
		i, ok := at(1, len(x))
		if !ok || x[i] == nil {
			return nil
		}
		if isOne(x[i]) {
			return slices.Delete(dims, i, i+1)
		}
		return dims
	}
	i, ok := at(1, len(x))
	if !ok {
		return nil
	}
	switch b {
	case "select":
		return slices.Delete(dims, i, i+1)
	case "narrow":
		if len(n.In) < 4 || n.In[3].Kind != Size {
			return nil
		}
		dims[i] = n.In[3].Size
		return dims
	}
	dims[i] = sliced(n.In, x[i])
	return dims
}

// sliced returns the size of a slice, or nil if it is unknown.
func sliced(in []Arg, of *Expr) *Expr {
	if of == nil {
		return nil
	}
	start, end, step := int64(0), int64(1<<62), int64(1)
	for i, to := range []*int64{&start, &end, &step} {
		if i+2 >= len(in) || in[i+2].Kind == None {
			continue
		}
		if in[i+2].Kind != Size {
			return nil
		}
		c, fixed := in[i+2].Size.Const()
		if !fixed {
			if _, whole := of.Const(); i == 1 && start == 0 && (whole || in[i+2].Size.String() == of.String()) &&
				(len(in) < 5 || in[4].Kind == Size && isOne(in[4].Size)) {
				return in[i+2].Size // the slice begins at 0, so its end is its size
			}
			return nil
		}
		*to = c
	}
	size, fixed := of.Const()
	if !fixed {
		if start == 0 && step == 1 && end >= 1<<40 {
			return of
		}
		return nil
	}
	for _, e := range []*int64{&start, &end} {
		if *e < 0 {
			*e += size
		}
		*e = min(max(*e, 0), size)
	}
	if step < 1 {
		return nil
	}
	return constant(max(0, (end-start+step-1)/step))
}

// reducedSizes returns the sizes of a reduction over some dimensions.
func (f *facts) reducedSizes(b string, n *Node, x []*Expr) []*Expr {
	if x == nil {
		return nil
	}
	at := 1
	if b == "norm" || b == "linalg_vector_norm" {
		at = 2
	}
	if len(n.In) <= at || n.In[at].Kind == None {
		return []*Expr{}
	}
	list := n.In[at].List
	if n.In[at].Kind == Size {
		list = n.In[at : at+1]
	} else if n.In[at].Kind != List {
		if b == "mean" || b == "sum" {
			return []*Expr{} // the argument is not a list of dimensions, but the type of the result
		}
		return nil
	}
	keep := literalBool(n.In, at+1, false)
	if b == "var" || b == "std" {
		keep = literalBool(n.In, at+2, false)
	}
	gone := map[int]bool{}
	for _, a := range list {
		i, ok := index(a, len(x))
		if !ok {
			return nil
		}
		gone[i] = true
	}
	dims := []*Expr{}
	for i, d := range x {
		switch {
		case len(list) > 0 && !gone[i]:
			dims = append(dims, d)
		case keep:
			dims = append(dims, constant(1))
		}
	}
	return dims
}

// multiplied returns the sizes of a product of matrices.
func (f *facts) multiplied(b string, n *Node) []*Expr {
	in := n.In
	if b == "addmm" || b == "baddbmm" {
		in = in[1:]
	}
	if len(in) < 2 || (in[0].Kind != FromValue && in[0].Kind != FromTensor) {
		return nil
	}
	x, y := f.describe(in[0]).Dims, f.describe(in[1]).Dims
	if len(x) == 0 || len(y) == 0 {
		return nil
	}
	if b == "linear" {
		if len(y) != 2 {
			return nil
		}
		return append(slices.Clone(x[:len(x)-1]), y[0])
	}
	if len(x) < 2 || len(y) < 2 {
		return nil
	}
	batch := make([]*Expr, max(len(x), len(y))-2)
	for i := range batch {
		batch[i] = constant(1)
		for _, m := range [][]*Expr{x, y} {
			at := i - (len(batch) - (len(m) - 2))
			if at < 0 {
				continue
			}
			if m[at] == nil {
				batch[i] = nil
			} else if batch[i] != nil && isOne(batch[i]) {
				batch[i] = m[at]
			}
		}
	}
	return append(batch, x[len(x)-2], y[len(y)-1])
}

// regrouped returns the sizes of a result in which an operator joins or splits dimensions or tensors.
func (f *facts) regrouped(b string, n *Node, x []*Expr, k int, v *Value) []*Expr {
	at := func(i, otherwise, rank int) (int, bool) {
		if i >= len(n.In) {
			return otherwise, rank > 0
		}
		return index(n.In[i], rank)
	}
	switch b {
	case "flatten":
		i, ok := at(1, 0, len(x))
		j, fine := at(2, len(x)-1, len(x))
		if !ok || !fine || j < i {
			return nil
		}
		e := constant(1)
		for _, d := range x[i : j+1] {
			e = product(e, d)
		}
		return slices.Concat(x[:i], []*Expr{e}, x[j+1:])
	case "unflatten":
		i, ok := at(1, 0, len(x))
		if !ok || len(n.In) < 3 || x[i] == nil {
			return nil
		}
		return slices.Concat(x[:i], f.listed(n.In[2:], x[i:i+1]), x[i+1:])
	case "cat", "stack":
		if len(n.In[0].List) == 0 {
			return nil
		}
		var parts [][]*Expr
		for _, a := range n.In[0].List {
			d := f.describe(a).Dims
			if d == nil || len(parts) > 0 && len(d) != len(parts[0]) {
				return nil
			}
			parts = append(parts, d)
		}
		if b == "stack" {
			i, ok := at(1, 0, len(parts[0])+1)
			if !ok {
				return nil
			}
			return slices.Insert(slices.Clone(parts[0]), i, constant(int64(len(parts))))
		}
		i, ok := at(1, 0, len(parts[0]))
		if !ok {
			return nil
		}
		dims := slices.Clone(parts[0])
		for _, p := range parts[1:] {
			if dims[i] == nil || p[i] == nil {
				return nil
			}
			dims[i], _ = combine('+', dims[i], p[i])
		}
		return dims
	}
	i, ok := at(2, 0, len(x))
	if b == "unbind" {
		i, ok = at(1, 0, len(x))
	}
	if !ok {
		return nil
	}
	if b == "unbind" {
		return slices.Delete(slices.Clone(x), i, i+1)
	}
	if x[i] == nil || len(v.Shape) != len(x) {
		return nil
	}
	dims := slices.Clone(x)
	dims[i] = constant(v.Shape[i])
	if _, fixed := x[i].Const(); !fixed {
		if len(n.In) < 2 {
			return nil
		}
		dims[i] = chunked(b, n.In[1], x[i], k)
	}
	return dims
}

// chunked returns the size of part k of a dimension that operator b splits. The size of the whole dimension is `of`.
// The argument `by` of the operator says how to split. For an operator that does not split, or if the number of parts
// is not fixed, chunked returns nil.
func chunked(b string, by Arg, of *Expr, k int) *Expr {
	if b == "split_with_sizes" && k < len(by.List) {
		return by.List[k].Size
	}
	if b != "chunk" || by.Kind != Size {
		return nil
	}
	count, fixed := by.Size.Const()
	if !fixed || count < 1 || int64(k) >= count {
		return nil
	}
	up, err := combine('+', of, constant(count-1))
	if err != nil {
		return nil
	}
	part, err := combine('/', up, by.Size)
	if err != nil || int64(k) < count-1 {
		return part
	}
	others, err := combine('*', part, constant(count-1))
	if err != nil {
		return nil
	}
	if part, err = combine('-', of, others); err != nil {
		return nil
	}
	return part
}

// recurrent returns the sizes of a recurrent network's outputs (k = 0) or of one of its last states.
func (f *facts) recurrent(n *Node, x []*Expr, k int, v *Value) []*Expr {
	if overload(n.Op) != "input" || len(x) != 3 || len(v.Shape) != 3 {
		return nil
	}
	batchFirst := literalBool(n.In, 8, false)
	rows := x[1]
	if batchFirst {
		rows = x[0]
	}
	if k > 0 {
		return []*Expr{constant(v.Shape[0]), rows, constant(v.Shape[2])}
	}
	return []*Expr{x[0], x[1], constant(v.Shape[2])}
}

func (f *facts) counting(n *Node) []*Expr {
	if overload(n.Op) == "" && n.In[0].Kind == Size {
		return []*Expr{n.In[0].Size}
	}
	if overload(n.Op) == "start" && len(n.In) > 1 && n.In[0].Kind == Size && n.In[1].Kind == Size {
		e, err := combine('-', n.In[1].Size, n.In[0].Size)
		if err == nil {
			return []*Expr{e}
		}
	}
	return nil
}

func (f *facts) picked(b string, n *Node, x []*Expr) []*Expr {
	if len(n.In) < 3 || n.In[2].Kind != FromValue && n.In[2].Kind != FromTensor {
		return nil
	}
	by := f.describe(n.In[2]).Dims
	if b == "gather" {
		return by
	}
	i, ok := index(n.In[1], len(x))
	if !ok || len(by) != 1 {
		return nil
	}
	dims := slices.Clone(x)
	dims[i] = by[0]
	return dims
}
