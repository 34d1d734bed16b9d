package aten

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/millrace-ml/millrace/internal/names"
)

// maxRank is the largest number of dimensions of a tensor in PyTorch.
const maxRank = 64

// Check refuses a Graph that cannot be the trace of a module. The reader of every format calls Check.
func (g *Graph) Check() error {
	if err := named("the model", g.Name); err != nil {
		return err
	}
	c := checking{values: map[int]Value{}, tensors: map[string]Tensor{}}
	for _, check := range []func(*Graph) error{c.inputs, c.tensorsOf, c.nodes, c.outputs} {
		if err := check(g); err != nil {
			return err
		}
	}
	return nil
}

// checking holds the values and tensors that Check has read so far.
type checking struct {
	values  map[int]Value
	tensors map[string]Tensor
}

func (c *checking) inputs(g *Graph) error {
	if g.NoLoss && len(g.Inputs) == 0 {
		return errors.New("there are no inputs")
	}
	if !g.NoLoss && len(g.Inputs) < 2 {
		return fmt.Errorf("%d inputs; there are two at least, the last of which is the target", len(g.Inputs))
	}
	seen := map[string]bool{}
	for i, in := range g.Inputs {
		of := fmt.Sprintf("input %d", i)
		if err := cmp.Or(named(of, in.Name), shaped(of, in.DType, in.Shape)); err != nil {
			return err
		}
		of = fmt.Sprintf("input %q", in.Name)
		switch {
		case seen[in.Name]:
			return fmt.Errorf("%s is there twice", of)
		case len(in.Shape) == 0 || in.Shape[0] != g.Rows || g.Rows < 1:
			return fmt.Errorf("%s has the shape %v; its first dimension is the %d rows of the example", of, in.Shape, g.Rows)
		case g.NoLoss && in.Target:
			return fmt.Errorf("%s is the target of a module without a loss", of)
		case !g.NoLoss && in.Target != (i == len(g.Inputs)-1):
			return fmt.Errorf("%s: target is %v; the last input is the target, and no other", of, in.Target)
		}
		seen[in.Name] = true
		if err := c.define(of, Value{ID: in.Value, Type: "Tensor", Shape: in.Shape, DType: in.DType}); err != nil {
			return err
		}
	}
	return nil
}

func (c *checking) tensorsOf(g *Graph) error {
	for i, t := range g.Tensors {
		of := fmt.Sprintf("tensor %d", i)
		if err := cmp.Or(named(of, t.Name), shaped(of, t.DType, t.Shape)); err != nil {
			return err
		}
		_, twice := c.tensors[t.Name]
		switch {
		case twice:
			return fmt.Errorf("tensor %q is there twice", t.Name)
		case t.Trained && (t.Role != Parameter || !t.DType.isFloat()):
			return fmt.Errorf("tensor %q of %s is trained; only parameters of real numbers are", t.Name, t.DType)
		case t.Unsaved && t.Role != Buffer:
			return fmt.Errorf("tensor %q is unsaved; only buffers are", t.Name)
		}
		c.tensors[t.Name] = t
	}
	for name, of := range g.Aliases {
		t, there := c.tensors[of]
		_, taken := c.tensors[name]
		switch err := named("an alias", name); {
		case err != nil:
			return err
		case !there || t.Role == Constant:
			return fmt.Errorf("alias %q is of %.200q, which is no parameter and no buffer", name, of)
		case taken:
			return fmt.Errorf("alias %q is the name of another tensor", name)
		}
	}
	return nil
}

func (c *checking) nodes(g *Graph) error {
	for i, n := range g.Nodes {
		of := fmt.Sprintf("node %d", i)
		for _, text := range []string{n.Op, n.Scope, n.Where} {
			if err := names.Check(text); err != nil {
				return fmt.Errorf("%s: %w", of, err)
			}
		}
		if n.Op == "" {
			return fmt.Errorf("%s has no operator", of)
		}
		of = n.said(i)
		for j, a := range n.In {
			if err := errors.Join(c.known(a), names.Check(a.Name)); err != nil {
				return fmt.Errorf("%s: argument %d: %w", of, j, err)
			}
			if a.Name == "" && j > 0 && n.In[j-1].Name != "" {
				return fmt.Errorf("%s: argument %d is by position, behind one by name", of, j)
			}
		}
		for _, v := range n.Out {
			if err := c.define(of, v); err != nil {
				return err
			}
		}
	}
	return nil
}

// said describes a node for an error message.
func (n *Node) said(i int) string {
	text := fmt.Sprintf("node %d (%s", i, n.Op)
	if n.Scope != "" {
		text += " in " + n.Scope
	}
	if n.Where != "" {
		text += ", " + n.Where
	}
	return text + ")"
}

