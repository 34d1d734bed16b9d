package rules

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/millrace-ml/millrace/model/aten"
)

// variable is the content of a value of the traced graph at one point of the walk. In-place operators change it.
type variable struct {
	arg     Arg
	list    []*variable // elements of a list or tuple
	isList  bool
	maker   int // the node that returns a list that is not unpacked yet; -1: none
	since   int // for a list of views: its parent's class.version when the list was made
	class   *class
	parent  *variable // the variable that this one is a view of; nil: it has its own elements
	view    view
	version int   // version that the class had when arg was computed
	broken  error // why its content is unknown
}

// maxValue is the largest ID of a value.
const maxValue = 1 << 40

// class is a set of variables that share elements.
type class struct {
	version int
	tensor  string // the module's tensor with these elements; "" if there is none
}

// walker goes through a graph once, in order.
type walker struct {
	facts
	vars    map[int]*variable
	tensors map[string]*variable
	next    int // next unused number of a value
	at      int // index of the traced node that is being handled
}

// facts derives properties of an operator's result from those of its arguments: its sizes for any number of rows,
// where the rows lie, and what it depends on.
type facts struct {
	g     *aten.Graph
	net   *Network
	about map[string]*aten.Tensor
}

func newWalker(g *aten.Graph) *walker {
	w := &walker{facts: facts{g, &Network{Graph: g, Values: map[int]*Value{}}, map[string]*aten.Tensor{}},
		vars: map[int]*variable{}, tensors: map[string]*variable{}}
	for i := range g.Tensors {
		t := &g.Tensors[i]
		w.about[t.Name] = t
		w.tensors[t.Name] = &variable{arg: Arg{Kind: FromTensor, Tensor: t.Name}, maker: -1, class: &class{tensor: t.Name}}
	}
	for _, in := range g.Inputs {
		w.next = max(w.next, in.Value+1)
	}
	for _, n := range g.Nodes {
		for _, v := range n.Out {
			w.next = max(w.next, v.ID+1)
		}
	}
	return w
}

func (w *walker) inputs() error {
	for _, in := range w.g.Inputs {
		if len(in.Shape) == 0 || len(in.Shape) > maxRank || in.Shape[0] != w.g.Rows {
			return fmt.Errorf("input %s has the shape %v; its first dimension is the batch, here %d rows",
				in.Name, in.Shape, w.g.Rows)
		}
		if w.vars[in.Value] != nil {
			return fmt.Errorf("input %s is value %d, which another input is", in.Name, in.Value)
		}
		dims := constants(in.Shape)
		dims[0] = rowsExpr
		w.net.Values[in.Value] = &Value{Dims: dims, Shape: in.Shape, DType: in.DType, Batch: true, Known: true,
			Spread: Spread{0, 1, 1}}
		w.vars[in.Value] = fresh(Arg{Kind: FromValue, Value: in.Value})
	}
	return nil
}

func fresh(arg Arg) *variable { return &variable{arg: arg, maker: -1, class: &class{}} }

func sizeVariable(e *Expr) *variable { return &variable{arg: Arg{Kind: Size, Size: e}, maker: -1} }

// variable returns the variable of an argument, or nil for a literal.
func (w *walker) variable(a aten.Arg) (*variable, error) {
	switch a.Kind {
	case aten.FromValue:
		if v := w.vars[a.Value]; v != nil {
			return v, nil
		}
		return nil, fmt.Errorf("it reads value %d, which nobody yields before", a.Value)
	case aten.FromTensor:
		if v := w.tensors[a.Tensor]; v != nil {
			return v, nil
		}
		return nil, fmt.Errorf("it reads %q, which the module does not have", a.Tensor)
	}
	return nil, nil
}

