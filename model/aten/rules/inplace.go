package rules

import (
	"errors"
	"fmt"
	"slices"

	"github.com/millrace-ml/millrace/model/aten"
)

// view says how a variable was made as a view of another one.
type view struct {
	node     Node // the node that made the view
	element  int  // index among that node's results
	unsure   bool // the view may be a copy
	detached bool // the view has no gradient
}

// change handles an operator that writes its first argument.
func (w *walker) change(n *aten.Node) error {
	if len(n.In) == 0 {
		return errors.New("it has no argument to write")
	}
	v, err := w.variable(n.In[0])
	if err != nil {
		return err
	}
	if v == nil || v.class == nil {
		return errors.New("it writes a number in place; write it without its underscore")
	}
	in, err := w.resolveAll(n.In)
	if err != nil {
		return err
	}
	if t := v.class.tensor; t != "" {
		return w.buffer(n, v, t, in)
	}
	if len(n.Out) > 0 && n.Out[0].Shape != nil {
		if old := w.describe(in[0]).Shape; old != nil && !slices.Equal(old, n.Out[0].Shape) {
			return fmt.Errorf("it writes a tensor of the shape %v in place, and %v is recorded for it; export it again", old,
				n.Out[0].Shape)
		}
	}
	made, err := w.changed(n, in)
	if err != nil {
		return err
	}
	if err := w.write(v, made); err != nil {
		return err
	}
	for _, o := range n.Out {
		w.vars[o.ID] = v
	}
	return nil
}

// buffer records that a module updates its own buffer, and refuses a write to another tensor of the module.
func (w *walker) buffer(n *aten.Node, v *variable, name string, in []Arg) error {
	role := w.about[name].Role
	if role != aten.Buffer || v.parent != nil {
		kind := map[aten.Role]string{aten.Parameter: "a parameter", aten.Constant: "a constant",
			aten.Buffer: "a part of a buffer"}[role]
		if base(n.Op) == "embedding_renorm_" {
			return fmt.Errorf("max_norm= shortens rows of %s, %s, in place; leave max_norm out, and scale the rows that are "+
				"read: rows * (max_norm / rows.norm(dim=-1, keepdim=True)).clamp(max=1)", name, kind)
		}
		return fmt.Errorf("it writes %s in place, %s; write x = x + y, or into a clone() of it", name, kind)
	}
	if len(n.Out) > 0 && n.Out[0].Detached {
		for i, a := range in {
			if i > 0 && (a.Kind == FromValue || a.Kind == FromTensor) && w.describe(a).Grad {
				in[i] = w.detach(a, n.Scope)
			}
		}
	}
	from := Value{Known: true}
	w.depends(in[1:], &from)
	if from.Grad {
		return fmt.Errorf("it writes what has a gradient into the buffer %s; detach() it first, or write under no_grad()",
			name)
	}
	node := Node{Op: n.Op, In: in, Scope: n.Scope, Site: w.at, Updates: []string{name},
		Always: w.g.Nodes[w.at].Always}
	w.scalar(&node)
	w.net.Nodes = append(w.net.Nodes, node)
	v.class.version++
	for _, o := range n.Out {
		w.vars[o.ID] = v
	}
	return nil
}

// changed computes the new value of the argument that an in-place operator writes.
func (w *walker) changed(n *aten.Node, in []Arg) (Arg, error) {
	old := w.describe(in[0])
	out := aten.Value{ID: w.next, Type: "Tensor", Shape: old.Shape, DType: old.DType,
		Detached: len(n.Out) > 0 && n.Out[0].Detached}
	call := func(op string, args ...Arg) (Arg, error) {
		out.ID = w.next
		w.next++
		ids, err := w.emit(&Node{Op: op, In: args, Scope: n.Scope, Site: w.at}, []aten.Value{out})
		if err != nil {
			return Arg{}, err
		}
		return Arg{Kind: FromValue, Value: ids[0]}, nil
	}
	b := base(n.Op)
	if b != "zero_" && len(in) < 2 && (b == "copy_" || b == "fill_") {
		return Arg{}, errors.New("it has no second argument")
	}
	switch b {
	case "zero_":
		return call("aten::zeros_like", in[0])
	case "fill_":
		if isNumber(in[1]) {
			return call("aten::full_like", in[0], in[1])
		}
		return w.fitted(call, old, in[1], in[0])
	case "copy_":
		if isNumber(in[1]) {
			return call("aten::full_like", in[0], in[1])
		}
		return w.fitted(call, old, in[1], in[0])
	}
	made, err := call(functional(n.Op), in...)
	if err != nil {
		return Arg{}, err
	}
	cast := compared[b[:len(b)-1]]
	for _, a := range in[1:] {
		if a.Kind == FromValue || a.Kind == FromTensor {
			t := w.describe(a).DType
			cast = cast || t != old.DType && t != "BOOL" && t != "" && (t != "I64" || !floats(old.DType))
		}
	}
	if cast {
		return call("aten::type_as", made, in[0])
	}
	return made, nil
}

