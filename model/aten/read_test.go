package aten

import (
	"archive/zip"
	"bytes"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/internal/safetensors"
)

// small is a handwritten graph with each kind of argument.
const small = `{"version": 2, "torch": "x", "name": "Small", "rows": 2,
"inputs": [{"name": "x", "shape": [2, 3], "dtype": "F32", "target": false},
{"name": "y", "shape": [2], "dtype": "I64", "target": true}],
"tensors": [{"name": "w", "role": "parameter", "trained": true}, {"name": "b", "role": "buffer", "unsaved": true},
{"name": "c", "role": "constant"}],
"aliases": [{"name": "w2", "of": "w"}],
"nodes": [{"op": "aten::mm", "in": [{"value": 0}, {"tensor": "w"}, {"none": true}, {"int": -1}, {"float": 0.5},
{"float": "-inf"}, {"bool": false}, {"string": "mean"}, {"device": "cpu"}, {"list": [{"int": 1}, {"value": 1}]}],
"out": [{"value": 2, "type": "Tensor", "shape": [2, 3], "dtype": "F32"}, {"value": 3, "type": "int[]"}],
"scope": "a.0", "where": "m.py:3"},
{"op": "aten::mean", "in": [{"value": 2}], "out": [{"value": 4, "type": "Tensor", "shape": [], "dtype": "F32"}]}],
"outputs": [{"name": "loss", "of": {"value": 4}}, {"name": "right", "of": {"tensor": "c"}}]}`

