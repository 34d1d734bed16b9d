package pt2

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/model/aten"
)

// draw returns a graph as text, with a line for each of its parts.
func draw(g *aten.Graph) string {
	var out strings.Builder
	fmt.Fprintf(&out, "%s rows %d, %d to %d, loss %t\n", g.Name, g.Rows, g.Least, g.Most, !g.NoLoss)
	for _, in := range g.Inputs {
		fmt.Fprintf(&out, "input %s %%%d %s%v target %t\n", in.Name, in.Value, in.DType, in.Shape, in.Target)
	}
	for _, t := range g.Tensors {
		fmt.Fprintf(&out, "%s %s %s%v trained %t unsaved %t\n", [...]string{"parameter", "buffer", "constant"}[t.Role],
			t.Name, t.DType, t.Shape, t.Trained, t.Unsaved)
	}
	var aliases []string
	for name, of := range g.Aliases {
		aliases = append(aliases, "alias "+name+" of "+of+"\n")
	}
	slices.Sort(aliases)
	out.WriteString(strings.Join(aliases, ""))
	for _, n := range g.Nodes {
		for i, v := range n.Out {
			if i > 0 {
				out.WriteString(", ")
			}
			fmt.Fprintf(&out, "%%%d %s", v.ID, v.Type)
			if v.Type == "Tensor" {
				fmt.Fprintf(&out, " %s%v", v.DType, v.Shape)
			}
		}
		fmt.Fprintf(&out, " = %s%s", n.Op, drawList(n.In, "(", ")"))
		if n.Scope != "" {
			out.WriteString(" in " + n.Scope)
		}
		if n.Where != "" {
			out.WriteString(" at " + n.Where)
		}
		out.WriteString("\n")
	}
	for _, o := range g.Outputs {
		fmt.Fprintf(&out, "output %s %s\n", o.Name, drawArg(o.Arg))
	}
	for _, note := range g.Notes {
		out.WriteString("note " + note + "\n")
	}
	return out.String()
}

func drawList(args []aten.Arg, from, to string) string {
	texts := make([]string, len(args))
	for i, a := range args {
		texts[i] = drawArg(a)
	}
	return from + strings.Join(texts, ", ") + to
}

func drawArg(a aten.Arg) string {
	name := ""
	if a.Name != "" {
		name = a.Name + "="
	}
	switch a.Kind {
	case aten.FromValue:
		return fmt.Sprintf("%s%%%d", name, a.Value)
	case aten.FromTensor:
		return name + a.Tensor
	case aten.Int:
		return fmt.Sprint(name, a.Int)
	case aten.Float:
		return fmt.Sprintf("%s%gf", name, a.Float)
	case aten.Bool:
		return fmt.Sprint(name, a.Bool)
	case aten.Word, aten.Device:
		return fmt.Sprintf("%s%q", name, a.Text)
	case aten.List:
		return name + drawList(a.List, "[", "]")
	}
	return name + "none"
}

func open(t *testing.T, a archived) (*aten.Graph, *aten.Weights) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "mine.pt2")
	if err := os.WriteFile(path, a.zip(t), 0o644); err != nil {
		t.Fatal(err)
	}
	g, w, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return g, w
}

func want(t *testing.T, g *aten.Graph, text string) {
	t.Helper()
	if got := draw(g); got != text {
		t.Errorf("read\n%s\nwant\n%s", got, text)
	}
}

