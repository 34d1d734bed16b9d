package rules

import (
	"encoding/json"
	"math"
	"os"
	"testing"

	"github.com/millrace-ml/millrace/model/aten"
)

// argument reads one argument of a graph.json.
func argument(t *testing.T, raw json.RawMessage) aten.Arg {
	var a map[string]json.RawMessage
	must(t, json.Unmarshal(raw, &a))
	for k, v := range a {
		switch k {
		case "none":
			return aten.Arg{}
		case "value":
			return aten.Arg{Kind: aten.FromValue, Value: get[int](t, v)}
		case "tensor":
			return aten.Arg{Kind: aten.FromTensor, Tensor: get[string](t, v)}
		case "int":
			return aten.Arg{Kind: aten.Int, Int: get[int64](t, v)}
		case "bool":
			return aten.Arg{Kind: aten.Bool, Bool: get[bool](t, v)}
		case "string":
			return aten.Arg{Kind: aten.Word, Text: get[string](t, v)}
		case "device":
			return aten.Arg{Kind: aten.Device, Text: get[string](t, v)}
		case "float":
			special := map[string]float64{`"inf"`: math.Inf(1), `"-inf"`: math.Inf(-1), `"nan"`: math.NaN()}
			if f, ok := special[string(v)]; ok {
				return aten.Arg{Kind: aten.Float, Float: f}
			}
			return aten.Arg{Kind: aten.Float, Float: get[float64](t, v)}
		case "list":
			l := aten.Arg{Kind: aten.List}
			for _, one := range get[[]json.RawMessage](t, v) {
				l.List = append(l.List, argument(t, one))
			}
			return l
		}
	}
	t.Fatalf("an argument of no kind: %s", raw)
	return aten.Arg{}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func get[T any](t *testing.T, raw json.RawMessage) (v T) {
	t.Helper()
	must(t, json.Unmarshal(raw, &v))
	return v
}

// exported reads a graph from a file that testdata/models.py has written.
func exported(t *testing.T, name string) *aten.Graph {
	t.Helper()
	raw, err := os.ReadFile("testdata/" + name + ".json")
	must(t, err)
	var f struct {
		Name    string
		Rows    int64
		Aliases map[string]string
		Inputs  []struct {
			Name, DType, Role string
			Shape             []int64
		}
		Tensors []struct {
			Name, DType               string
			Shape                     []int64
			Buffer, Trained, Constant bool
		}
		Nodes []struct {
			Op, Scope string
			In        []json.RawMessage
			Out       []struct {
				Value       int
				Type, DType string
				Shape       []int64
			}
		}
		Outputs []json.RawMessage
	}
	must(t, json.Unmarshal(raw, &f))
	g := &aten.Graph{Name: f.Name, Rows: f.Rows, Aliases: f.Aliases}
	for i, in := range f.Inputs {
		g.Inputs = append(g.Inputs, aten.Input{Name: in.Name, Shape: in.Shape, DType: aten.DType(in.DType),
			Target: in.Role == "target", Value: i})
	}
	for _, x := range f.Tensors {
		one := aten.Tensor{Name: x.Name, Shape: x.Shape, DType: aten.DType(x.DType), Trained: x.Trained}
		if x.Constant {
			one.Role = aten.Constant
		} else if x.Buffer {
			one.Role = aten.Buffer
		}
		g.Tensors = append(g.Tensors, one)
	}
	for _, n := range f.Nodes {
		node := aten.Node{Op: n.Op, Scope: n.Scope}
		for _, a := range n.In {
			node.In = append(node.In, argument(t, a))
		}
		for _, o := range n.Out {
			node.Out = append(node.Out, aten.Value{ID: o.Value, Type: o.Type, Shape: o.Shape, DType: aten.DType(o.DType)})
		}
		g.Nodes = append(g.Nodes, node)
	}
	for _, o := range f.Outputs {
		var named map[string]json.RawMessage
		must(t, json.Unmarshal(o, &named))
		name := get[string](t, named["name"])
		delete(named, "name")
		plain, err := json.Marshal(named)
		must(t, err)
		g.Outputs = append(g.Outputs, aten.Output{Name: name, Arg: argument(t, plain)})
	}
	return g
}