// weights returns the tensors of small.
func weights(t testing.TB) []byte {
	t.Helper()
	header, err := safetensors.Header([]safetensors.Named{
		{Name: "w", Entry: safetensors.Entry{DType: "F32", Shape: []int64{3}}},
		{Name: "b", Entry: safetensors.Entry{DType: "BF16", Shape: []int64{2}}},
		{Name: "c", Entry: safetensors.Entry{DType: "I8"}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return append(header, "0123456789abcdefg"...)
}

// member is a member of an archive.
type member struct {
	name   string
	data   []byte
	change func(*zip.FileHeader)
}

// archive is a zip file of stored members.
func archive(t testing.TB, members ...member) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, m := range members {
		h := &zip.FileHeader{Name: m.name, CRC32: crc32.ChecksumIEEE(m.data), CompressedSize64: uint64(len(m.data)),
			UncompressedSize64: uint64(len(m.data))}
		if m.change != nil {
			m.change(h)
		}
		w, err := z.CreateRaw(h)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(m.data); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// wholeOf returns the archive of a graph with the weights of small.
func wholeOf(t testing.TB, graph string) []byte {
	return archive(t, member{name: graphMember, data: []byte(graph)}, member{name: weightsMember, data: weights(t)})
}

func TestSmallIsRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "small")
	if err := os.WriteFile(path, wholeOf(t, small), 0o600); err != nil {
		t.Fatal(err)
	}
	g, w, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for name, want := range map[string]string{"w": "0123456789ab", "b": "cdef", "c": "g"} {
		if got, err := io.ReadAll(w.Of[name]); err != nil || string(got) != want {
			t.Errorf("%s is %q (%v); want %q", name, got, err, want)
		}
	}
	want := []Arg{{Kind: FromValue}, {Kind: FromTensor, Tensor: "w"}, {Kind: None}, {Kind: Int, Int: -1},
		{Kind: Float, Float: 0.5}, {Kind: Float, Float: math.Inf(-1)}, {Kind: Bool}, {Kind: Word, Text: "mean"},
		{Kind: Device, Text: "cpu"}, {Kind: List, List: []Arg{{Kind: Int, Int: 1}, {Kind: FromValue, Value: 1}}}}
	if got := g.Nodes[0]; fmt.Sprint(got.In) != fmt.Sprint(want) || got.Scope != "a.0" || got.Where != "m.py:3" {
		t.Errorf("%+v; want %+v", got, want)
	}
	tensors := []Tensor{{Name: "w", Shape: []int64{3}, DType: "F32", Trained: true},
		{Name: "b", Role: Buffer, Shape: []int64{2}, DType: "BF16", Unsaved: true},
		{Name: "c", Role: Constant, Shape: []int64{}, DType: "I8"}}
	if fmt.Sprint(g.Tensors) != fmt.Sprint(tensors) || g.Aliases["w2"] != "w" {
		t.Errorf("%+v, %v; want %+v", g.Tensors, g.Aliases, tensors)
	}
}

// Each change of small is refused with a message about it.
func TestBrokenGraphsAreRefused(t *testing.T) {
	for _, c := range []struct{ old, new, says string }{
		{`"version": 2`, `"version": 1`, "version is 1; this millrace reads version 2: export it again"},
		{`"version": 2, `, ``, "version is none"},
		{`"rows": 2`, `"rows": 2, "color": 1`, `unknown field "color"`},
		{`"int": -1`, `"whole": -1`, `unknown field "whole"`},
		{`"int": -1`, `"int": 9223372036854775808`, "int"},
		{`"int": -1`, `"int": null`, "node 0 (aten::mm): argument 3: 0 kinds"},
		{`"int": -1`, `"int": -1, "none": true`, "2 kinds"},
		{`"float": 0.5`, `"float": {"a": [1]}`, `float is "map[a:[1]]"`},
		{`"-inf"`, `"-Infinity"`, `float is "-Infinity"; it is a number, "inf"`},
		{`{"list": [{"int": 1}`, `{"list": [{}`, "argument 9: element 0: 0 kinds"},
		{`"name": "Small"`, `"name": ""`, "the model has no name"},
		{`"name": "Small"`, `"name": "a\u001b[31m"`, "not shown but obeyed"},
		{`"name": "Small"`, `"name": "` + strings.Repeat("x", 300) + `"`, "a name of 300 characters"},
		{`"rows": 2`, `"rows": 3`, `input "x" has the shape [2 3]; its first dimension is the 3 rows`},
		{`"shape": [2], "dtype": "I64"`, `"shape": [], "dtype": "I64"`, `input "y" has the shape []`},
		{`"target": true`, `"target": false`, `input "y": target is false`},
		{`"name": "y"`, `"name": "x"`, `input "x" is there twice`},
		{`{"name": "x", "shape": [2, 3], "dtype": "F32", "target": false}`, `{}`, "input 0 has no name"},
		{`"dtype": "I64"`, `"dtype": "C64"`, `input 1: element type "C64"; one of [F64 F32`},
		{`"role": "buffer"`, `"role": "thing"`, `tensor "b": role "thing"; it is parameter, buffer or constant`},
		{`"name": "b"`, `"name": "q"`, `tensor "q" is not in weights.safetensors`},
		{`"name": "b", "role": "buffer", "unsaved": true`, `"name": "w", "role": "buffer"`, `tensor "w" is there twice`},
		{`"name": "c", "role": "constant"`, `"name": "c", "role": "parameter", "trained": true`,
			`tensor "c" of I8 is trained; only parameters of real numbers are`},
		{`"role": "constant"`, `"role": "constant", "unsaved": true`, `tensor "c" is unsaved; only buffers are`},
		{`"of": "w"}]`, `"of": "v"}]`, `alias "w2" is of "v", which is no parameter and no buffer`},
		{`"of": "w"}]`, `"of": "c"}]`, `alias "w2" is of "c", which is no parameter`},
		{`"name": "w2"`, `"name": "b"`, `alias "b" is the name of another tensor`},
		{`"of": "w"}]`, `"of": "w"}, {"name": "w2", "of": "b"}]`, `alias "w2" is there twice`},
		{`"op": "aten::mm"`, `"op": ""`, "node 0 has no operator"},
		{`"in": [{"value": 2}]`, `"in": [{"value": 4}]`, "node 1 (aten::mean): argument 0: value 4, which nothing in front"},
		{`"in": [{"value": 0}`, `"in": [{"value": 2}`, "node 0 (aten::mm in a.0, m.py:3): argument 0: value 2"},
		{`{"value": 1}]}]`, `{"value": 9}]}]`, "argument 9: element 1: value 9"},
		{`{"tensor": "w"}`, `{"tensor": "v"}`, `argument 1: tensor "v", which the module has not`},
		{`{"value": 3, "type": "int[]"}`, `{"value": 2, "type": "int[]"}`, "yields value 2, which is there already"},
		{`{"value": 3, "type": "int[]"}`, `{"value": 1, "type": "int[]"}`, "yields value 1, which is there already"},
		{`{"value": 3, "type": "int[]"}`, `{"value": -3, "type": "int[]"}`, "yields value -3"},
		{`{"value": 3, "type": "int[]"}`, `{"value": 3}`, "without a type"},
		{`"type": "int[]"`, `"type": "int[]", "dtype": "F32"`, "of type int[] with a shape"},
		{`"shape": [2, 3], "dtype": "F32"}, {"v`, `"shape": [2, -3], "dtype": "F32"}, {"v`, "no machine holds"},
		{`"shape": [2, 3], "dtype": "F32"}, {"v`, `"shape": [2, 3], "double": [4], "dtype": "F32"}, {"v`,
			"value 2 has the shape [2 3], and [4] with twice the rows"},
		{`"shape": [2, 3], "dtype": "F32"}, {"v`, `"shape": [2, 3], "double": [4, -3], "dtype": "F32"}, {"v`,
			"value 2 with twice the rows: no machine holds"},
		{`"shape": [2, 3], "dtype": "F32"}, {"v`, `"shape": [2, 3], "dtype": "ComplexFloat"}, {"v`, "complex numbers"},
		{`"shape": [2, 3], "dtype": "F32"}, {"v`, `"shape": [4294967296, 4294967296], "dtype": "F32"}, {"v`,
			"no machine holds a tensor of the shape [4294967296 4294967296]"},
		{`"shape": [2, 3], "dtype": "F32"}, {"v`, `"shape": [1` + strings.Repeat(",1", 64) + `], "dtype": "F32"}, {"v`,
			"65 dimensions; PyTorch has 64 at most"},
		{`{"name": "loss", "of": {"value": 4}}, `, ``, `output "right" is no tensor that a node yields`},
		{`"of": {"value": 4}}`, `"of": {"value": 2}}`, `output "loss" is the loss, and has the type Tensor F32[2 3]`},
		{`"of": {"value": 4}}`, `"of": {"int": 4}}`, `output "loss" is no tensor`},
		{`"of": {"value": 4}}`, `"of": {"value": 5}}`, `output "loss": value 5`},
		{`"name": "right"`, `"name": "loss"`, `output "loss" is there twice`},
		{small[strings.Index(small, `"outputs": [`):], `"outputs": []}`, "there are no outputs"},
		{small[strings.Index(small, `"inputs": [`):strings.Index(small, `"tensors"`)], `"inputs": [],`,
			"0 inputs; there are two"},
		{`"mean"`, `"` + strings.Repeat("m", 1000) + `"`, "a name of 1000 characters"},
		{`{"none": true}`, strings.Repeat(`{"list": [`, 40) + strings.Repeat(`]}`, 40), "nested deeper than 64"},
		{`]}`, ``, "not a whole JSON object"},
	} {
		if !strings.Contains(small, c.old) {
			t.Fatalf("small has no %s", c.old)
		}
		file := wholeOf(t, strings.Replace(small, c.old, c.new, 1))
		_, _, err := read(bytes.NewReader(file), int64(len(file)))
		if err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "\n") ||
			len(err.Error()) > 700 {
			t.Errorf("%s: %v; want %q", c.new, err, c.says)
		}
	}
}

// Archives in another format, and incomplete ones, are refused.
func TestBrokenArchivesAreRefused(t *testing.T) {
	graph := member{name: graphMember, data: []byte(small)}
	w := member{name: weightsMember, data: weights(t)}
	whole := archive(t, graph, w)
	changed := func(m member, change func(*zip.FileHeader)) member {
		m.change = change
		return m
	}
	bytesAt := func(text string, by string) []byte {
		return bytes.Replace(whole, []byte(text), []byte(by), 1)
	}
	huge := bytes.Clone(weights(t))
	huge[7] = 0x7f
	var many []member
	for i := range 12000 {
		many = append(many, member{name: strings.Repeat("n", 60) + fmt.Sprint(i)})
	}
	for _, c := range []struct {
		name, says string
		file       []byte
	}{
		{"empty", "it is no whole zip archive", nil},
		{"text", "write it with python3 python/millrace_export.py", []byte(small)},
		{"pickle", "it is no whole zip archive", []byte("\x80\x02}q\x00.")},
		{"torch.save", "a file of torch.save, a pickle", archive(t, member{name: "model/data.pkl"})},
		{"torch.export.save", "give --from pt2", archive(t, member{name: "model/archive_format"})},
		{"absolute path", `member "/etc/passwd"; an exported model has graph.json`, archive(t, graph, w,
			member{name: "/etc/passwd"})},
		{"path upwards", `member "../graph.json"`, archive(t, member{name: "../graph.json", data: []byte(small)}, w)},
		{"twice", "member graph.json is there twice", archive(t, graph, graph, w)},
		{"no graph", "there is no member graph.json", archive(t, w)},
		{"no weights", "there is no member weights.safetensors", archive(t, graph)},
		{"encrypted", "member graph.json is encrypted",
			archive(t, changed(graph, func(h *zip.FileHeader) { h.Flags |= 1 }), w)},
		{"compressed", "member weights.safetensors is compressed (method 8", archive(t, graph,
			changed(w, func(h *zip.FileHeader) { h.Method = zip.Deflate }))},
		{"bomb", "is compressed (method 0, ",
			archive(t, graph, changed(w, func(h *zip.FileHeader) { h.UncompressedSize64 = 1 << 39 }))},
		{"longer than any", "at most 1099511627776 are read", archive(t, graph, changed(w, func(h *zip.FileHeader) {
			h.CompressedSize64, h.UncompressedSize64 = 1<<50, 1<<50
		}))},
		{"longer than the file", "the file is cut short", archive(t, graph, changed(w, func(h *zip.FileHeader) {
			h.CompressedSize64, h.UncompressedSize64 = 1<<30, 1<<30
		}))},
		{"many members", "its list of members has more than 1048576 bytes", archive(t, many...)},
		{"cut short", "it is no whole zip archive", whole[:len(whole)-9]},
		{"a byte of the graph", "graph.json: its bytes are not those that were written", bytesAt("aten::mm", "aten::mv")},
		{"a byte of the weights", "weights.safetensors: its bytes are not those that were written",
			bytesAt("789abcdefg", "789abddefg")},
		{"no safetensors", "the first 8 hold the header's length", archive(t, graph, member{name: weightsMember})},
		{"header of exabytes", "no safetensors file", archive(t, graph, member{name: weightsMember, data: huge})},
		{"more weights", `it names 3 tensors, and weights.safetensors has 4`, archive(t, graph, member{name: weightsMember,
			data: more(t)})},
		{"weights cut short", "the file is cut short",
			archive(t, graph, member{name: weightsMember, data: w.data[:len(w.data)-1]})},
	} {
		_, _, err := read(bytes.NewReader(c.file), int64(len(c.file)))
		if err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v; want %q", c.name, err, c.says)
		}
	}
	for path, says := range map[string]string{t.TempDir(): "is a folder; give a regular file", "/dev/null": "is a device",
		"/no/such": "no such file"} {
		if _, _, err := Read(path); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v; want %q", path, err, says)
		}
	}
}

