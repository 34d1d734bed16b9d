package pt2

import (
	"bytes"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/model/aten"
)

// readGraph reads an archive from memory.
func readGraph(t *testing.T, a archived) *aten.Graph {
	t.Helper()
	raw := a.zip(t)
	g, _, err := read(bytes.NewReader(raw), int64(len(raw)), "net")
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// returning makes a module with two inputs that returns the given outputs, by name. "loss_output number" marks the
// output called number as the loss.
func returning(outSpec string, outputs ...string) archived {
	p := parts{inputs: []string{"user_input", "x", "user_input", "y"}, outSpec: outSpec,
		values: []string{"x", meta(7, "B,2"), "y", meta(7, "B,2"), "number", meta(7, ""), "one", meta(7, "1,1"),
			"count", meta(5, ""), "rows", meta(7, "B,2"), "half", meta(6, "")}}
	for _, name := range []string{"number", "one", "count", "rows", "half"} {
		p.nodes = append(p.nodes, call("torch.ops.mine."+name+".default", "", tensor(name), "x", "1", tensor("x")))
	}
	for _, o := range outputs {
		kind, name, marked := strings.Cut(o, " ")
		if !marked {
			kind, name = "user_output", o
		}
		p.outputs = append(p.outputs, kind, name)
	}
	return archived{"archive_format": "pt2", modelJSON: p.json(), weightsJSON: config()}
}

func TestLossAmongOutputs(t *testing.T) {
	leaf := `{"type":null,"context":null,"children_spec":[]}`
	dict := func(kind, keys string, count int) string {
		return `[1,{"type":"` + kind + `","context":"` + strings.ReplaceAll(keys, `"`, `\"`) + `","children_spec":[` +
			strings.TrimSuffix(strings.Repeat(leaf+",", count), ",") + `]}]`
	}
	tuple := `[1,{"type":"builtins.tuple","context":"null","children_spec":[` + leaf + "," + leaf + `]}]`
	for _, c := range []struct {
		name string
		of   archived
		want string
	}{
		{"one number", returning("", "number"), "loss %2"},
		{"one number of two dimensions", returning("", "one"), "loss %7"},
		{"half precision", returning("", "half"), "loss %6"},
		{"a tuple with numbers", returning(tuple, "number", "count"), "loss %2, output1 %4"},
		{"a tuple with rows first", returning(tuple, "rows", "number"), "none: output0 %5, output1 %2"},
		{"a dict with a loss", returning(dict("builtins.dict", `["a","loss"]`, 2), "one", "number"), "loss %2, a %3"},
		{"a dict without", returning(dict("builtins.dict", `["a","b"]`, 2), "one", "number"), "none: a %3, b %2"},
		{"an ordered dict without", returning(dict("collections.OrderedDict", `["a","b"]`, 2), "one", "number"),
			"none: a %3, b %2"},
		{"a dict whose loss is rows", returning(dict("builtins.dict", `["loss","b"]`, 2), "rows", "number"),
			"none: loss %5, b %2"},
		{"a dict with numbers for keys", returning(dict("builtins.dict", `[1,2]`, 2), "one", "number"),
			"none: output0 %3, output1 %2"},
		{"a loss that the file marks", returning(tuple, "one", "loss_output number"), "loss %2, output0 %3"},
		{"a whole number", returning("", "count"), "none: output0 %4"},
		{"an input", returning("", "x"), "none: output0 %0"},
		{"a structure that does not fit", returning(tuple, "number"), "loss %2"},
		{"a structure that is no JSON", returning("[1,", "number"), "loss %2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := readGraph(t, c.of)
			var all []string
			for _, o := range g.Outputs {
				all = append(all, o.Name+" "+drawArg(o.Arg))
			}
			got := strings.Join(all, ", ")
			if g.NoLoss {
				got = "none: " + got
			}
			if got != c.want {
				t.Errorf("outputs are %s, want %s", got, c.want)
			}
			if n := g.Nodes[len(g.Nodes)-1]; n.Op == "aten::reshape" &&
				(drawList(n.In, "", "") != "%3, []" || n.Out[0].ID != 7 || n.Out[0].Shape == nil) {
				t.Errorf("the loss is made one number by %v", n)
			}
			for i, in := range g.Inputs {
				if in.Target != (!g.NoLoss && i == 1) {
					t.Errorf("input %d: target is %t", i, in.Target)
				}
			}
		})
	}
	clash := returning(dict("builtins.dict", `["loss","b"]`, 2), "one", "loss_output number")
	refused(t, clash.zip(t), "the output loss is not the one that the file says is the loss, b")
}

