package aten

import (
	"fmt"
	"math"
	"strings"

	"github.com/millrace-ml/millrace/internal/document"
	"github.com/millrace-ml/millrace/internal/safetensors"
)

const version = 2

// written is the content of graph.json, as python/millrace_export.py writes it.
type written struct {
	Version int    `json:"version"`
	Torch   string `json:"torch"`
	Name    string `json:"name"`
	Rows    int64  `json:"rows"`
	Inputs  []struct {
		Name   string  `json:"name"`
		Shape  []int64 `json:"shape"`
		DType  DType   `json:"dtype"`
		Target bool    `json:"target"`
	} `json:"inputs"`
	Tensors []struct {
		Name    string `json:"name"`
		Role    string `json:"role"`
		Trained bool   `json:"trained"`
		Unsaved bool   `json:"unsaved"`
	} `json:"tensors"`
	Aliases []struct {
		Name string `json:"name"`
		Of   string `json:"of"`
	} `json:"aliases"`
	Nodes []struct {
		Op    string       `json:"op"`
		In    []writtenArg `json:"in"`
		Out   []writtenOut `json:"out"`
		Scope string       `json:"scope"`
		Where string       `json:"where"`

		Always bool `json:"always"`
	} `json:"nodes"`
	Outputs []struct {
		Name string     `json:"name"`
		Of   writtenArg `json:"of"`
	} `json:"outputs"`
}

// writtenOut is a result of a node.
type writtenOut struct {
	Value  int     `json:"value"`
	Type   string  `json:"type"`
	Shape  []int64 `json:"shape"`
	DType  DType   `json:"dtype"`
	Double []int64 `json:"double"` // the shape with twice the rows; missing if it equals Shape

	Detached bool `json:"detached"`
}

// writtenArg is an argument. Exactly one of its fields is set, which determines the argument's kind.
type writtenArg struct {
	None   *bool         `json:"none"`
	Value  *int          `json:"value"`
	Tensor *string       `json:"tensor"`
	Int    *int64        `json:"int"`
	Float  any           `json:"float"` // or "inf", "-inf", "nan"
	Bool   *bool         `json:"bool"`
	String *string       `json:"string"`
	Device *string       `json:"device"`
	List   *[]writtenArg `json:"list"`
}

// roles maps the names in the file to Roles.
var roles = map[string]Role{"parameter": Parameter, "buffer": Buffer, "constant": Constant}

// decode makes a Graph from a text. The types and shapes of its tensors come from the header of the tensors' file.
func decode(text []byte, header map[string]safetensors.Entry) (*Graph, error) {
	var w written
	if err := document.Decode(text, version, &w); err != nil {
		if strings.HasPrefix(err.Error(), "version is ") {
			err = fmt.Errorf("%w: export it again with python/millrace_export.py", err)
		}
		return nil, err
	}
	g := &Graph{Name: w.Name, Rows: w.Rows, Aliases: map[string]string{}}
	for i, in := range w.Inputs {
		g.Inputs = append(g.Inputs, Input{Name: in.Name, Shape: in.Shape, DType: in.DType, Target: in.Target, Value: i})
	}
	for _, t := range w.Tensors {
		role, known := roles[t.Role]
		e, there := header[t.Name]
		switch {
		case !known:
			return nil, fmt.Errorf("tensor %.200q: role %.40q; it is parameter, buffer or constant", t.Name, t.Role)
		case !there:
			return nil, fmt.Errorf("tensor %.200q is not in %s", t.Name, weightsMember)
		}
		g.Tensors = append(g.Tensors, Tensor{Name: t.Name, Role: role, Shape: e.Shape, DType: DType(e.DType),
			Trained: t.Trained, Unsaved: t.Unsaved})
	}
	if len(w.Tensors) < len(header) {
		return nil, fmt.Errorf("it names %d tensors, and %s has %d", len(w.Tensors), weightsMember, len(header))
	}
	for _, a := range w.Aliases {
		if g.Aliases[a.Name] != "" {
			return nil, fmt.Errorf("alias %.200q is there twice", a.Name)
		}
		g.Aliases[a.Name] = a.Of
	}
	for i, n := range w.Nodes {
		node := Node{Op: n.Op, Scope: n.Scope, Where: n.Where, Always: n.Always}
		for j, a := range n.In {
			arg, err := a.arg()
			if err != nil {
				return nil, fmt.Errorf("node %d (%.100s): argument %d: %w", i, n.Op, j, err)
			}
			node.In = append(node.In, arg)
		}
		for _, v := range n.Out {
			if v.Double == nil {
				v.Double = v.Shape
			}
			node.Out = append(node.Out, Value{ID: v.Value, Type: v.Type, Shape: v.Shape, DType: v.DType, Double: v.Double,
				Detached: v.Detached})
		}
		g.Nodes = append(g.Nodes, node)
	}
	for _, o := range w.Outputs {
		arg, err := o.Of.arg()
		if err != nil {
			return nil, fmt.Errorf("output %.200q: %w", o.Name, err)
		}
		g.Outputs = append(g.Outputs, Output{Name: o.Name, Arg: arg})
	}
	return g, nil
}

// arg returns the argument; exactly one field must be set.
func (w *writtenArg) arg() (Arg, error) {
	var all []Arg
	if w.None != nil {
		all = append(all, Arg{Kind: None})
	}
	if w.Value != nil {
		all = append(all, Arg{Kind: FromValue, Value: *w.Value})
	}
	if w.Tensor != nil {
		all = append(all, Arg{Kind: FromTensor, Tensor: *w.Tensor})
	}
	if w.Int != nil {
		all = append(all, Arg{Kind: Int, Int: *w.Int})
	}
	if w.Float != nil {
		x, err := float(w.Float)
		if err != nil {
			return Arg{}, err
		}
		all = append(all, Arg{Kind: Float, Float: x})
	}
	if w.Bool != nil {
		all = append(all, Arg{Kind: Bool, Bool: *w.Bool})
	}
	if w.String != nil {
		all = append(all, Arg{Kind: Word, Text: *w.String})
	}
	if w.Device != nil {
		all = append(all, Arg{Kind: Device, Text: *w.Device})
	}
	if w.List != nil {
		list := Arg{Kind: List, List: []Arg{}}
		for i := range *w.List {
			one, err := (*w.List)[i].arg()
			if err != nil {
				return Arg{}, fmt.Errorf("element %d: %w", i, err)
			}
			list.List = append(list.List, one)
		}
		all = append(all, list)
	}
	if len(all) != 1 {
		return Arg{}, fmt.Errorf("%d kinds; one of none, value, tensor, int, float, bool, string, device, list is there",
			len(all))
	}
	return all[0], nil
}

// float returns a number. JSON has only finite numbers, so the others are written as words.
func float(x any) (float64, error) {
	switch x {
	case "inf":
		return math.Inf(1), nil
	case "-inf":
		return math.Inf(-1), nil
	case "nan":
		return math.NaN(), nil
	}
	if x, ok := x.(float64); ok {
		return x, nil
	}
	return 0, fmt.Errorf("float is %.40q; it is a number, \"inf\", \"-inf\" or \"nan\"", fmt.Sprint(x))
}