// more returns weights with a tensor that small does not have.
func more(t *testing.T) []byte {
	header, err := safetensors.Header([]safetensors.Named{
		{Name: "w", Entry: safetensors.Entry{DType: "F32", Shape: []int64{3}}},
		{Name: "b", Entry: safetensors.Entry{DType: "BF16", Shape: []int64{2}}},
		{Name: "c", Entry: safetensors.Entry{DType: "I8"}}, {Name: "d", Entry: safetensors.Entry{DType: "I8"}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return append(header, "0123456789abcdefgh"...)
}

// holds checks what must be true of every file that is accepted.
func holds(t *testing.T, file []byte) {
	g, of, err := read(bytes.NewReader(file), int64(len(file)))
	if err != nil {
		if strings.Contains(err.Error(), "\n") {
			t.Errorf("an error of several lines: %q", err)
		}
		return
	}
	if len(g.Tensors) != len(of) {
		t.Fatalf("%d tensors, %d of them with elements", len(g.Tensors), len(of))
	}
	for _, x := range g.Tensors {
		size, err := safetensors.Size(string(x.DType), x.Shape)
		if got, readErr := io.ReadAll(of[x.Name]); err != nil || readErr != nil || int64(len(got)) != size {
			t.Fatalf("%+v has %d bytes (%v, %v)", x, len(got), err, readErr)
		}
	}
	made := map[int]bool{}
	for _, in := range g.Inputs {
		made[in.Value] = true
	}
	var readable func(Arg) bool
	readable = func(a Arg) bool {
		return (a.Kind != FromValue || made[a.Value]) && (a.Kind != FromTensor || of[a.Tensor] != nil) &&
			!slices.ContainsFunc(a.List, func(one Arg) bool { return !readable(one) })
	}
	for i, n := range g.Nodes {
		for _, a := range n.In {
			if !readable(a) {
				t.Fatalf("%s reads %+v", n.said(i), a)
			}
		}
		for _, v := range n.Out {
			if made[v.ID] {
				t.Fatalf("%s makes value %d again", n.said(i), v.ID)
			}
			made[v.ID] = true
		}
	}
}

// FuzzRead reads archives of any bytes. An archive that is accepted must have everything that its graph reads.
func FuzzRead(f *testing.F) {
	whole := wholeOf(f, small)
	f.Add(whole)
	f.Add(whole[:len(whole)/2])
	f.Add(archive(f, member{name: weightsMember, data: weights(f)}))
	f.Fuzz(holds)
}

// FuzzMembers does the same as FuzzRead, with valid archives whose two members may have any content.
func FuzzMembers(f *testing.F) {
	f.Add([]byte(small), weights(f))
	f.Add([]byte(`{"version": 2}`), weights(f)[:20])
	f.Fuzz(func(t *testing.T, graph, weights []byte) {
		holds(t, archive(t, member{name: graphMember, data: graph}, member{name: weightsMember, data: weights}))
	})
}
