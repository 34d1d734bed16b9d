package rules

import (
	"errors"
	"fmt"
	"math"

	"github.com/millrace-ml/millrace/model/aten"
)

// maxList is the largest number of elements of a list in a graph.
const maxList = 1 << 16

// folded handles a node that does not compute with tensors: lists, sizes, and arithmetic on them. It returns false for
// any other node.
func (w *walker) folded(n *aten.Node) (bool, error) {
	switch n.Op {
	case "prim::ListConstruct", "prim::TupleConstruct":
		return true, w.construct(n)
	case "prim::ListUnpack", "prim::TupleUnpack":
		return true, w.unpack(n)
	}
	if len(n.In) == 0 || len(n.Out) != 1 {
		return false, nil
	}
	switch base(n.Op) {
	case "size", "sym_size":
		return true, w.size(n)
	case "dim", "numel", "len", "__getitem__":
		return true, w.counted(n)
	}
	if inPlace(n.Op) || len(n.In) > 4 {
		return false, nil
	}
	in := make([]Arg, len(n.In))
	for i, a := range n.In {
		if v, err := w.variable(a); err != nil || v != nil && v.class != nil || v != nil && v.isList {
			if err == nil && reads[base(n.Op)] || err == nil && base(n.Op) == "prim::NumToTensor" {
				err = errors.New("a number is read out of a tensor in Python here, which a later call cannot repeat; " +
					"compute with the tensor itself")
			}
			return false, err
		} else if v != nil && v.broken != nil && n.Out[0].Type != "Tensor" {
			w.vars[n.Out[0].ID] = v
			return true, nil
		}
		var err error
		if in[i], err = w.resolve(a); err != nil {
			return false, err
		}
	}
	if in[0].Kind != Size && !isNumber(in[0]) {
		return false, nil
	}
	made, err := arithmetic(n.Op, in)
	if err == nil && made == nil && n.Out[0].Type != "Tensor" {
		if made = fraction(n.Op, in); made == nil {
			w.vars[n.Out[0].ID] = &variable{maker: -1, broken: fmt.Errorf("it reads what %s makes of the number of rows, of "+
				"which sums, products and whole quotients are followed; calculate it with a tensor", n.Op)}
			return true, nil
		}
	}
	if err != nil || made == nil {
		return false, err
	}
	w.vars[n.Out[0].ID] = &variable{arg: *made, maker: -1}
	return true, nil
}

// reads lists the operators that turn a tensor into a Python number.
var reads = set("Int IntImplicit ScalarImplicit FloatImplicit Float Bool item _local_scalar_dense")

// arithmetic computes an operator on integers; for anything else it returns nil.
func arithmetic(op string, in []Arg) (*Arg, error) {
	if base(op) == "prim::NumToTensor" {
		return &in[0], nil
	}
	a := in[0]
	switch b := base(op); b {
	case "detach", "clone", "lift_fresh", "alias", "ScalarImplicit", "IntImplicit":
		return &a, nil
	case "Int":
		if a.Kind == Literal && a.Literal.Kind == aten.Float {
			f := math.Trunc(a.Literal.Float)
			if !(math.Abs(f) < 1<<62) {
				return nil, fmt.Errorf("%v does not fit into an integer", a.Literal.Float)
			}
			return &Arg{Kind: Size, Size: constant(int64(f))}, nil
		}
		return &a, nil
	case "neg":
		if a.Kind != Size {
			return nil, nil
		}
		return sized(combine('-', constant(0), a.Size))
	}
	operator, ok := map[string]byte{"mul": '*', "add": '+', "sub": '-', "rsub": '-', "floor_divide": '/', "floordiv": '/',
		"remainder": '%', "div": 'd', "truediv": 'd'}[base(op)]
	if !ok || len(in) < 2 || a.Kind != Size || in[1].Kind != Size {
		return nil, nil
	}
	x, y := a.Size, in[1].Size
	if base(op) == "rsub" {
		x, y = y, x
	}
	if operator == 'd' {
		return divided(op, in, x, y)
	}
	if (operator == '+' || operator == '-') && len(in) > 2 {
		alpha := in[2]
		if alpha.Kind != Size || base(op) == "rsub" && !isOne(alpha.Size) {
			return nil, nil
		}
		var err error
		if y, err = combine('*', y, alpha.Size); err != nil {
			return nil, err
		}
	}
	return sized(combine(operator, x, y))
}

