package rules

import (
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/model/aten"
)

// graph has an input x of 4 rows and 3 columns, a target, and nodes. The loss is computed from the last node and a
// parameter.
type graph struct{ g *aten.Graph }

func begin() *graph {
	tensor := func(name string, role aten.Role) aten.Tensor {
		return aten.Tensor{Name: name, Role: role, Shape: []int64{3, 3}, DType: "F32", Trained: role == aten.Parameter}
	}
	return &graph{&aten.Graph{Rows: 4, Inputs: []aten.Input{{Name: "x", Shape: []int64{4, 3}, DType: "F32"},
		{Name: "target", Shape: []int64{4}, DType: "I64", Value: 1, Target: true}},
		Tensors: []aten.Tensor{tensor("m.w", aten.Parameter), tensor("m.b", aten.Buffer), tensor("c", aten.Constant)}}}
}

func tensor(name string) aten.Arg      { return aten.Arg{Kind: aten.FromTensor, Tensor: name} }
func float(f float64) aten.Arg         { return aten.Arg{Kind: aten.Float, Float: f} }
func truth(b bool) aten.Arg            { return aten.Arg{Kind: aten.Bool, Bool: b} }
func word(s string) aten.Arg           { return aten.Arg{Kind: aten.Word, Text: s} }
func listed(list ...aten.Arg) aten.Arg { return aten.Arg{Kind: aten.List, List: list} }

// call adds a node with one result of a type and shape.
func (b *graph) call(op, kind string, shape []int64, in ...aten.Arg) aten.Arg {
	v := aten.Value{ID: 2 + len(b.g.Nodes), Type: kind, Shape: shape}
	if kind == "Tensor" {
		v.DType = "F32"
	}
	b.g.Nodes = append(b.g.Nodes, aten.Node{Op: op, In: in, Out: []aten.Value{v}, Scope: "m"})
	return value(v.ID)
}

func (b *graph) tensor(op string, in ...aten.Arg) aten.Arg {
	return b.call(op, "Tensor", []int64{4, 3}, in...)
}

// end adds a loss that is computed from a tensor, and normalises the graph.
func (b *graph) end(of aten.Arg) (*Network, error) {
	y := b.tensor("aten::linear", of, tensor("m.w"))
	b.g.Outputs = []aten.Output{{Name: "loss", Arg: b.call("aten::sum", "Tensor", []int64{}, y)}}
	return Normalise(b.g)
}

func TestArithmeticOnSizesFoldsIntoExpressionsOfTheRows(t *testing.T) {
	for _, c := range []struct {
		op   string
		by   []aten.Arg
		want int64 // the result for 7 rows
	}{
		{"aten::mul.int", []aten.Arg{integer(3)}, 21}, {"aten::mul.Tensor", []aten.Arg{integer(3)}, 21},
		{"aten::add.Tensor", []aten.Arg{integer(3), integer(2)}, 13}, {"aten::sub", []aten.Arg{integer(3)}, 4},
		{"aten::rsub.Scalar", []aten.Arg{integer(3), integer(1)}, -4}, {"aten::floordiv.int", []aten.Arg{integer(-2)}, -4},
		{"aten::floor_divide", []aten.Arg{integer(2)}, 3}, {"aten::remainder.int", []aten.Arg{integer(-4)}, -1},
		{"aten::div.Tensor_mode", []aten.Arg{integer(2), word("floor")}, 3}, {"aten::neg.int", nil, -7},
	} {
		b := begin()
		s := b.call("prim::NumToTensor.Scalar", "Tensor", []int64{}, b.call("aten::size", "int", nil, value(0), integer(-2)))
		i := b.call("aten::Int.Tensor", "int", nil, b.call(c.op, "Tensor", []int64{}, append([]aten.Arg{s}, c.by...)...))
		size := b.call("prim::ListConstruct", "int[]", nil, i, integer(3))
		n, err := b.end(b.tensor("aten::view", value(0), size))
		must(t, err)
		got, err := n.Nodes[0].In[1].List[0].Size.Eval(7)
		if err != nil || got != c.want {
			t.Errorf("%s of 7 rows and %v: %d, %v instead of %d", c.op, c.by, got, err, c.want)
		}
	}
}

func TestNumbersWhereSchemasSayTensor(t *testing.T) {
	for _, c := range []struct {
		op, want string
		kind     Kind
		in       []aten.Arg
		at       int
	}{
		{"aten::div.Tensor", "aten::div.Scalar", Literal, []aten.Arg{value(0), float(4)}, 1},
		{"aten::add_.Tensor", "aten::add.Scalar", Size, []aten.Arg{value(0), integer(4), integer(1)}, 1},
		{"aten::mul.Tensor", "aten::mul.Tensor", Wrapped, []aten.Arg{float(4), value(0)}, 0},
		{"aten::maximum", "aten::maximum", Wrapped, []aten.Arg{value(0), float(4)}, 1},
		{"aten::slice.Tensor", "aten::slice.Tensor", Size, []aten.Arg{value(0), integer(1)}, 1},
	} {
		b := begin()
		n, err := b.end(b.tensor(c.op, c.in...))
		must(t, err)
		if got := n.Nodes[0]; got.Op != c.want || got.In[c.at].Kind != c.kind {
			t.Errorf("%s became %s with %+v", c.op, got.Op, got.In[c.at])
		}
	}
}