// resolve returns the present content of an argument.
func (w *walker) resolve(a aten.Arg) (Arg, error) {
	switch a.Kind {
	case aten.None:
		return Arg{}, nil
	case aten.FromValue, aten.FromTensor:
		v, err := w.variable(a)
		if err != nil {
			return Arg{}, err
		}
		return w.current(v)
	case aten.Int:
		return Arg{Kind: Size, Size: constant(a.Int)}, nil
	case aten.List:
		list := Arg{Kind: List, List: make([]Arg, len(a.List))}
		for i, one := range a.List {
			var err error
			if list.List[i], err = w.resolve(one); err != nil {
				return Arg{}, err
			}
		}
		return list, nil
	}
	return Arg{Kind: Literal, Literal: a}, nil
}

// current returns the present content of a variable. If the elements of a view were changed, it computes the view
// again.
func (w *walker) current(v *variable) (Arg, error) {
	if v.isList {
		if v.list == nil && v.maker >= 0 {
			return Arg{}, errors.New("it reads a list that is never unpacked; unpack it in Python: a, b = x.chunk(2)")
		}
		list := Arg{Kind: List, List: make([]Arg, len(v.list))}
		for i, one := range v.list {
			var err error
			if list.List[i], err = w.current(one); err != nil {
				return Arg{}, err
			}
		}
		return list, nil
	}
	if v.broken != nil {
		return Arg{}, v.broken
	}
	if v.class == nil || v.parent == nil || v.version == v.class.version {
		return v.arg, nil
	}
	if v.view.unsure {
		return Arg{}, fmt.Errorf("it reads the result of %s behind a change of elements that both may share; "+
			"write that change without its underscore, or clone() first", v.view.node.Op)
	}
	from, err := w.current(v.parent)
	if err != nil {
		return Arg{}, err
	}
	n := v.view.node
	n.In = slices.Clone(n.In)
	n.In[0] = from
	n.Out = slices.Clone(n.Out)
	for i, id := range n.Out {
		n.Out[i] = w.another(*w.net.Values[id], w.describe(from))
		if noGrad[base(n.Op)] {
			w.net.Values[n.Out[i]].Grad = false
		}
	}
	w.net.Nodes = append(w.net.Nodes, n)
	v.arg, v.version = Arg{Kind: FromValue, Value: n.Out[v.view.element]}, v.class.version
	w.unlearn(v, v.view.detached, n.Scope)
	return v.arg, nil
}

// unlearn removes the gradient of a view that was taken under no_grad.
func (w *walker) unlearn(v *variable, detached bool, scope string) {
	if detached && w.describe(v.arg).Grad {
		v.arg = w.detach(v.arg, scope)
	}
}

// another makes a value with the properties of `like`. The new value also depends on what the value `from` depends on.
func (w *walker) another(like Value, from Value) int {
	id := w.next
	w.next++
	like.Batch, like.Known = like.Batch || from.Batch, like.Known && from.Known
	like.Grad = floats(like.DType) && (like.Grad || from.Grad)
	w.net.Values[id] = &like
	return id
}

// describe returns the properties of an argument. An argument that is not a tensor is described as a number.
func (f *facts) describe(a Arg) Value {
	switch a.Kind {
	case FromValue:
		return *f.net.Values[a.Value]
	case FromTensor:
		t := f.about[a.Tensor]
		return Value{Dims: constants(t.Shape), Shape: t.Shape, DType: t.DType, Grad: t.Trained, Known: !t.Trained,
			Spread: nowhere}
	}
	return Value{Dims: []*Expr{}, Shape: []int64{}, Known: true, Spread: nowhere}
}

func constants(shape []int64) []*Expr {
	dims := make([]*Expr, len(shape))
	for i, d := range shape {
		dims[i] = constant(d)
	}
	return dims
}

func floats(t aten.DType) bool { return t == "" || strings.HasPrefix(string(t), "F") || t == "BF16" }

