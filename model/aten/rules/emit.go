package rules

import (
	"fmt"
	"slices"
	"strings"

	"github.com/millrace-ml/millrace/model/aten"
)

// emit appends a node with resolved arguments, and describes its results.
func (w *walker) emit(n *Node, out []aten.Value) ([]int, error) {
	w.scalar(n)
	if err := w.mode(n); err != nil {
		return nil, err
	}
	v := Value{Known: true, Loose: w.loose(n)}
	w.depends(n.In, &v)
	for _, o := range out {
		id := o.ID
		if w.net.Values[id] != nil {
			id = w.next
			w.next++
		}
		one := v
		one.Shape, one.Double, one.DType = o.Shape, o.Double, o.DType
		one.Grad = v.Grad && floats(o.DType) && !noGrad[base(n.Op)]
		one.Dims = w.sizes(n, len(n.Out), &one, o.Double)
		if one.Shape == nil {
			one.Shape = evaluated(one.Dims, w.g.Rows)
		}
		one.Spread = w.spread(n, &one)
		n.Out = append(n.Out, id)
		w.net.Values[id] = &one
	}
	w.net.Nodes = append(w.net.Nodes, *n)
	if b := base(n.Op); views[b] || maybe[b] || n.List {
		return n.Out, nil
	}
	ids := slices.Clone(n.Out)
	for i, o := range out {
		if o.Detached && w.net.Values[ids[i]].Grad {
			ids[i] = w.detach(Arg{Kind: FromValue, Value: ids[i]}, n.Scope).Value
		}
	}
	return ids, nil
}

// detach removes the gradient of a tensor.
func (w *walker) detach(a Arg, scope string) Arg {
	v := w.describe(a)
	v.Grad = false
	id := w.fresh()
	w.net.Values[id] = &v
	w.net.Nodes = append(w.net.Nodes, Node{Op: "aten::detach", In: []Arg{a}, Out: []int{id}, Scope: scope, Site: w.at})
	return Arg{Kind: FromValue, Value: id}
}

// depends derives Batch, Grad, Known and Loose of a value from the arguments that it is computed from.
func (f *facts) depends(args []Arg, v *Value) {
	for _, a := range args {
		switch a.Kind {
		case FromValue, FromTensor:
			of := f.describe(a)
			v.Batch, v.Grad, v.Known = v.Batch || of.Batch, v.Grad || of.Grad, v.Known && of.Known
			v.Loose = v.Loose || of.Loose
		case Size, Wrapped:
			if a.Size != nil {
				if _, fixed := a.Size.Const(); !fixed {
					v.Batch = true
				}
			}
		case List:
			f.depends(a.List, v)
		}
	}
}

func isNumber(a Arg) bool {
	return a.Kind == Size || a.Kind == Literal &&
		(a.Literal.Kind == aten.Float || a.Literal.Kind == aten.Bool || a.Literal.Kind == aten.Int)
}

// scalar handles a number that stands where the operator's schema has a tensor. It selects the operator's overload for
// a number, or marks the argument as Wrapped.
func (f *facts) scalar(n *Node) {
	op := strings.TrimPrefix(n.Op, "aten::")
	if s, ok := scalars[strings.Replace(op, "_.", ".", 1)]; ok && inPlace(op) && len(n.In) > 1 && isNumber(n.In[1]) {
		n.Op = "aten::" + strings.Replace(s, ".", "_.", 1)
		return
	}
	if s, ok := scalars[op]; ok && len(n.In) > 1 && isNumber(n.In[1]) && !isNumber(n.In[0]) {
		n.Op = "aten::" + s
		return
	}
	if op == "masked_fill.Tensor" && len(n.In) > 2 && isNumber(n.In[2]) {
		n.Op = "aten::masked_fill.Scalar"
		return
	}
	at := tensorAt[op]
	o := overload(n.Op)
	if at == nil && broadcast[strings.TrimSuffix(base(n.Op), "_")] && (o == "Tensor" || o == "Tensor_mode") {
		at = []int{0, 1}
	}
	for _, i := range at {
		if i < len(n.In) && isNumber(n.In[i]) {
			n.In[i].Kind = Wrapped
		}
	}
}

// mode marks the arguments that depend on whether the caller trains.
func (f *facts) mode(n *Node) error {
	m, ok := modes[strings.TrimPrefix(n.Op, "aten::")]
	if !ok {
		return nil
	}
	if m.Train >= len(n.In) {
		return fmt.Errorf("it has %d arguments, and no flag that says whether it trains", len(n.In))
	}
	if m.Train >= 0 {
		flag := n.In[m.Train]
		if flag.Kind != Literal || flag.Literal.Kind != aten.Bool {
			return fmt.Errorf("argument %d says whether it trains, and is not known; give True or False", m.Train)
		}
		if !flag.Literal.Bool {
			return nil // the module is always in evaluation mode
		}
	}
	b := base(n.Op)
	if (b == "batch_norm" || b == "instance_norm") && (n.In[3].Kind == None || f.g.Nodes[n.Site].Always) {
		return nil // a norm without running statistics uses those of the batch, also in evaluation
	}
	if m.Rate >= 0 {
		if m.Rate >= len(n.In) {
			return nil // the default: no dropout
		}
		rate := n.In[m.Rate]
		p := rate.Literal.Float
		if rate.Kind == Size {
			c, fixed := rate.Size.Const()
			if p = float64(c); !fixed {
				p = -1
			}
		} else if rate.Kind != Literal || rate.Literal.Kind != aten.Float {
			p = -1
		}
		if !(p >= 0 && p <= 1) {
			return fmt.Errorf("argument %d is the rate of its dropout, and no fixed number from 0 to 1", m.Rate)
		}
	}
	n.Mode = &m
	return nil
}

// statistics records the buffers that a norm updates.
func (w *walker) statistics(traced *aten.Node, n *Node) error {
	if b := base(n.Op); b != "batch_norm" && b != "instance_norm" {
		return nil
	}
	if len(n.In) < 6 {
		return fmt.Errorf("it has %d arguments of at least 6", len(n.In))
	}
	if f := n.In[5]; f.Kind == Literal && !f.Literal.Bool {
		return nil
	}
	for _, i := range []int{3, 4} {
		if n.In[i].Kind == None {
			continue
		}
		v, err := w.variable(traced.In[i])
		if err != nil {
			return err
		}
		if v == nil || n.In[i].Kind != FromTensor || w.about[n.In[i].Tensor].Role != aten.Buffer {
			return fmt.Errorf("argument %d takes its statistics, and is no buffer; register_buffer it", i)
		}
		v.class.version++
		if !slices.Contains(n.Updates, n.In[i].Tensor) {
			n.Updates = append(n.Updates, n.In[i].Tensor)
		}
	}
	return nil
}

// evaluated returns the sizes for a number of rows; nil if one of them is unknown.
func evaluated(dims []*Expr, rows int64) []int64 {
	if dims == nil {
		return nil
	}
	shape := make([]int64, len(dims))
	for i, d := range dims {
		if d == nil {
			return nil
		}
		c, err := d.Eval(rows)
		if err != nil {
			return nil
		}
		shape[i] = c
	}
	return shape
}
