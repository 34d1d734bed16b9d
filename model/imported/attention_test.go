package imported_test

import (
	"archive/zip"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/internal/torchtest"
	"github.com/millrace-ml/millrace/model/aten"
	"github.com/millrace-ml/millrace/model/imported"
)

// PyTorch 2's attention operator is fused if it is causal. Otherwise it is not fused, and the reason is given. Files of
// torch.export.save call the operator with keyword arguments. In all cases the result is what PyTorch 1.13 computes for
// the same attention by single operators.
func TestAttentionOfPyTorch2(t *testing.T) {
	causal, linears := map[string]int{"causal_attention": 1, "linear": 2}, map[string]int{"linear": 2}
	flag := map[string]any{"is_causal": true}
	mask := map[string]any{"attn_mask": map[string]any{"as_tensor": named("mask")}}
	cases := map[string]struct {
		given map[string]any
		fused map[string]int
		left  string
	}{
		"by_flag":   {flag, causal, ""},
		"scaled":    {map[string]any{"is_causal": true, "scale": 0.5, "dropout_p": 0.0}, causal, ""},
		"otherwise": {map[string]any{"is_causal": true, "scale": 0.3}, linears, "its scores are not scaled by 1/sqrt(4)"},
		"all":       {nil, linears, "it is not causal"},
		"bools":     {mask, causal, ""},
		"floats":    {mask, causal, ""},
		"banded":    {mask, linears, "its mask is not causal"},
		"blind":     {mask, linears, "its mask is not causal"},
		"grouped":   {map[string]any{"is_causal": true, "enable_gqa": true}, linears, "its queries, keys and values are not"},
		"wide":      {flag, linears, "its queries, keys and values are not heads"},
		"short":     {flag, linears, "its queries, keys and values are not heads"},
	}
	var requests []torchtest.Request
	for _, name := range slices.Sorted(maps.Keys(cases)) {
		requests = append(requests, torchtest.Request{Name: name, File: "fusing.py"})
	}
	for _, a := range torchtest.Run(t, requests...) {
		t.Run(a.Name, func(t *testing.T) {
			if a.Code != 0 {
				t.Fatal(a.Said)
			}
			want, one := torchtest.Read(t, a.Numbers), cases[a.Name]
			a.Model = calling(t, a.Model, a.Name, one.given)
			dev, plain := device(t), opened(t, a.Model, imported.Off).Model
			compare(t, dev, plain, want, "a", 1e-6, 0)
			compare(t, dev, plain, want, "b", 1e-6, 0)
			report := fusedToo(t, a, want).Fuse
			if !maps.Equal(report.Fused, one.fused) {
				t.Errorf("fused are %v, want %v", report.Fused, one.fused)
			}
			if len(report.Left) > 1 || (len(report.Left) == 1) != (one.left != "") ||
				one.left != "" && !strings.HasPrefix(report.Left[0].Reason, one.left) {
				t.Errorf("left alone are %+v, want %q", report.Left, one.left)
			}
		})
	}
}

// The dropout of PyTorch 2's attention is fused together with the attention. If the attention is not fused, its dropout
// stays in place. The dropout has the same rate in both cases.
func TestDropoutOfPyTorch2sAttention(t *testing.T) {
	a := torchtest.Run(t, torchtest.Request{Name: "by_flag", File: "fusing.py"})[0]
	batch := torchtest.Read(t, a.Numbers)
	for _, causal := range []bool{true, false} {
		path := calling(t, a.Model, a.Name, map[string]any{"is_causal": causal, "dropout_p": 0.3})
		n, dev := opened(t, path, imported.Fused), device(t)
		if (n.Fuse.Fused["causal_attention"] == 1) != causal {
			t.Errorf("causal %v: fused are %v", causal, n.Fuse.Fused)
		}
		whole := newLine(t, dev, n.Model, 0)
		defer whole.close()
		loss, found := whole.step(batch, "a")
		var cuts []int
		for cut := 1; cut < len(n.Model.Layers); cut++ {
			cuts = append(cuts, cut)
		}
		equalBits(t, "cut everywhere", dev, n.Model, batch, loss, found, 0, cuts...)
		equalBits(t, "recomputed", dev, n.Model, batch, loss, found, len(cuts)+1)
		halves(t, n, batch)
		plain := newLine(t, dev, opened(t, path, imported.Off).Model, 0)
		defer plain.close()
		other, gradients := plain.step(batch, "a")
		if math.Abs(other-loss) > 1e-6*loss {
			t.Errorf("causal %v: a loss of %v fused, of %v unfused", causal, loss, other)
		}
		for name, x := range gradients {
			if d := apart(found[name], x, 1e-6); d > 1e-4 {
				t.Errorf("causal %v: %s is %.3g away from that unfused", causal, name, d)
			}
		}
		if again := plain.forward(1, batch, "a"); math.Abs(again-other) < 1e-6*other {
			t.Errorf("causal %v: another micro-batch has a loss of %v too: nothing is dropped", causal, again)
		}
	}
}