func (c *checking) outputs(g *Graph) error {
	if len(g.Outputs) == 0 {
		return errors.New("there are no outputs; the first is the mean loss")
	}
	seen := map[string]bool{}
	for i, o := range g.Outputs {
		if err := named(fmt.Sprintf("output %d", i), o.Name); err != nil {
			return err
		}
		if seen[o.Name] {
			return fmt.Errorf("output %q is there twice", o.Name)
		}
		seen[o.Name] = true
		if err := c.known(o.Arg); err != nil {
			return fmt.Errorf("output %q: %w", o.Name, err)
		}
		v := c.values[o.Arg.Value]
		switch loss := i == 0 && !g.NoLoss; {
		case o.Arg.Kind != FromValue && (loss || o.Arg.Kind != FromTensor):
			return fmt.Errorf("output %q is no tensor that a node yields", o.Name)
		case loss && (v.Type != "Tensor" || v.DType != "" && !v.DType.isFloat() || len(v.Shape) > 0):
			return fmt.Errorf("output %q is the loss, and has the type %s %s%v; it is one real number", o.Name, v.Type, v.DType,
				v.Shape)
		}
	}
	return nil
}

// define checks a new value and records it.
func (c *checking) define(of string, v Value) error {
	if err := names.Check(v.Type); err != nil {
		return fmt.Errorf("%s: the type of value %d: %w", of, v.ID, err)
	}
	_, twice := c.values[v.ID]
	switch {
	case v.ID < 0:
		return fmt.Errorf("%s yields value %d; values are counted from 0", of, v.ID)
	case twice:
		return fmt.Errorf("%s yields value %d, which is there already", of, v.ID)
	case v.Type == "":
		return fmt.Errorf("%s yields value %d without a type", of, v.ID)
	case v.Type != "Tensor" && (v.Shape != nil || v.DType != ""):
		return fmt.Errorf("%s yields value %d of type %s with a shape; only a Tensor has one", of, v.ID, v.Type)
	}
	if v.Shape != nil || v.DType != "" {
		if err := shaped(fmt.Sprintf("%s: value %d", of, v.ID), v.DType, v.Shape); err != nil {
			return err
		}
	}
	if v.Double != nil {
		if len(v.Double) != len(v.Shape) {
			return fmt.Errorf("%s: value %d has the shape %v, and %v with twice the rows; both have the same dimensions", of,
				v.ID, v.Shape, v.Double)
		}
		if err := shaped(fmt.Sprintf("%s: value %d with twice the rows", of, v.ID), v.DType, v.Double); err != nil {
			return err
		}
	}
	c.values[v.ID] = v
	return nil
}

// known refuses an argument that refers to an undefined value or tensor, and a text that names.Check refuses.
func (c *checking) known(a Arg) error {
	switch a.Kind {
	case FromValue:
		if _, there := c.values[a.Value]; !there {
			return fmt.Errorf("value %d, which nothing in front yields", a.Value)
		}
	case FromTensor:
		if _, there := c.tensors[a.Tensor]; !there {
			return fmt.Errorf("tensor %.200q, which the module has not", a.Tensor)
		}
	case Word, Device:
		return names.Check(a.Text)
	case List:
		for i, one := range a.List {
			if err := c.known(one); err != nil {
				return fmt.Errorf("element %d: %w", i, err)
			}
		}
	}
	return nil
}

// isFloat says whether elements are real numbers, which can have gradients.
func (d DType) isFloat() bool { return d == "F64" || d == "F32" || d == "F16" || d == "BF16" }

// named refuses an invalid name.
func named(of, name string) error {
	if name == "" {
		return fmt.Errorf("%s has no name", of)
	}
	if err := names.Check(name); err != nil {
		return fmt.Errorf("%s: %w", of, err)
	}
	return nil
}

// shaped refuses tensors that are too large or have too many dimensions, or whose element type is complex or unknown.
func shaped(of string, d DType, shape []int64) error {
	if strings.HasPrefix(string(d), "Complex") {
		return fmt.Errorf("%s: it has complex numbers, which are not trained; calculate with real and imaginary parts", of)
	}
	if !slices.Contains(elements, string(d)) {
		return fmt.Errorf("%s: element type %.40q; one of %v is read", of, string(d), elements)
	}
	if len(shape) > maxRank {
		return fmt.Errorf("%s: a shape of %d dimensions; PyTorch has %d at most", of, len(shape), maxRank)
	}
	count := int64(1)
	for _, n := range shape {
		if n < 0 || n > 0 && count > mostWeights/n {
			return fmt.Errorf("%s: no machine holds a tensor of the shape %v", of, shape)
		}
		count *= n
	}
	return nil
}