// A model with a loss but only one input has no target, and is refused.
func TestLossWithoutTargetIsRefused(t *testing.T) {
	p := parts{inputs: []string{"user_input", "x"}, outputs: []string{"user_output", "sum"},
		values: []string{"x", meta(7, "B,2"), "sum", meta(7, "")},
		nodes:  []string{call("torch.ops.aten.sum.default", "", tensor("sum"), "self", "1", tensor("x"))}}
	a := archived{"archive_format": "pt2", modelJSON: p.json(), weightsJSON: config()}
	refused(t, a.zip(t), "the module returns a loss and has one input, x: the last input is the target")
	p.inputs = nil
	refused(t, a.with(modelJSON, p.json()).zip(t), "the module takes no tensors")
	p.inputs, p.outputs = []string{"user_input", "x"}, nil
	refused(t, a.with(modelJSON, p.json()).zip(t), "the module returns no tensor")
}

func TestScopesAndLines(t *testing.T) {
	for stack, want := range map[string]string{
		"": "", "L__self__,,m.Net": "", "a,,m.Net;b,layer1.0.conv1,torch.nn.Conv2d": "layer1.0.conv1",
		"a,L['self'],m.Net;b,L['self'].layer1[0].conv1,m.C":             "layer1.0.conv1",
		"a,,m.Net;b,L['self']._modules['blocks']._modules['2'].mlp,m.C": "blocks.2.mlp",
		"a,,m.Net;b,norm@1,m.C":                                         "norm", "no stack": "", "a;b": "",
	} {
		if got := scopeOf(stack); got != want {
			t.Errorf("the module of %s is %q, want %q", stack, got, want)
		}
	}
	for stack, want := range map[string]string{
		"": "", "nothing": "",
		"File \"/a/b.py\", line 3, in forward\n  x\nFile \"/c d/e.py\", line 40, in g\n  y":        "e.py:40",
		"File \"/a/b.py\", line 3, in f\nFile \"/v/site-packages/torch/nn/f.py\", line 9, in relu": "b.py:3",
		"File \"/v/site-packages/torch/nn/f.py\", line 9, in relu":                                 "f.py:9",
	} {
		if got := whereOf(stack); got != want {
			t.Errorf("the line of %q is %q, want %q", stack, got, want)
		}
	}
}

// Two constants with the same elements in the same storage become one tensor of the graph.
func TestConstantsOfOneStorage(t *testing.T) {
	p := parts{inputs: []string{"tensor_constant lifted_tensor_0", "a", "tensor_constant lifted_tensor_1", "b",
		"user_input", "x"}, outputs: []string{"user_output", "c"},
		values: []string{"a", meta(7, "2"), "b", meta(7, "2"), "x", meta(7, "B,2"), "c", meta(7, "B,2")},
		nodes: []string{call("torch.ops.aten.add.Tensor", "", tensor("c"), "self", "1", tensor("a"), "other", "1",
			tensor("b"))}}
	a := archived{"archive_format": "pt2", modelJSON: p.json(), weightsJSON: config(),
		constJSON: config("lifted_tensor_0", payloadOf("tensor_0", 7, 2),
			"lifted_tensor_1", payloadOf("tensor_0", 7, 2)),
		"data/constants/tensor_0": f32(1, 2)}
	g := readGraph(t, a)
	if got := drawList(g.Nodes[0].In, "", ""); got != "lifted_tensor_0, lifted_tensor_0" || len(g.Aliases) > 0 {
		t.Errorf("it adds %s, with aliases %v", got, g.Aliases)
	}
	p.inputs[2] = "buffer lifted_tensor_1"
	refused(t, a.with(modelJSON, p.json()).zip(t),
		"lifted_tensor_0 and lifted_tensor_1 share their elements, and only one is a parameter or buffer")
	// Some versions of torch wrote storage_offset 0 for every view.
	refused(t, a.with("data/constants/tensor_0", f32(1, 2, 3, 4)).zip(t), "lifted_tensor_1: it and lifted_tensor_0 are "+
		"said to lie at one place of data/constants/tensor_0, which has more than one tensor: clone() both")
}