// fitted gives a tensor the type and shape of the tensor that it is copied into.
func (f *facts) fitted(call func(string, ...Arg) (Arg, error), old Value, from, into Arg) (Arg, error) {
	of := f.describe(from)
	var err error
	if of.DType != old.DType || of.DType == "" {
		if from, err = call("aten::type_as", from, into); err != nil {
			return Arg{}, err
		}
	}
	if of.Shape == nil || !slices.Equal(of.Shape, old.Shape) || from.Kind != FromValue {
		return call("aten::expand_as", from, into)
	}
	return from, nil
}

// write replaces the elements of a variable. If the variable is a view of another variable, its parent, then the parent
// changes too, and so on up to a variable that is not a view. If the new elements of a parent cannot be computed, this
// parent and all parents above it are marked as unknown.
func (w *walker) write(v *variable, made Arg) error {
	v.class.version++
	v.arg, v.version = made, v.class.version
	for child := v; child.parent != nil; child = child.parent {
		p := child.parent
		back, err := w.scatter(child, made)
		if err != nil {
			return err
		}
		if back == nil {
			why := fmt.Errorf("it reads what node %d, %s, may have changed through a result of %s; write that change "+
				"without its underscore, or clone() first", w.at, w.g.Nodes[w.at].Op, child.view.node.Op)
			for ; p != nil; p = p.parent {
				p.broken = why
			}
			return nil
		}
		made = *back
		p.arg, p.version = made, v.class.version
	}
	return nil
}

// scatter returns the tensor that v is a view of, with the view's changed elements put back into it. If that is
// impossible, it returns nil.
func (w *walker) scatter(v *variable, made Arg) (*Arg, error) {
	of := v.view.node
	if v.view.unsure || of.List {
		return nil, nil
	}
	old := w.describe(v.parent.arg)
	n := Node{Scope: of.Scope, Site: w.at}
	rest := of.In[1:]
	switch b := base(of.Op); {
	case b == "select" && len(rest) == 2 && rest[0].Kind == Size && rest[1].Kind == Size:
		n.Op, n.In = "aten::select_scatter", append([]Arg{v.parent.arg, made}, rest...)
	case b == "slice":
		n.Op, n.In = "aten::slice_scatter", append([]Arg{v.parent.arg, made}, rest...)
	case b == "diagonal":
		n.Op, n.In = "aten::diagonal_scatter", append([]Arg{v.parent.arg, made}, rest...)
	case b == "narrow" && len(rest) == 3 && rest[1].Kind == Size && rest[2].Kind == Size:
		start, fixed := rest[1].Size.Const()
		end, err := combine('+', rest[1].Size, rest[2].Size)
		if err != nil || !fixed || start < 0 {
			return nil, err
		}
		one := Arg{Kind: Size, Size: constant(1)}
		n.Op = "aten::slice_scatter"
		n.In = []Arg{v.parent.arg, made, rest[0], rest[1], {Kind: Size, Size: end}, one}
	case b == "transpose", b == "swapaxes", b == "swapdims":
		n.Op, n.In = of.Op, append([]Arg{made}, rest...)
	case b == "t":
		n.Op, n.In = of.Op, []Arg{made}
	case b == "view" || b == "view_as" || b == "unsqueeze" || b == "squeeze" || b == "unflatten":
		if overload(of.Op) == "dtype" {
			return nil, nil
		}
		n.Op, n.In = "aten::reshape_as", []Arg{made, v.parent.arg}
	case b == "alias":
		return &made, nil
	default:
		return nil, nil
	}
	ids, err := w.emit(&n, []aten.Value{{ID: w.fresh(), Type: "Tensor", Shape: old.Shape, DType: old.DType}})
	if err != nil {
		return nil, err
	}
	return &Arg{Kind: FromValue, Value: ids[0]}, nil
}

func (w *walker) fresh() int {
	w.next++
	return w.next - 1
}
