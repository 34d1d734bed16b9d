package pt2

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
)

// The fixtures follow torch/_export/serde/schema.yaml and torch/export/pt2_archive. They are written as text, and
// share no code with the reader.

// archived holds the members of an archive, without torch's top folder.
type archived map[string]string

// with returns a copy with changed members; an empty text removes a member.
func (a archived) with(changes ...string) archived {
	b := maps.Clone(a)
	for i := 0; i < len(changes); i += 2 {
		if b[changes[i]] = changes[i+1]; changes[i+1] == "" {
			delete(b, changes[i])
		}
	}
	return b
}

// replace returns a copy in which a part of a member's text is replaced. The part must exist.
func (a archived) replace(t testing.TB, member, old, now string) archived {
	t.Helper()
	if !strings.Contains(a[member], old) {
		t.Fatalf("%s has no %s", member, old)
	}
	return a.with(member, strings.Replace(a[member], old, now, 1))
}

// zip writes an archive like torch: with a top folder and without compression.
func (a archived) zip(t testing.TB) []byte {
	t.Helper()
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	for _, name := range slices.Sorted(maps.Keys(a)) {
		add(t, w, "net/"+name, a[name], zip.Store)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func add(t testing.TB, w *zip.Writer, name, text string, method uint16) {
	t.Helper()
	m, err := w.CreateHeader(&zip.FileHeader{Name: name, Method: method})
	if err == nil {
		_, err = m.Write([]byte(text))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// f32 returns the bytes of floats.
func f32(values ...float32) string {
	var out []byte
	for _, v := range values {
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(v))
	}
	return string(out)
}

// counted returns the bytes of the floats 0, 1, 2, ...
func counted(count int) string {
	values := make([]float32, count)
	for i := range values {
		values[i] = float32(i)
	}
	return f32(values...)
}

func testdata(t testing.TB, name string) string {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

const (
	modelJSON   = "models/model.json"
	weightsJSON = "data/weights/model_weights_config.json"
	constJSON   = "data/constants/model_constants_config.json"
)

// mlp has two layers and a loss, with a fixed batch. One bias is inside a larger storage, and one weight is transposed.
func mlp(t testing.TB) archived {
	return archived{
		"archive_format": "pt2", "archive_version": "0", "byteorder": "little", ".data/serialization_id": "0123",
		"version":                     "3\n",
		modelJSON:                     testdata(t, "mlp.json"),
		weightsJSON:                   testdata(t, "mlp_weights.json"),
		constJSON:                     `{"config": {}}`,
		"data/weights/weight_0":       f32(1, 2, 3, 4, 5, 6),
		"data/weights/weight_1":       f32(9, 9, 7, 8, 0.5, 9),
		"data/weights/weight_2":       f32(1, 4, 2, 5, 3, 6),
		"data/sample_inputs/model.pt": "a pickle that nobody reads",
	}
}

// meta writes a TensorMeta. The argument `sizes` has the form "B,3,8x8=64", where B is the batch. In 8x8=64, the text
// before = is a longer expression, and 64 is the expression's value.
func meta(dtype int, sizes string) string {
	var texts, strides []string
	for size := range strings.SplitSeq(sizes, ",") {
		if size == "" {
			continue
		}
		strides = append(strides, `{"as_int":1}`)
		switch expr, hint, is := strings.Cut(size, "="); {
		case size == "B":
			texts = append(texts,
				`{"as_expr":{"expr_str":"Symbol('s77', positive=True, integer=True)","hint":{"as_int":4}}}`)
		case is && hint == "?":
			texts = append(texts, fmt.Sprintf(`{"as_expr":{"expr_str":%q,"hint":null}}`, expr))
		case is:
			texts = append(texts, fmt.Sprintf(`{"as_expr":{"expr_str":%q,"hint":{"as_int":%s}}}`, expr, hint))
		default:
			texts = append(texts, fmt.Sprintf(`{"as_int":%s}`, size))
		}
	}
	return fmt.Sprintf(`{"dtype":%d,"sizes":[%s],"requires_grad":%t,"device":{"type":"cpu","index":null},"strides":[%s],`+
		`"storage_offset":{"as_int":0},"layout":7}`, dtype, strings.Join(texts, ","), dtype == 7, strings.Join(strides, ","))
}

// payloadOf writes a tensor's entry in a list of weights. The tensor's elements are stored row by row.
func payloadOf(path string, dtype int, sizes ...int) string {
	var shape, strides []string
	next := 1
	for _, d := range slices.Backward(sizes) {
		strides = append([]string{fmt.Sprintf(`{"as_int":%d}`, next)}, strides...)
		shape = append([]string{fmt.Sprintf(`{"as_int":%d}`, d)}, shape...)
		next *= d
	}
	return fmt.Sprintf(`{"path_name":%q,"is_param":true,"use_pickle":false,"tensor_meta":{"dtype":%d,"sizes":[%s],`+
		`"requires_grad":true,"device":{"type":"cpu","index":null},"strides":[%s],"storage_offset":{"as_int":0},`+
		`"layout":7}}`, path, dtype, strings.Join(shape, ","), strings.Join(strides, ","))
}

// config writes a list of weights from pairs of a name and an entry.
func config(pairs ...string) string { return `{"config":` + object(pairs...) + `}` }

// object writes a JSON object from pairs of a key and a value's text.
func object(pairs ...string) string {
	var all []string
	for i := 0; i < len(pairs); i += 2 {
		all = append(all, fmt.Sprintf("%q:%s", pairs[i], pairs[i+1]))
	}
	return "{" + strings.Join(all, ",") + "}"
}

// call writes a node from its target, its module, its result, and triples of an argument's name, kind and text.
func call(target, module, out string, args ...string) string {
	var in []string
	for i := 0; i < len(args); i += 3 {
		in = append(in, fmt.Sprintf(`{"name":%q,"arg":%s,"kind":%s}`, args[i], args[i+2], args[i+1]))
	}
	return fmt.Sprintf(`{"target":%q,"inputs":[%s],"outputs":[%s],"metadata":{"nn_module_stack":"a,,m.Net;b,%s,m.X"}}`,
		target, strings.Join(in, ","), out, module)
}

func tensor(name string) string { return fmt.Sprintf(`{"as_tensor":{"name":%q}}`, name) }
func symInt(name string) string { return fmt.Sprintf(`{"as_sym_int":{"as_name":%q}}`, name) }

// parts holds the parts of a model's text. The lists `inputs` and `outputs` have pairs of a specification and a name in
// the graph.
type parts struct {
	inputs, outputs []string
	nodes           []string
	values          []string // pairs of a name and a TensorMeta
	ranges          string
	outSpec         string
	fields          string
}

func (p parts) json() string {
	specs := func(pairs []string) (specs, args string) {
		var s, a []string
		for i := 0; i < len(pairs); i += 2 {
			kind, name, _ := strings.Cut(pairs[i], " ")
			switch kind {
			case "user_input", "user_output":
				s = append(s, fmt.Sprintf(`{%q:{"arg":%s}}`, kind, tensor(pairs[i+1])))
			case "loss_output":
				s = append(s, fmt.Sprintf(`{%q:{"arg":{"name":%q}}}`, kind, pairs[i+1]))
			default:
				field := strings.TrimSuffix(kind, "_mutation") + "_name"
				s = append(s, fmt.Sprintf(`{%q:{"arg":{"name":%q},%q:%q,"persistent":%t}}`, kind, pairs[i+1], field,
					name, name != "bn.running_var"))
			}
			a = append(a, tensor(pairs[i+1]))
		}
		return strings.Join(s, ","), strings.Join(a, ",")
	}
	inSpecs, ins := specs(p.inputs)
	outSpecs, outs := specs(p.outputs)
	calls := ""
	if p.outSpec != "" {
		calls = fmt.Sprintf(`{"fqn":"","signature":{"inputs":[],"outputs":[],"in_spec":"","out_spec":%q}}`, p.outSpec)
	}
	return fmt.Sprintf(`{"graph_module":{"graph":{"inputs":[%s],"outputs":[%s],"nodes":[%s],"tensor_values":%s,`+
		`"sym_int_values":{},"sym_bool_values":{}},"signature":{"input_specs":[%s],"output_specs":[%s]},`+
		`"module_call_graph":[%s],"treespec_namedtuple_fields":{%s}},"opset_version":{"aten":10},`+
		`"range_constraints":{%s},"schema_version":{"major":8,"minor":14},"verifiers":["TRAINING"],`+
		`"torch_version":"2.9.1"}`, ins, outs, strings.Join(p.nodes, ","), object(p.values...), inSpecs, outSpecs, calls,
		p.fields, p.ranges)
}