// calling writes a .pt2 file with PyTorch 2's attention. The file is made from a module of fusing.py that was exported
// without this operator.
func calling(t *testing.T, exported, how string, given map[string]any) string {
	t.Helper()
	g, weights, err := aten.Read(exported)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := weights.Close(); err != nil {
			t.Error(err)
		}
	}()
	f := pt2File{members: map[string]string{"archive_format": "pt2"}, values: map[string]any{}}
	payloads, wide := f.tensors(t, g, weights)
	for _, in := range g.Inputs {
		f.meta(in.Name, in.DType, append([]int64{0}, in.Shape[1:]...)...)
		f.input(in.Name, "user_input", map[string]any{"arg": tensorArg(in.Name)})
	}
	rows := map[string]any{"as_name": "rows"}
	f.call("sym_size.int", map[string]any{"as_sym_int": rows}, "self", tensorArg("x"), "dim", intArg(0))
	f.linear("qkv", "x", []int64{6, wide["qkv.weight"]})
	widths := [3]int64{8, 8, 8}
	switch how {
	case "grouped":
		widths = [3]int64{8, 4, 4}
	case "wide":
		widths = [3]int64{8, 8, 16}
	}
	f.heads(widths, rows)
	query, length, each := "q", int64(6), widths[2]/2
	if how == "grouped" {
		each = 4
	}
	if how == "short" {
		query, length = "early", 4
		f.meta(query, "F32", 0, 2, length, 4)
		f.call("slice.Tensor", tensorArg(query), "self", tensorArg("q"), "dim", intArg(2), "start", intArg(0), "end",
			intArg(length))
	}
	args := []any{"query", tensorArg(query), "key", tensorArg("k"), "value", tensorArg("v")}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		args = append(args, "*"+name, argument(given[name]))
	}
	f.meta("attention", "F32", 0, 2, length, each)
	f.call("scaled_dot_product_attention.default", tensorArg("attention"), args...)
	f.meta("turned", "F32", 0, length, 2, each)
	f.call("transpose.int", tensorArg("turned"), "self", tensorArg("attention"), "dim0", intArg(1), "dim1", intArg(2))
	f.meta("flat", "F32", 0, length, 2*each)
	f.call("flatten.using_ints", tensorArg("flat"), "self", tensorArg("turned"), "start_dim", intArg(2))
	f.linear("out", "flat", []int64{length, 1})
	f.meta("mean", "F32", 0)
	f.call("mean.dim", tensorArg("mean"), "self", tensorArg("out"), "dim",
		map[string]any{"as_ints": []int64{1, 2}})
	f.meta("loss", "F32")
	f.call("mse_loss.default", tensorArg("loss"), "self", tensorArg("mean"), "target", tensorArg("y"))
	return f.write(t, payloads)
}

// tensors appends a graph's weights to the file. For each weight it returns the description in the file, and the size
// of the first dimension.
func (f *pt2File) tensors(t *testing.T, g *aten.Graph, weights *aten.Weights) (map[string]any, map[string]int64) {
	t.Helper()
	payloads, wide := map[string]any{}, map[string]int64{}
	for i, x := range g.Tensors {
		if x.Role == aten.Constant {
			continue // a Constant is read only by the exported attention, which the kind attention has replaced
		}
		raw, err := io.ReadAll(weights.Of[x.Name])
		if err != nil {
			t.Fatal(err)
		}
		path := fmt.Sprint("weight_", i)
		f.members["data/weights/"+path] = string(raw)
		wide[x.Name] = x.Shape[0]
		payloads[x.Name] = map[string]any{"path_name": path, "is_param": x.Trained, "use_pickle": false,
			"tensor_meta": f.meta(x.Name, x.DType, x.Shape...)}
		kind, role := "buffer", map[string]any{"arg": named(x.Name), "buffer_name": x.Name, "persistent": true}
		if x.Trained {
			kind, role = "parameter", map[string]any{"arg": named(x.Name), "parameter_name": x.Name}
		}
		f.input(x.Name, kind, role)
	}
	return payloads, wide
}

// heads splits qkv into q, k and v of these widths, and each of the three into heads. A head has width 8 if its tensor
// has width 16, and otherwise width 4.
func (f *pt2File) heads(widths [3]int64, rows any) {
	var parts, sizes []any
	for i, name := range []string{"q0", "k0", "v0"} {
		f.meta(name, "F32", 0, 6, widths[i])
		parts, sizes = append(parts, named(name)), append(sizes, widths[i])
	}
	f.call("split_with_sizes.default", map[string]any{"as_tensors": parts}, "self", tensorArg("qkv"), "split_sizes",
		map[string]any{"as_ints": sizes}, "dim", intArg(-1))
	for i, name := range []string{"q", "k", "v"} {
		each := int64(4)
		if widths[i] == 16 {
			each = 8
		}
		heads := widths[i] / each
		f.meta(name+"1", "F32", 0, 6, heads, each)
		f.call("view.default", tensorArg(name+"1"), "self", tensorArg(name+"0"), "size",
			map[string]any{"as_sym_ints": []any{rows, intArg(6), intArg(heads), intArg(each)}})
		f.meta(name, "F32", 0, heads, 6, each)
		f.call("transpose.int", tensorArg(name), "self", tensorArg(name+"1"), "dim0", intArg(1), "dim1", intArg(2))
	}
}