func isOne(e *Expr) bool {
	c, ok := e.Const()
	return ok && c == 1
}

func sized(e *Expr, err error) (*Arg, error) {
	if err != nil {
		return nil, err
	}
	return &Arg{Kind: Size, Size: e}, nil
}

// fraction computes a sum, difference, product, quotient or power of two fixed numbers as a float. It returns nil for
// anything else.
func fraction(op string, in []Arg) *Arg {
	var x [2]float64
	if len(in) != 2 {
		return nil
	}
	for i, a := range in {
		switch {
		case a.Kind == Literal && a.Literal.Kind == aten.Float:
			x[i] = a.Literal.Float
		case a.Kind != Size:
			return nil
		default:
			c, fixed := a.Size.Const()
			if x[i] = float64(c); !fixed {
				return nil
			}
		}
	}
	f, ok := map[string]float64{"add": x[0] + x[1], "sub": x[0] - x[1], "mul": x[0] * x[1], "div": x[0] / x[1],
		"pow": math.Pow(x[0], x[1])}[base(op)]
	if !ok {
		return nil
	}
	return &Arg{Kind: Literal, Literal: aten.Arg{Kind: aten.Float, Float: f}}
}

// divided divides two sizes. With the rounding mode floor it rounds down. With the mode trunc it also rounds down, but
// only if both sizes are fixed, the first is not negative, and the second is positive. Without a mode it returns the
// quotient as a float, but only if both sizes are fixed. In all other cases it returns nil.
func divided(op string, in []Arg, x, y *Expr) (*Arg, error) {
	if len(in) > 2 && in[2].Kind == Literal && in[2].Literal.Kind == aten.Word {
		c, fixed := x.Const()
		d, too := y.Const()
		if in[2].Literal.Text == "floor" || in[2].Literal.Text == "trunc" && fixed && too && c >= 0 && d > 0 {
			return sized(combine('/', x, y))
		}
		return nil, nil
	}
	c, fixed := x.Const()
	d, too := y.Const()
	if !fixed || !too || d == 0 {
		return nil, nil
	}
	q := float64(c) / float64(d)
	if overload(op) == "Tensor" || overload(op) == "" {
		q = float64(float32(q)) // a tensor of numbers has single precision
	}
	return &Arg{Kind: Literal, Literal: aten.Arg{Kind: aten.Float, Float: q}}, nil
}

func (w *walker) construct(n *aten.Node) error {
	if len(n.Out) != 1 || len(n.In) > maxList {
		return fmt.Errorf("it makes %d lists of %d elements; one of %d at most is right", len(n.Out), len(n.In), maxList)
	}
	list := &variable{isList: true, maker: -1, list: []*variable{}}
	for _, a := range n.In {
		v, err := w.variable(a)
		if err != nil {
			return err
		}
		if v == nil {
			arg, err := w.resolve(a)
			if err != nil {
				return err
			}
			v = &variable{arg: arg, maker: -1}
		}
		if v.isList && n.Op == "prim::ListConstruct" {
			return errors.New("it makes a list of lists; give operators lists of tensors or numbers")
		}
		list.list = append(list.list, v)
	}
	w.vars[n.Out[0].ID] = list
	return nil
}

func (w *walker) unpack(n *aten.Node) error {
	if len(n.In) != 1 {
		return fmt.Errorf("it has %d arguments of 1", len(n.In))
	}
	v, err := w.variable(n.In[0])
	if err != nil {
		return err
	}
	if v == nil && n.In[0].Kind == aten.List {
		v = &variable{isList: true, maker: -1}
		for _, a := range n.In[0].List {
			arg, err := w.resolve(a)
			if err != nil {
				return err
			}
			v.list = append(v.list, &variable{arg: arg, maker: -1})
		}
	}
	if v == nil || !v.isList {
		return errors.New("it unpacks what is no list")
	}
	if v.list == nil && v.maker >= 0 {
		if err := w.elements(v, n.Out); err != nil {
			return err
		}
	}
	if len(v.list) != len(n.Out) {
		return fmt.Errorf("it unpacks %d of a list of %d", len(n.Out), len(v.list))
	}
	for i, o := range n.Out {
		w.vars[o.ID] = v.list[i]
	}
	return nil
}