func TestGradientsStopWhereTheyStop(t *testing.T) {
	b := begin()
	y := b.tensor("aten::linear", value(0), tensor("m.w"))
	d := b.tensor("aten::detach", y)
	n, err := b.end(b.tensor("aten::add.Tensor", b.tensor("aten::mul.Tensor", d, value(0)), y, integer(1)))
	must(t, err)
	for i, want := range []bool{true, false, false, true} {
		if got := n.Values[n.Nodes[i].Out[0]].Grad; got != want {
			t.Errorf("%s has a gradient: %v", n.Nodes[i].Op, got)
		}
	}
	// The detached value depends on a parameter and cannot be recomputed, so there is no cut before its last reader.
	if got := ops(n, n.Layers[1]); got != "detach mul.Tensor add.Tensor" {
		t.Errorf("the second layer runs %s", got)
	}
}

func TestNothingWithoutAGradientCrosses(t *testing.T) {
	b := begin()
	n, err := b.end(b.tensor("aten::relu", b.tensor("aten::detach", b.tensor("aten::linear", value(0), tensor("m.w")))))
	must(t, err)
	// A single tensor is live before relu, and a single one before the last linear. Neither of the two has a gradient,
	// so there is no cut at these places.
	if len(n.Layers) != 3 || ops(n, n.Layers[0]) != "linear" || ops(n, n.Layers[1]) != "detach relu linear" {
		t.Errorf("%d layers; the second one runs %s", len(n.Layers), ops(n, n.Layers[1]))
	}
}

func TestModesAreOurs(t *testing.T) {
	none := aten.Arg{}
	norm := func(stats aten.Arg, train bool) []aten.Arg {
		return []aten.Arg{value(0), none, none, stats, stats, truth(train), float(0.1), float(1e-5), truth(false)}
	}
	for _, c := range []struct {
		op   string
		in   []aten.Arg
		want *Mode
	}{
		{"aten::dropout_", []aten.Arg{value(0), float(0.5), truth(true)}, &Mode{2, 1}},
		{"aten::dropout", []aten.Arg{value(0), float(0.5), truth(false)}, nil},
		{"aten::batch_norm", norm(tensor("m.b"), true), &Mode{5, -1}},
		{"aten::batch_norm", norm(tensor("m.b"), false), nil},
		{"aten::instance_norm", norm(none, true), nil},
	} {
		b := begin()
		n, err := b.end(b.tensor(c.op, c.in...))
		must(t, err)
		if m := n.Nodes[0].Mode; (m == nil) != (c.want == nil) || m != nil && *m != *c.want {
			t.Errorf("%s: mode %v instead of %v", c.op, m, c.want)
		}
	}
}

func TestRefusalsSayWhatToChange(t *testing.T) {
	cycle := func(b *graph) aten.Arg { return b.tensor("aten::relu", value(99)) }
	call := func(op string, in ...aten.Arg) func(*graph) aten.Arg {
		return func(b *graph) aten.Arg { return b.tensor(op, in...) }
	}
	for _, c := range []struct {
		make func(*graph) aten.Arg
		want string
	}{
		{cycle, "it reads value 99, which nobody yields before"},
		{call("aten::rand_like", value(0)), "use dropout"},
		{call("aten::bernoulli_.float", value(0), float(0.5)), "node 0, aten::bernoulli_.float in m: it draws random"},
		{call("aten::add_.Tensor", tensor("m.w"), value(0)), "it writes m.w in place, a parameter"},
		{call("aten::add_.Tensor", tensor("c"), value(0)), "it writes c in place, a constant"},
		{call("aten::embedding_renorm_", tensor("m.w"), value(0), float(1), float(2)),
			"max_norm= shortens rows of m.w, a parameter, in place; leave max_norm out, and scale the rows that are read: "},
		{func(b *graph) aten.Arg {
			b.call("aten::relu", "Tensor", []int64{4, 3}, value(0))
			b.call("aten::relu_", "Tensor", []int64{4, 5}, value(len(b.g.Nodes)+1))
			return value(len(b.g.Nodes) + 1)
		}, "it writes a tensor of the shape [4 3] in place, and [4 5] is recorded"},
		{call("aten::t_", value(0)), "write it without its underscore"},
		{call("prim::If", value(0)), "control flow"},
		{call("aten::Int.Tensor", value(0)), "a number is read out of a tensor in Python"},
		{call("aten::relu", tensor("gone")), `it reads "gone", which the module does not have`},
		{call("aten::dropout", value(0), float(2), truth(true)), "no fixed number from 0 to 1"},
		{call("aten::relu_"), "it has no argument to write"},
		{func(b *graph) aten.Arg {
			i := b.call("aten::size", "int", nil, value(0), integer(1))
			return b.call("aten::floordiv.int", "int", nil, i, integer(0))
		}, "divided by 0"},
		{func(b *graph) aten.Arg {
			r := b.call("aten::reshape", "Tensor", []int64{12}, value(0), listed(integer(-1)))
			b.tensor("aten::relu_", value(0))
			return r
		}, "clone() first"},
		{func(b *graph) aten.Arg {
			odd := b.call("aten::unknown", "Tensor", []int64{4, 3}, value(0))
			return b.call("aten::size", "int", nil, odd, integer(0))
		}, "such as 7"},
		{func(b *graph) aten.Arg {
			s := b.call("aten::size", "int", nil, value(0), integer(0))
			for range 2000 {
				s = b.call("aten::floordiv.int", "int", nil, b.call("aten::add.int", "int", nil, s, s), integer(3))
			}
			return s
		}, "more than 1000 steps"},
	} {
		b := begin()
		_, err := b.end(c.make(b))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v instead of %q", err, c.want)
		}
	}
}