func named(name string) map[string]any     { return map[string]any{"name": name} }
func tensorArg(name string) map[string]any { return map[string]any{"as_tensor": named(name)} }
func intArg(n int64) map[string]any        { return map[string]any{"as_int": n} }

func argument(x any) any {
	switch x := x.(type) {
	case bool:
		return map[string]any{"as_bool": x}
	case float64:
		return map[string]any{"as_float": x}
	}
	return x
}

// pt2File is a file of torch.export.save under construction, in the format whose schema PyTorch publishes.
type pt2File struct {
	members map[string]string
	values  map[string]any
	inputs  []any
	specs   []any
	nodes   []any
}

// meta records a tensor's description. A size of 0 means the batch.
func (f *pt2File) meta(name string, of aten.DType, shape ...int64) any {
	sizes, strides, step := make([]any, len(shape)), make([]any, len(shape)), int64(1)
	for i := len(shape) - 1; i >= 0; i-- {
		sizes[i], strides[i] = intArg(shape[i]), intArg(step)
		if step *= shape[i]; shape[i] == 0 {
			sizes[i] = map[string]any{"as_expr": map[string]any{"expr_str": "Symbol('s77', positive=True, integer=True)",
				"hint": intArg(4)}}
		}
	}
	f.values[name] = map[string]any{"dtype": map[aten.DType]int{"F32": 7, "BOOL": 12}[of], "sizes": sizes,
		"requires_grad": of == "F32", "device": map[string]any{"type": "cpu", "index": nil}, "strides": strides,
		"storage_offset": intArg(0), "layout": 7}
	return f.values[name]
}

func (f *pt2File) input(name, kind string, role any) {
	f.inputs, f.specs = append(f.inputs, tensorArg(name)), append(f.specs, map[string]any{kind: role})
}

// call appends a node. Its arguments are pairs of a name and a value. An argument whose name begins with * is passed by
// keyword.
func (f *pt2File) call(op string, out any, args ...any) {
	var in []any
	for i := 0; i < len(args); i += 2 {
		kind := 1
		name, keyword := strings.CutPrefix(args[i].(string), "*")
		if keyword {
			kind = 2
		}
		in = append(in, map[string]any{"name": name, "arg": args[i+1], "kind": kind})
	}
	f.nodes = append(f.nodes, map[string]any{"target": "torch.ops.aten." + op, "inputs": in, "outputs": []any{out},
		"metadata": map[string]any{}})
}

func (f *pt2File) linear(name, of string, shape []int64) {
	f.meta(name, "F32", append([]int64{0}, shape...)...)
	f.call("linear.default", tensorArg(name), "input", tensorArg(of), "weight", tensorArg(name+".weight"), "bias",
		tensorArg(name+".bias"))
}

// write writes the file and returns its path.
func (f *pt2File) write(t *testing.T, payloads map[string]any) string {
	t.Helper()
	text := func(x any) string {
		b, err := json.Marshal(x)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	f.members["data/weights/model_weights_config.json"] = text(map[string]any{"config": payloads})
	f.members["models/model.json"] = text(map[string]any{"graph_module": map[string]any{
		"graph": map[string]any{"inputs": f.inputs, "outputs": []any{tensorArg("loss")}, "nodes": f.nodes,
			"tensor_values": f.values, "sym_int_values": map[string]any{}, "sym_bool_values": map[string]any{}},
		"signature": map[string]any{"input_specs": f.specs,
			"output_specs": []any{map[string]any{"loss_output": map[string]any{"arg": named("loss")}}}},
		"module_call_graph": []any{}},
		"opset_version": map[string]int{"aten": 10}, "schema_version": map[string]int{"major": 8, "minor": 14},
		"range_constraints": map[string]any{"s77": map[string]any{"min_val": 1, "max_val": nil}},
		"verifiers":         []string{"TRAINING"}, "torch_version": "2.9.1"})
	path := filepath.Join(t.TempDir(), "called.pt2")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w := zip.NewWriter(file)
	for _, name := range slices.Sorted(maps.Keys(f.members)) {
		m, err := w.CreateHeader(&zip.FileHeader{Name: "called/" + name, Method: zip.Store})
		if err == nil {
			_, err = io.WriteString(m, f.members[name])
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}
