package rules

import (
	"slices"

	"github.com/millrace-ml/millrace/model/aten"
)

// small is the largest number of elements that a tensor without rows may have if it crosses from one layer to another.
// Each row then carries a copy of the tensor.
const small = 1 << 14

// crosses says whether a value may leave its layer. The value must have a gradient. If the position of its rows is
// known, each row must have at least one element. If not, the value must have no rows and few elements.
func (n *Network) crosses(v int) bool {
	x := n.Values[v]
	if x.Spread.Dim < 0 {
		return x.Grad && x.whole()
	}
	return x.Grad && x.Batch && !slices.ContainsFunc(x.sample(), func(size int64) bool { return size < 1 })
}

// whole says whether a tensor has few elements, and no size that depends on the number of rows.
func (v *Value) whole() bool {
	if v.Dims == nil || numel(v.Shape) > small {
		return false
	}
	return !slices.ContainsFunc(v.Dims, func(d *Expr) bool {
		if d == nil {
			return true
		}
		c, fixed := d.Const()
		return !fixed || c < 1
	})
}

// reading drops cuts until each layer reads an input of the graph or a result of an earlier layer. From this input or
// result a layer learns the number of rows.
func (n *Network) reading(cuts []int, free []bool, maker map[int]int) []int {
	var left []int
	from, fixed := 0, map[int]bool{} // fixed: recomputed values that depend on no input
	var reads func(args []Arg) bool
	reads = func(args []Arg) (found bool) {
		eachValue(args, func(v int) {
			i, made := maker[v]
			if made && free[i] && !found && !fixed[v] {
				found = reads(n.Nodes[i].In)
				fixed[v] = !found
			}
			found = found || !made || !free[i] && i < from
		})
		return found
	}
	for _, c := range cuts {
		for i := from; i < c; i++ {
			if !free[i] && reads(n.Nodes[i].In) {
				left = append(left, c)
				from = c
				break
			}
		}
	}
	return left
}

// converter inserts nodes where tensors without rows leave and enter layers.
type converter struct {
	net  *Network
	next int
}

// convert handles each value without rows that crosses a cut. Where the value leaves its layer, it is repeated for each
// row. Where it enters another layer, it is reduced again. convert returns where layers end, which nodes are
// recomputed, and which node makes each value afterwards.
func (n *Network) convert(ends []int, free []bool, maker map[int]int) ([]int, []bool, map[int]int) {
	c := converter{net: n}
	for v := range n.Values {
		c.next = max(c.next, v+1)
	}
	of := func(i int) int {
		k, _ := slices.BinarySearchFunc(ends, i, func(end, i int) int {
			if end <= i {
				return -1
			}
			return 1
		})
		return k
	}
	leaves := make([][]int, len(ends)) // by layer: values that leave it
	enters := make([]map[int]int, len(ends))
	read := func(k int) func(int) {
		return func(v int) {
			i, made := maker[v]
			if !made || free[i] || of(i) == k || n.Values[v].Spread.Dim >= 0 {
				return
			}
			if !slices.Contains(leaves[of(i)], v) {
				leaves[of(i)] = append(leaves[of(i)], v)
			}
			if enters[k] == nil {
				enters[k] = map[int]int{}
			}
			enters[k][v] = 0
		}
	}
	for i, node := range n.Nodes {
		eachValue(node.In, read(of(i)))
	}
	for _, o := range n.Outputs {
		eachValue([]Arg{o.Arg}, read(len(ends)-1))
	}
	old, sent := n.Nodes, map[int]int{}
	n.Nodes = nil
	var newEnds []int
	var newFree []bool
	from := 0
	for k, end := range ends {
		for _, earlier := range leaves[:k] {
			for _, v := range earlier {
				if _, here := enters[k][v]; here {
					enters[k][v] = c.back(v, sent[v], old[from].Scope)
				}
			}
		}
		for _, node := range old[from:end] {
			node.In = replaced(node.In, enters[k])
			n.Nodes = append(n.Nodes, node)
		}
		for _, v := range leaves[k] {
			sent[v] = c.out(v, old[end-1].Scope)
		}
		newEnds = append(newEnds, len(n.Nodes))
		from = end
	}
	for i, o := range n.Outputs {
		n.Outputs[i].Arg = replaced([]Arg{o.Arg}, enters[len(ends)-1])[0]
	}
	newMaker := map[int]int{}
	for i, node := range n.Nodes {
		isFree := false
		for _, v := range node.Out {
			newMaker[v] = i
			at, before := maker[v]
			isFree = before && free[at]
		}
		newFree = append(newFree, isFree)
	}
	return newEnds, newFree, newMaker
}

// replaced returns the arguments with each value v that is a key of `by` replaced by by[v].
func replaced(args []Arg, by map[int]int) []Arg {
	if len(by) == 0 {
		return args
	}
	args = slices.Clone(args)
	for i, a := range args {
		switch a.Kind {
		case FromValue:
			if to, there := by[a.Value]; there {
				args[i].Value = to
			}
		case List:
			args[i].List = replaced(a.List, by)
		}
	}
	return args
}

// call appends a node that makes a tensor with the sizes `dims`.
func (c *converter) call(op, scope string, of int, dims []*Expr, like *Value, rows Spread, args ...Arg) int {
	v := *like
	v.Dims, v.Shape, v.Spread, v.Batch = dims, evaluated(dims, c.net.Graph.Rows), rows, true
	id := c.next
	c.next++
	c.net.Values[id] = &v
	in := append([]Arg{{Kind: FromValue, Value: of}}, args...)
	c.net.Nodes = append(c.net.Nodes, Node{Op: "aten::" + op, In: in, Out: []int{id}, Scope: scope, Site: -1})
	return id
}

func sizesArg(dims []*Expr) Arg {
	list := Arg{Kind: List}
	for _, d := range dims {
		list.List = append(list.List, Arg{Kind: Size, Size: d})
	}
	return list
}

var (
	contiguous = Arg{Kind: Size, Size: constant(0)}
	no         = Arg{Kind: Literal, Literal: aten.Arg{Kind: aten.Bool}}
)

// out repeats a tensor for each row.
func (c *converter) out(v int, scope string) int {
	x := c.net.Values[v]
	dims := append([]*Expr{rowsExpr}, x.Dims...)
	at := c.call("expand", scope, v, dims, x, Spread{0, 1, 1}, sizesArg(dims), no)
	return c.call("contiguous", scope, at, dims, x, Spread{0, 1, 1}, contiguous)
}

// back reduces a repeated tensor to the mean over its rows. So all replicas of a stage contribute to the gradient of
// the tensor.
func (c *converter) back(v, at int, scope string) int {
	x := c.net.Values[v]
	return c.call("mean.dim", scope, at, x.Dims, x, nowhere, sizesArg(constants([]int64{0})), no, Arg{})
}