func wantFloats(t *testing.T, of map[string]*io.SectionReader, name string, floats ...float32) {
	t.Helper()
	r := of[name]
	if r == nil {
		t.Fatalf("there is no tensor %s", name)
	}
	raw, err := io.ReadAll(r)
	if err != nil || int64(len(raw)) != r.Size() {
		t.Fatalf("%s: %d bytes of %d: %v", name, len(raw), r.Size(), err)
	}
	got := make([]float32, len(raw)/4)
	for i := range got {
		got[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	if !slices.Equal(got, floats) {
		t.Errorf("%s has %v, want %v", name, got, floats)
	}
}

func TestMLPWithLoss(t *testing.T) {
	g, w := open(t, mlp(t))
	want(t, g, `mine rows 4, 4 to 4, loss true
input input %0 F32[4 2] target false
input target %1 I64[4] target true
parameter fc1.weight F32[3 2] trained true unsaved false
parameter fc1.bias F32[3] trained false unsaved false
parameter head.0.fc2.weight F32[2 3] trained true unsaved false
%2 Tensor F32[4 3] = aten::linear(%0, fc1.weight, fc1.bias) in fc1 at model.py:12
%3 Tensor F32[4 3] = aten::relu_(%2)
%4 Tensor F32[4 2] = aten::linear(%3, head.0.fc2.weight) in head.0.fc2
%5 Tensor F32[] = aten::cross_entropy_loss(%4, %1, label_smoothing=0.1f)
%6 Tensor F32[] = aten::mean(%4, dtype=6)
output loss %5
output average %6
note 1 assertions of the graph are left out
note the output logits, a tensor of shape [4 2], is not one number, and is left out
`)
	wantFloats(t, w.Of, "fc1.weight", 1, 2, 3, 4, 5, 6)
	wantFloats(t, w.Of, "fc1.bias", 7, 8, 0.5)
	wantFloats(t, w.Of, "head.0.fc2.weight", 1, 2, 3, 4, 5, 6)
	part := make([]byte, 8)
	if n, err := w.Of["head.0.fc2.weight"].ReadAt(part, 12); n != 8 || err != nil || string(part) != f32(4, 5) {
		t.Errorf("a part of a transposed weight is %d bytes %x: %v", n, part, err)
	}
}

// convnet has a convolution and a batch norm, a batch of any size, and PyTorch's calculations with sizes.
func convnet() archived {
	p := parts{
		inputs: []string{"parameter conv.weight", "p_w", "parameter bn.weight", "p_g", "parameter bn.bias", "p_b",
			"buffer bn.running_mean", "b_m", "buffer bn.running_var", "b_v", "buffer bn.num_batches_tracked", "b_n",
			"tensor_constant lifted_tensor_0", "c_t", "user_input", "x", "user_input", "y"},
		values: []string{"p_w", meta(7, "2,3,1,1"), "p_g", meta(7, "2"), "p_b", meta(7, "2"), "b_m", meta(7, "2"),
			"b_v", meta(7, "2"), "b_n", meta(5, ""), "c_t", meta(7, "2"), "x", meta(7, "B,3,2,2"), "y", meta(7, "B,8"),
			"conv2d", meta(7, "B,2,2,2"), "add_", meta(5, ""), "batch_norm", meta(7, "B,2,2,2"),
			"view", meta(7, "B,8"), "chunk_0", meta(7, "B,4"), "chunk_1", meta(7, "B,4"), "flat", meta(7, "2*s77=8,4"),
			"cat", meta(7, "u0=?,4"), "index", meta(7, "B,2"), "mse", meta(7, ""), "add", meta(7, "2")},
		nodes: []string{
			call("torch.ops.aten.conv2d.default", "conv", tensor("conv2d"), "input", "1", tensor("x"),
				"weight", "1", tensor("p_w"), "bias", "1", `{"as_none":true}`, "stride", "1", `{"as_ints":[1,1]}`,
				"groups", "2", `{"as_int":1}`),
			call("torch.ops.aten.add_.Tensor", "bn", tensor("add_"), "self", "1", tensor("b_n"),
				"other", "1", `{"as_int":1}`),
			call("torch.ops.aten.batch_norm.default", "bn", tensor("batch_norm"), "input", "1", tensor("conv2d"),
				"weight", "1", tensor("p_g"), "bias", "1", tensor("p_b"), "running_mean", "1", tensor("b_m"),
				"running_var", "1", tensor("b_v"), "training", "1", `{"as_bool":true}`, "momentum", "1", `{"as_float":0.1}`,
				"eps", "1", `{"as_float":1e-05}`, "cudnn_enabled", "1", `{"as_bool":true}`),
			call("torch.ops.aten.sym_size.int", "", symInt("sym_size_int"), "self", "1", tensor("x"), "dim", "1",
				`{"as_int":0}`),
			call("torch.ops.aten.view.default", "", tensor("view"), "self", "1", tensor("batch_norm"), "size", "1",
				`{"as_sym_ints":[{"as_name":"sym_size_int"},{"as_int":8}]}`),
			call("torch.ops.aten.chunk.default", "", `{"as_tensors":[{"name":"chunk_0"},{"name":"chunk_1"}]}`,
				"self", "1", tensor("view"), "chunks", "1", `{"as_int":2}`, "dim", "1", `{"as_int":-1}`),
			call("_operator.mul", "", symInt("mul"), "a", "1", `{"as_int":2}`, "b", "1", symInt("sym_size_int")),
			call("_operator.floordiv", "", symInt("half"), "a", "1", symInt("mul"), "b", "1", `{"as_int":2}`),
			call("_operator.truediv", "", `{"as_sym_float":{"as_name":"part"}}`, "a", "1", symInt("mul"), "b", "1",
				symInt("half")),
			call("_operator.mul", "", `{"as_sym_float":{"as_name":"scaled"}}`, "a", "1",
				`{"as_sym_float":{"as_name":"part"}}`, "b", "1", symInt("half")),
			call("_operator.ge", "", `{"as_sym_bool":{"as_name":"enough"}}`, "a", "1", symInt("mul"), "b", "1",
				`{"as_int":0}`),
			call("torch.ops.aten._assert_scalar.default", "", "", "self", "1", `{"as_sym_bool":{"as_name":"enough"}}`,
				"assert_msg", "1", `{"as_string":"no rows"}`),
			call("torch.ops.aten.reshape.default", "", tensor("flat"), "self", "1", tensor("view"), "shape", "1",
				`{"as_sym_ints":[{"as_name":"mul"},{"as_int":4}]}`),
			call("torch.ops.aten.cat.default", "", tensor("cat"), "tensors", "1",
				`{"as_tensors":[{"name":"chunk_0"},{"name":"chunk_1"},{"name":"flat"}]}`),
			call("torch.ops.aten.index.Tensor", "", tensor("index"), "self", "1", tensor("view"), "indices", "1",
				`{"as_optional_tensors":[{"as_none":true},{"as_tensor":{"name":"c_t"}}]}`),
			call("torch.ops.aten.add.Tensor", "bn", tensor("add"), "self", "1", tensor("b_m"), "other", "1",
				tensor("c_t"), "alpha", "2", `{"as_float":Infinity}`),
			call("torch.ops.aten.mse_loss.default", "", tensor("mse"), "self", "1", tensor("view"), "target", "1",
				tensor("y")),
		},
		outputs: []string{"buffer_mutation bn.running_mean", "add", "loss_output", "mse"},
		ranges:  `"s77":{"min_val":2,"max_val":null}`,
	}
	return archived{"archive_format": "pt2", modelJSON: p.json(),
		weightsJSON: config("conv.weight", strings.Replace(strings.Replace(payloadOf("weight_0", 7, 2, 3, 1, 1),
			`"strides":[{"as_int":3},{"as_int":1}`, `"strides":[{"as_int":1},{"as_int":2}`, 1), `"is_param":true,`, "", 1),
			"bn.weight", payloadOf("weight_1", 7, 2), "bn.bias", payloadOf("weight_2", 7, 2),
			"bn.running_mean", payloadOf("weight_3", 7, 2), "bn.num_batches_tracked", payloadOf("weight_5", 5)),
		constJSON: config("bn.running_var", payloadOf("tensor_0", 7, 2),
			"lifted_tensor_0", payloadOf("tensor_1", 7, 2)),
		"data/weights/weight_0": counted(6), "data/weights/weight_1": f32(1, 1), "data/weights/weight_2": f32(0, 0),
		"data/weights/weight_3": f32(0, 0), "data/constants/tensor_0": f32(1, 1),
		"data/weights/weight_5":   strings.Repeat("\x00", 8),
		"data/constants/tensor_1": f32(3, 4)}
}

func TestConvolutionWithDynamicBatch(t *testing.T) {
	g, w := open(t, convnet())
	want(t, g, `mine rows 4, 2 to 0, loss true
input x %0 F32[4 3 2 2] target false
input y %1 F32[4 8] target true
parameter conv.weight F32[2 3 1 1] trained true unsaved false
parameter bn.weight F32[2] trained true unsaved false
parameter bn.bias F32[2] trained true unsaved false
buffer bn.running_mean F32[2] trained false unsaved false
buffer bn.running_var F32[2] trained false unsaved true
buffer bn.num_batches_tracked I64[] trained false unsaved false
constant lifted_tensor_0 F32[2] trained false unsaved false
%2 Tensor F32[4 2 2 2] = aten::conv2d(%0, conv.weight, none, [1, 1], groups=1) in conv
%3 Tensor I64[] = aten::add_.Tensor(bn.num_batches_tracked, 1) in bn
%4 Tensor F32[4 2 2 2] = aten::batch_norm(%2, bn.weight, bn.bias, bn.running_mean, bn.running_var, `+
		`true, 0.1f, 1e-05f, true) in bn
%5 int = aten::size.int(%0, 0)
%6 Tensor F32[4 8] = aten::view(%4, [%5, 8])
%7 Tensor[] = aten::chunk(%6, 2, -1)
%8 Tensor F32[4 4], %9 Tensor F32[4 4] = prim::ListUnpack(%7)
%10 int = aten::mul.int(2, %5)
%11 int = aten::floordiv.int(%10, 2)
%12 float = aten::div.int(%10, %11)
%13 float = aten::mul.float_int(%12, %11)
%14 bool = aten::ge.int(%10, 0)
%15 Tensor F32[8 4] = aten::reshape(%6, [%10, 4])
%16 Tensor F32[] = aten::cat([%8, %9, %15])
%17 Tensor F32[4 2] = aten::index.Tensor(%6, [none, lifted_tensor_0])
%18 Tensor F32[2] = aten::add.Tensor(bn.running_mean, lifted_tensor_0, alpha=+Inff) in bn
%19 Tensor F32[] = aten::mse_loss(%6, %1)
%20 Tensor F32[2] = aten::copy_(bn.running_mean, %18)
output loss %19
note 1 assertions of the graph are left out
`)
	if cat := g.Nodes[13].Out[0]; cat.Shape != nil {
		t.Errorf("a shape that depends on values is %v, want nil", cat.Shape)
	}
	wantFloats(t, w.Of, "conv.weight", 0, 2, 4, 1, 3, 5)
	wantFloats(t, w.Of, "lifted_tensor_0", 3, 4)
}

// tied has an embedding whose weight is also the weight of the head, under another name. It returns no loss.
func tied() archived {
	p := parts{
		inputs: []string{"parameter embed.weight", "p_e", "parameter head.weight", "p_h", "user_input", "tokens"},
		values: []string{"p_e", meta(7, "5,2"), "p_h", meta(7, "5,2"), "tokens", meta(5, "B,3"),
			"embedding", meta(7, "B,3,2"), "linear", meta(7, "B,3,5")},
		nodes: []string{
			call("torch.ops.aten.embedding.default", "L['self'].embed", tensor("embedding"), "weight", "1", tensor("p_e"),
				"indices", "1", tensor("tokens")),
			call("torch.ops.aten.linear.default", "head", tensor("linear"), "input", "1", tensor("embedding"),
				"weight", "1", tensor("p_h")),
		},
		outputs: []string{"user_output", "linear"},
		outSpec: `[1, {"type": null, "context": null, "children_spec": []}]`,
		ranges:  `"s77":{"min_val":0,"max_val":9223372036854775806}`,
	}
	return archived{"archive_format": "pt2", modelJSON: p.json(),
		weightsJSON: config("embed.weight", payloadOf("weight_0", 7, 5, 2), "head.weight", payloadOf("weight_0", 7, 5, 2),
			"lm.weight", payloadOf("weight_0", 7, 5, 2), "spare", payloadOf("weight_1", 7, 1)),
		"data/weights/weight_0": counted(10), "data/weights/weight_1": f32(1)}
}

func TestTiedWeightsAndNoLoss(t *testing.T) {
	g, w := open(t, tied())
	want(t, g, `mine rows 4, 1 to 0, loss false
input tokens %0 I64[4 3] target false
parameter embed.weight F32[5 2] trained true unsaved false
alias head.weight of embed.weight
alias lm.weight of embed.weight
%1 Tensor F32[4 3 2] = aten::embedding(embed.weight, %0) in embed
%2 Tensor F32[4 3 5] = aten::linear(%1, embed.weight) in head
output output0 %2
note 1 tensors that the graph does not have are left out: spare
`)
	wantFloats(t, w.Of, "embed.weight", 0, 1, 2, 3, 4, 5, 6, 7, 8, 9)
	if len(w.Of) != 1 {
		t.Errorf("%d tensors have elements, want 1", len(w.Of))
	}
}

// masked has two inputs and a target, uses a mask, and returns a named tuple.
func masked() archived {
	leaf := `{"type": null, "context": null, "children_spec": []}`
	p := parts{
		inputs: []string{"parameter q.weight", "p_q", "user_input", "x", "user_input", "mask", "user_input", "y"},
		values: []string{"p_q", meta(7, "2,2"), "x", meta(7, "B,3,2"), "mask", meta(12, "B,3"), "y", meta(7, "B,3,2"),
			"linear", meta(7, "B,3,2"), "where", meta(7, "B,3,2"), "unsqueeze", meta(12, "B,3,1"), "fill", meta(7, "B,3,2"),
			"sdpa", meta(7, "B,3,2"), "drop", meta(7, "B,3,2"), "arange", meta(5, "3"), "mse", meta(7, ""),
			"acc", meta(7, ""), "gelu", meta(7, "B,3,2"), "h", meta(7, "1,4,2"), "c", meta(7, "1,4,2")},
		nodes: []string{
			call("torch.ops.aten.linear.default", "q", tensor("linear"), "input", "1", tensor("x"), "weight", "1",
				tensor("p_q")),
			call("torch.ops.aten.unsqueeze.default", "", tensor("unsqueeze"), "self", "1", tensor("mask"), "dim", "1",
				`{"as_int":-1}`),
			call("torch.ops.aten.masked_fill.Scalar", "", tensor("fill"), "self", "1", tensor("linear"), "mask", "1",
				tensor("unsqueeze"), "value", "1", `{"as_float":"-Infinity"}`),
			call("torch.ops.aten.scaled_dot_product_attention.default", "", tensor("sdpa"), "query", "1", tensor("fill"),
				"key", "1", tensor("fill"), "value", "1", tensor("fill"), "is_causal", "2", `{"as_bool":true}`,
				"scale", "2", `{"as_float":0.5}`),
			call("torch.ops.aten.dropout.default", "drop", tensor("drop"), "input", "null", tensor("sdpa"), "p", "null",
				`{"as_float":0.1}`, "train", "null", `{"as_bool":true}`),
			call("torch.ops.aten.gelu.default", "", tensor("gelu"), "self", "1", tensor("drop"), "approximate", "2",
				`{"as_string":"tanh"}`),
			call("torch.ops.aten.arange.default", "", tensor("arange"), "end", "1", `{"as_int":3}`, "dtype", "2",
				`{"as_scalar_type":5}`, "layout", "2", `{"as_layout":7}`, "device", "2",
				`{"as_device":{"type":"cuda","index":0}}`, "pin_memory", "2", `{"as_bool":false}`),
			call("torch.ops.aten.clone.default", "", tensor("where"), "self", "1", tensor("gelu"), "memory_format", "2",
				`{"as_memory_format":4}`),
			call("torch.ops.mine.pair.default", "", tensor("h")+`,{"as_none":true},`+tensor("c"), "xs", "1",
				`{"as_nested_tensors":[[{"name":"x"}],[{"name":"y"},{"name":"gelu"}]]}`, "sizes", "1",
				`{"as_int_lists":[[1],[2,3]]}`, "names", "1", `{"as_strings":["a","b"]}`, "flags", "1",
				`{"as_bools":[true,false]}`, "scales", "1", `{"as_floats":[1.5,"NaN"]}`, "one", "1",
				`{"as_optional_tensor":{"as_tensor":{"name":"x"}}}`, "none", "1", `{"as_optional_tensor":{"as_none":true}}`),
			call("torch.ops.aten.mse_loss.default", "", tensor("mse"), "self", "1", tensor("where"), "target", "1",
				tensor("y")),
			call("torch.ops.aten.sum.default", "", tensor("acc"), "self", "1", tensor("where")),
		},
		outputs: []string{"user_output", "acc", "user_output", "where", "user_output", "mse"},
		outSpec: `[1, {"type": "collections.namedtuple", "context": "\"m.Out\"", "children_spec": [` + leaf +
			`, {"type": "builtins.list", "context": "null", "children_spec": [` + leaf + `]}, ` + leaf + `]}]`,
		fields: `"m.Out":{"field_names":["total","hidden","loss"]}`,
		ranges: `"s77":{"min_val":2,"max_val":64}`,
	}
	return archived{"archive_format": "pt2", modelJSON: p.json(),
		weightsJSON: config("q.weight", payloadOf("weight_0", 7, 2, 2)), "data/weights/weight_0": counted(4)}
}

func TestTwoInputsWithMask(t *testing.T) {
	g, _ := open(t, masked())
	want(t, g, `mine rows 4, 2 to 64, loss true
input x %0 F32[4 3 2] target false
input mask %1 BOOL[4 3] target false
input y %2 F32[4 3 2] target true
parameter q.weight F32[2 2] trained true unsaved false
%3 Tensor F32[4 3 2] = aten::linear(%0, q.weight) in q
%4 Tensor BOOL[4 3 1] = aten::unsqueeze(%1, -1)
%5 Tensor F32[4 3 2] = aten::masked_fill.Scalar(%3, %4, -Inff)
%6 Tensor F32[4 3 2] = aten::scaled_dot_product_attention(%5, %5, %5, is_causal=true, scale=0.5f)
%7 Tensor F32[4 3 2] = aten::dropout(input=%6, p=0.1f, train=true) in drop
%8 Tensor F32[4 3 2] = aten::gelu(%7, approximate="tanh")
%9 Tensor I64[3] = aten::arange(3, dtype=4, layout=0, device="cuda", pin_memory=false)
%10 Tensor F32[4 3 2] = aten::clone(%8, memory_format=1)
%11 Tensor F32[1 4 2], %12 Tensor [], %13 Tensor F32[1 4 2] = mine::pair([[%0], [%2, %8]], [[1], [2, 3]], `+
		`["a", "b"], [true, false], [1.5f, NaNf], %0, none)
%14 Tensor F32[] = aten::mse_loss(%10, %2)
%15 Tensor F32[] = aten::sum(%10)
output loss %14
output total %15
note the output hidden.0, a tensor of shape [4 3 2], is not one number, and is left out
`)
}

func TestReadNeedsNoFolderAndTakesCompressedText(t *testing.T) {
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	a := masked()
	for _, name := range []string{"archive_format", modelJSON, weightsJSON} {
		add(t, w, name, a[name], 8)
	}
	add(t, w, "data/weights/weight_0", a["data/weights/weight_0"], 0)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	_, of, err := read(bytes.NewReader(out.Bytes()), int64(out.Len()), "net")
	if err != nil {
		t.Fatal(err)
	}
	wantFloats(t, of, "q.weight", 0, 1, 2, 3)
}