// elements changes the node that makes a list. The node gets one result for each of the list's elements.
func (w *walker) elements(list *variable, out []aten.Value) error {
	maker := w.net.Nodes[list.maker]
	tail := append([]Node(nil), w.net.Nodes[list.maker+1:]...)
	w.net.Nodes = w.net.Nodes[:list.maker]
	ids, err := w.emit(&maker, out)
	if err != nil {
		return err
	}
	made := w.net.Nodes[list.maker]
	w.net.Nodes = append(w.net.Nodes, tail...)
	for k, id := range ids {
		v := fresh(Arg{Kind: FromValue, Value: id})
		if p := list.parent; p != nil && p.class != nil {
			if list.since != p.class.version {
				return errors.New("it unpacks views of elements that were changed in between; unpack first")
			}
			v.class, v.parent, v.version = p.class, p, p.class.version
			v.view = view{node: made, element: k, unsure: maybe[base(made.Op)], detached: out[k].Detached}
		}
		w.unlearn(v, out[k].Detached, made.Scope)
		list.list = append(list.list, v)
	}
	return nil
}

// size handles a call for the sizes of a tensor, or for one of them.
func (w *walker) size(n *aten.Node) error {
	of, err := w.resolve(n.In[0])
	if err != nil {
		return err
	}
	if of.Kind != FromValue && of.Kind != FromTensor {
		return errors.New("it asks for the size of what is no tensor")
	}
	dims := w.describe(of).Dims
	if dims == nil {
		return errors.New("nobody knows the dimensions of the tensor that it asks; give sizes as numbers")
	}
	if len(n.In) == 1 {
		list := &variable{isList: true, maker: -1, list: []*variable{}}
		for i, d := range dims {
			if d == nil {
				return w.unclear(of, i)
			}
			list.list = append(list.list, sizeVariable(d))
		}
		w.vars[n.Out[0].ID] = list
		return nil
	}
	at, err := w.resolve(n.In[1])
	if err != nil {
		return err
	}
	i, ok := index(at, len(dims))
	if !ok {
		return fmt.Errorf("it asks for a dimension that a tensor of %d dimensions does not have", len(dims))
	}
	if dims[i] == nil {
		return w.unclear(of, i)
	}
	w.vars[n.Out[0].ID] = sizeVariable(dims[i])
	return nil
}

func (f *facts) unclear(of Arg, i int) error {
	return fmt.Errorf("nobody can tell how dimension %d of a tensor of shape %v follows from the %d rows; calculate it "+
		"of an input's shape[0], or export with a number of rows that divides no other size, such as 7", i,
		f.describe(of).Shape, f.g.Rows)
}

// counted handles a call for the number of dimensions or elements of a tensor, or for the length or an element of a
// list.
func (w *walker) counted(n *aten.Node) error {
	if base(n.Op) == "__getitem__" || base(n.Op) == "len" {
		v, err := w.variable(n.In[0])
		if err != nil {
			return err
		}
		if v == nil || v.list == nil {
			return errors.New("it reads a list that is not known; unpack it in Python: a, b = x.chunk(2)")
		}
		if base(n.Op) == "len" {
			w.vars[n.Out[0].ID] = sizeVariable(constant(int64(len(v.list))))
			return nil
		}
		if len(n.In) < 2 {
			return errors.New("it has no index")
		}
		at, err := w.resolve(n.In[1])
		if err != nil {
			return err
		}
		i, ok := index(at, len(v.list))
		if !ok {
			return fmt.Errorf("it reads an element that a list of %d does not have", len(v.list))
		}
		w.vars[n.Out[0].ID] = v.list[i]
		return nil
	}
	of, err := w.resolve(n.In[0])
	if err != nil {
		return err
	}
	dims := w.describe(of).Dims
	if dims == nil {
		return errors.New("nobody knows the dimensions of the tensor that it asks; give sizes as numbers")
	}
	e := constant(int64(len(dims)))
	if base(n.Op) == "numel" {
		e = constant(1)
		for i, d := range dims {
			if d == nil {
				return w.unclear(of, i)
			}
			if e, err = combine('*', e, d); err != nil {
				return err
			}
		}
	}
	w.vars[n.Out[0].ID] = sizeVariable(e)
	return nil
}

// index returns a fixed index. A negative one counts from the end.
func index(a Arg, length int) (int, bool) {
	if a.Kind != Size {
		return 0, false
	}
	c, fixed := a.Size.Const()
	if c < 0 {
		c += int64(length)
	}
	return int(c), fixed && c >= 0 && c < int64(length)
}