// node handles one node of the traced graph.
func (w *walker) node(i int) error {
	w.at = i
	n, err := positional(&w.g.Nodes[i])
	if err != nil {
		return err
	}
	for _, o := range n.Out {
		if w.vars[o.ID] != nil {
			return fmt.Errorf("it yields value %d, which another yields too", o.ID)
		}
		if o.ID < 0 || o.ID > maxValue {
			return fmt.Errorf("it yields value %d; values are numbered from 0 to 2^40", o.ID)
		}
		if slices.ContainsFunc(o.Shape, func(d int64) bool { return d < 0 }) {
			return fmt.Errorf("value %d has the shape %v; no size is negative", o.ID, o.Shape)
		}
		if len(o.Shape) > maxRank {
			return fmt.Errorf("value %d has %d dimensions; %d are the most", o.ID, len(o.Shape), maxRank)
		}
	}
	b := base(n.Op)
	if random[b] {
		return errors.New("it draws random numbers that a second worker cannot repeat; draw them where the data is " +
			"made and give them as an input, or use dropout")
	}
	if done, err := w.folded(n); done || err != nil {
		return err
	}
	if strings.HasPrefix(n.Op, "prim::") {
		return errors.New("it is no operator on tensors; write the module without it (control flow, objects)")
	}
	if overload(n.Op) == "out" || strings.HasSuffix(overload(n.Op), "_out") {
		return errors.New("it writes a tensor given as out=; use what it returns")
	}
	if metadata[b] {
		return errors.New("it changes the shape of a tensor that others read; write it without its underscore")
	}
	if inPlace(n.Op) {
		return w.change(n)
	}
	return w.plain(n)
}

// plain handles a node that changes no argument, except that it may update statistics in a buffer.
func (w *walker) plain(n *aten.Node) error {
	in, err := w.resolveAll(n.In)
	if err != nil {
		return err
	}
	node := Node{Op: n.Op, In: in, Scope: n.Scope, Site: w.at}
	if err := w.statistics(n, &node); err != nil {
		return err
	}
	b := base(n.Op)
	if len(n.Out) == 1 && isList(n.Out[0].Type) {
		node.List = true
		w.net.Nodes = append(w.net.Nodes, node)
		v := &variable{isList: true, maker: len(w.net.Nodes) - 1}
		if len(n.In) > 0 && (views[b] || maybe[b]) {
			if v.parent, err = w.variable(n.In[0]); err != nil {
				return err
			}
			if v.parent != nil && v.parent.class != nil {
				v.since = v.parent.class.version
			}
		}
		w.vars[n.Out[0].ID] = v
		return nil
	}
	ids, err := w.emit(&node, n.Out)
	if err != nil {
		return err
	}
	for k, id := range ids {
		v := fresh(Arg{Kind: FromValue, Value: id})
		if k == 0 && len(n.In) > 0 && (views[b] || maybe[b]) {
			how := view{node: w.net.Nodes[len(w.net.Nodes)-1], unsure: maybe[b], detached: n.Out[k].Detached}
			if err := w.attach(v, n.In[0], how); err != nil {
				return err
			}
			w.unlearn(v, n.Out[k].Detached, n.Scope)
		}
		w.vars[n.Out[k].ID] = v
	}
	return nil
}

func isList(t string) bool { return strings.HasSuffix(t, "[]") || strings.HasPrefix(t, "List[") }

// attach makes a variable a view of an argument.
func (w *walker) attach(v *variable, of aten.Arg, how view) error {
	p, err := w.variable(of)
	if err != nil || p == nil {
		return err
	}
	if p.isList {
		if base(how.node.Op) == "einsum" {
			return nil
		}
		return errors.New("it may share elements with a list; use broadcast by operators, or clone()")
	}
	if p.class != nil {
		v.class, v.parent, v.view, v.version = p.class, p, how, p.class.version
	}
	return nil
}

func (w *walker) resolveAll(in []aten.Arg) ([]Arg, error) {
	out := make([]Arg, len(in))
	for i, a := range in {
		var err error
		if out[i], err = w.resolve(a); err != nil {
			return nil, fmt.Errorf("argument %d: %w", i, err)
		}
	}
	return out, nil
}
