package pt2

import (
	"archive/zip"
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// refused checks that a file is refused with an error that contains a text.
func refused(t *testing.T, raw []byte, text string) {
	t.Helper()
	_, _, err := read(bytes.NewReader(raw), int64(len(raw)), "net")
	if err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("refused with\n  %v\nwant\n  %s", err, text)
	}
}

func TestRefusedModels(t *testing.T) {
	conv, two, tiedUp, plain := convnet(), masked(), tied(), mlp(t)
	for _, c := range []struct {
		name             string
		of               archived
		member, old, now string
		text             string
	}{
		{"major version", plain, modelJSON, `"major": 8`, `"major": 7`,
			"models/model.json: schema_version is 7.17 (torch 2.11.0): 8 is read, which torch 2.9 to 2.11 write"},
		{"no version", plain, modelJSON, `"schema_version"`, `"version"`, "schema_version is missing"},
		{"decomposed", plain, modelJSON, `["TRAINING"]`, `["ATEN"]`, "the graph is of the dialect ATEN, which is decomposed"},
		{"decomposed norm", conv, modelJSON, "aten.batch_norm.default", "aten._native_batch_norm_legit_functional.default",
			"node 2, torch.ops.aten._native_batch_norm_legit_functional.default: the graph is decomposed"},
		{"inner graph", two, modelJSON, "torch.ops.aten.sum.default", "torch.ops.higher_order.cond",
			"node 10, torch.ops.higher_order.cond: it calls inner graphs"},
		{"graph argument", conv, modelJSON, `{"as_int":-1}`, `{"as_graph":{"name":"g","graph":{}}}`,
			"node 5, torch.ops.aten.chunk.default: argument 2, dim: it is an inner graph"},
		{"operator of Python", conv, modelJSON, "_operator.ge", "_operator.matmul",
			"node 10, _operator.matmul: the target is unknown: torch.ops.NAMESPACE.NAME.OVERLOAD"},
		{"extension", conv, modelJSON, "_operator.ge", "#mine:op", "node 10, #mine:op: the target is unknown"},
		{"arithmetic of a tensor", conv, modelJSON, `"a","arg":{"as_int":2}`, `"a","arg":` + tensor("x"),
			"node 6, _operator.mul: argument 0 is no number"},
		{"no output", two, modelJSON, `[{"as_tensor":{"name":"acc"}}],"metadata"`, `[],"metadata"`,
			"node 10, torch.ops.aten.sum.default: it yields nothing"},
		{"dangling", two, modelJSON, `{"as_tensor":{"name":"gelu"}},"kind":1`, `{"as_tensor":{"name":"where"}},"kind":1`,
			`node 7, torch.ops.aten.clone.default: argument 0, self: it reads "where", which nothing before it yields`},
		{"where", plain, modelJSON, `{"name": "bias", "arg": {"as_tensor": {"name": "p_fc1_bias"}}`,
			`{"name": "bias", "arg": {"as_tensor": {"name": "gone"}}`,
			`node 0, torch.ops.aten.linear.default (model.py:12): argument 2, bias: it reads "gone"`},
		{"twice", two, modelJSON, `"outputs":[{"as_tensor":{"name":"gelu"}}]`, `"outputs":[{"as_tensor":{"name":"drop"}}]`,
			"node 5, torch.ops.aten.gelu.default: output 0: drop is made twice"},
		{"kinds", conv, modelJSON, `"size","arg":{"as_sym_ints":[{"as_name":"sym_size_int"}`,
			`"size","arg":{"as_sym_ints":[{"as_name":"x"}`, "element 0: it reads x as a int, and that is a Tensor"},
		{"unknown member", two, modelJSON, `{"as_string":"tanh"}`, `{"as_tea":1}`,
			`argument 1, approximate: it is of the kind "as_tea", which schema 8.17 does not have`},
		{"complex number", two, modelJSON, `{"as_string":"tanh"}`, `{"as_complex":{"real":1,"imag":2}}`, "it is as_complex"},
		{"two members", two, modelJSON, `{"as_string":"tanh"}`, `{"as_string":"tanh","as_int":1}`,
			`should have one member`},
		{"repeated key", two, modelJSON, `"tensor_values":{`, `"tensor_values":{"x":null,`, `"x" is there twice`},
		{"complex tensor", two, modelJSON, `"gelu":{"dtype":7`, `"gelu":{"dtype":10`,
			"gelu: its type of elements is number 10 of the schema (9 to 11 are complex"},
		{"sparse argument", two, modelJSON, `{"as_layout":7}`, `{"as_layout":1}`, "its layout is number 1 of the schema"},
		{"memory format", two, modelJSON, `{"as_memory_format":4}`, `{"as_memory_format":9}`, "memory format is number 9"},
		{"no meta", two, modelJSON, `"gelu":{"dtype"`, `"gelo":{"dtype"`, `tensor_values does not have "gelu"`},
		{"argument by position", two, modelJSON, `"scale","arg":{"as_float":0.5},"kind":2`,
			`"scale","arg":{"as_float":0.5},"kind":1`, "argument 4, scale: it is by position, behind one by keyword"},
		{"argument twice", two, modelJSON, `"scale","arg"`, `"is_causal","arg"`, "argument 4: is_causal is given twice"},
		{"huge value", two, modelJSON, `{"as_int":3},{"as_int":1}`, `{"as_int":1099511627776},{"as_int":2}`,
			"at most 1099511627776 elements"},
		{"negative size", two, modelJSON, `{"as_int":3},{"as_int":1}`, `{"as_int":-3},{"as_int":1}`, "sizes are 0 to"},
		{"number as input", two, modelJSON, `{"user_input":{"arg":{"as_tensor":{"name":"mask"}}}}`,
			`{"user_input":{"arg":{"as_sym_int":{"as_name":"mask"}}}}`, `is no tensor (as_sym_int): leave it out of`},
		{"constant input", two, modelJSON, `{"user_input":{"arg":{"as_tensor":{"name":"mask"}}}}`,
			`{"constant_input":{"name":"mask","value":{"as_bool":true}}}`, "the input mask is no tensor but true (as_bool)"},
		{"hidden character", two, modelJSON, `"torch.ops.aten.sum.default"`, `"torch.ops.aten.s\u202eum.default"`,
			"the target is unknown"},
		{"hidden name", tiedUp, modelJSON, `"parameter_name":"embed.weight"`, `"parameter_name":"embed\u001b.weight"`,
			"a character that is not shown but obeyed"},
		{"names of outputs", two, modelJSON, `["total","hidden","loss"]`, `["total","loss","total"]`,
			"two outputs are named total: name them apart"},
		{"custom object", two, modelJSON, `{"user_input":{"arg":{"as_tensor":{"name":"mask"}}}}`,
			`{"custom_obj":{"arg":{"name":"o","class_fqn":"C"},"custom_obj_name":"tokenizer"}}`,
			"input_specs[2]: tokenizer is a custom object"},
		{"token", two, modelJSON, `{"user_input":{"arg":{"as_tensor":{"name":"mask"}}}}`, `{"token":{"arg":{"name":"t"}}}`,
			"input_specs[2]: a token orders operators with effects"},
		{"new input", two, modelJSON, `{"user_input":{"arg":{"as_tensor":{"name":"mask"}}}}`, `{"tea":{}}`,
			`an input of the kind "tea"`},
		{"mixed up inputs", two, modelJSON, `{"user_input":{"arg":{"as_tensor":{"name":"mask"}}}}`,
			`{"user_input":{"arg":{"as_tensor":{"name":"y"}}}}`, `it is of "y", and the graph's input there is as_tensor`},
		{"rows", two, modelJSON, `"y":` + meta(7, "B,3,2"), `"y":` + meta(7, "5,3,2"),
			"the input y has always 5 rows, and x has s77 (4): the first dimension of each input is the batch"},
		{"no rows", two, modelJSON, `"x":` + meta(7, "B,3,2"), `"x":` + meta(7, ""), "the input x is one number"},
		{"no hint", two, modelJSON, `"x":` + meta(7, "B,3,2"), `"x":` + meta(7, "s0=?,3,2"),
			"the input x has sizes without a hint ([s0  ])"},
		{"range", two, modelJSON, `"max_val":64`, `"max_val":3`,
			"the example has 4 rows, and range_constraints has s77 to 3"},
		{"range of one end", conv, modelJSON, `"min_val":2`, `"min_val":5`,
			"the example has 4 rows, and range_constraints has s77 from 5"},
		{"mutated input", conv, modelJSON, `{"buffer_mutation":{"arg":{"name":"add"}`,
			`{"user_input_mutation":{"arg":{"name":"add"}`, "forward writes to a parameter or an input (user_input_mutation"},
		{"backward", conv, modelJSON, `{"buffer_mutation":{"arg":{"name":"add"}`,
			`{"gradient_to_parameter":{"arg":{"name":"add"}`, "the graph has its own backward"},
		{"no buffer", conv, modelJSON, `"buffer_mutation":{"arg":{"name":"add"},"buffer_name":"bn.running_mean"`,
			`"buffer_mutation":{"arg":{"name":"add"},"buffer_name":"bn.weight"`, `is of "bn.weight", which is no buffer`},
		{"no output at all", tiedUp, modelJSON, `{"user_output":{"arg":{"as_tensor":{"name":"linear"}}}}`, ``,
			"the graph has 1 outputs, and signature.output_specs 0"},
		{"no target", plain, modelJSON, `{"user_input": {"arg": {"as_tensor": {"name": "target"}}}}`,
			`{"buffer": {"arg": {"name": "target"}, "buffer_name": "fc1.bias"}}`, "the tensor fc1.bias is there twice"},
		{"not listed", conv, weightsJSON, `"bn.bias"`, `"bn.bios"`,
			"bn.bias: it is in neither data/weights/model_weights_config.json nor the list of constants"},
		{"twice listed", conv, constJSON, `"lifted_tensor_0"`, `"bn.bias"`, "bn.bias is among the weights too"},
		{"pickle", conv, weightsJSON, `"use_pickle":false`, `"use_pickle":true`,
			"conv.weight: its elements are a pickle (use_pickle of weight_0), which is never read"},
		{"no tensor_meta", conv, weightsJSON, `"tensor_meta":{"dtype":7,"sizes":[{"as_int":2},{"as_int":3}`,
			`"other":{"dtype":7,"sizes":[{"as_int":2},{"as_int":3}`, "conv.weight: its tensor_meta is missing"},
		{"path", conv, weightsJSON, `"weight_0"`, `"../weight_0"`,
			`conv.weight: its path_name is "../weight_0": it is a file's name in data/weights/`},
		{"no such member", conv, weightsJSON, `"weight_0"`, `"weight_9"`, "data/weights/weight_9: there is no such member"},
		{"sparse", conv, weightsJSON, `"layout":7`, `"layout":1`, "conv.weight: its layout is number 1 of the schema"},
		{"shapes", conv, modelJSON, `"p_w":` + meta(7, "2,3,1,1"), `"p_w":` + meta(7, "3,2,1,1"),
			"conv.weight: its elements are F32 [2 3 1 1], and tensor_values has [3 2 1 1] of type number 7"},
		{"beyond", conv, weightsJSON, `"storage_offset":{"as_int":0}`, `"storage_offset":{"as_int":1}`,
			"from element 1 is more than the 24 bytes of data/weights/weight_0"},
		{"huge stride", tiedUp, weightsJSON, `"strides":[{"as_int":2}`, `"strides":[{"as_int":1099511627776}`,
			"is more than the 40 bytes of data/weights/weight_0"},
		{"repeated elements", tiedUp, weightsJSON, `"strides":[{"as_int":2},{"as_int":1}`,
			`"strides":[{"as_int":0},{"as_int":1}`, "embed.weight and head.weight share some of data/weights/weight_0"},
		{"weights that expand", tiedUp, weightsJSON, `[{"as_int":5},{"as_int":2}],"requires_grad":true,` +
			`"device":{"type":"cpu","index":null},"strides":[{"as_int":2}`,
			`[{"as_int":5000},{"as_int":2}],"requires_grad":true,"device":{"type":"cpu","index":null},"strides":[{"as_int":0}`,
			"embed.weight: its shape [5000 2] with strides [0 1] from element 0 is more than the 40 bytes"},
		{"negative stride", tiedUp, weightsJSON, `"strides":[{"as_int":2}`, `"strides":[{"as_int":-2}`,
			"its strides has -2: 0 to 1099511627776 are possible"},
		{"symbolic size", tiedUp, weightsJSON, `"sizes":[{"as_int":5}`, `"sizes":[{"as_expr":{"expr_str":"s0"}}`,
			"embed.weight: its sizes depends on inputs (s0)"},
		{"other type", tiedUp, weightsJSON, `"dtype":7`, `"dtype":28`, "its type of elements is number 28"},
		{"text", conv, weightsJSON, `{"config":`, `{"config":[`, "data/weights/model_weights_config.json: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			refused(t, c.of.replace(t, c.member, c.old, c.now).zip(t), c.text)
		})
	}
}

func TestRefusedMembers(t *testing.T) {
	a := tied()
	for _, c := range []struct {
		name string
		of   archived
		text string
	}{
		{"old layout", archived{"serialized_exported_program.json": "{}", "serialized_state_dict.pt": ""},
			"it has the layout of torch 2.7 and older (serialized_exported_program.json), whose weights are a pickle"},
		{"layout of 2.8", a.with("data/weights/model.pt", "x"), "it has the layout of torch 2.8 (data/weights/model.pt)"},
		{"TorchScript", archived{"data.pkl": "", "code/m.py": ""}, "it holds a pickle (net/data.pkl)"},
		{"of the exporter", archived{"graph.json": "{}"}, "millrace_export.py wrote it"},
		{"another zip", archived{"readme": "x"}, "there is no archive_format in it: give a file of torch.export.save"},
		{"another format", a.with("archive_format", "pt3"), `archive_format is "pt3": only "pt2" is known`},
		{"another version", a.with("archive_version", "1"), `archive_version is "1": only "0" is known`},
		{"big endian", a.with("byteorder", "big"), `byteorder is "big": only "little" is known`},
		{"AOTInductor", a.with(modelJSON, "", "data/aotinductor/model/x.so", ""), "there is no models/NAME.json in it"},
		{"two models", a.with("models/other.json", "{}"), "it holds 2 models, among them model and other: save one alone"},
		{"no list", a.with(weightsJSON, ""), "data/weights/model_weights_config.json: there is no such member"},
		{"absolute", a.with("/../../etc/passwd", "x"), "names are paths inside the archive, without .. and"},
		{"backslash", a.with(`..\x`, "x"), `the member "net/..\\x"`},
		{"many values", a.with(modelJSON, "["+strings.Repeat("1,", maxElements)+"1]"),
			"models/model.json: it has more than 4194304 values"},
		{"deep", a.with(modelJSON, strings.Repeat("[", 100_000)), "models/model.json: "},
		{"no weights", a.with("data/weights/weight_0", ""), "data/weights/weight_0: there is no such member"},
		{"short weights", a.with("data/weights/weight_0", "1234"), "is more than the 4 bytes of data/weights/weight_0"},
	} {
		t.Run(c.name, func(t *testing.T) { refused(t, c.of.zip(t), c.text) })
	}
}

// members writes an archive with the given members.
func members(t *testing.T, method uint16, pairs ...string) []byte {
	t.Helper()
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	for i := 0; i < len(pairs); i += 2 {
		add(t, w, pairs[i], pairs[i+1], method)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestRefusedArchives(t *testing.T) {
	a := tied()
	refused(t, []byte("PK no archive"), "it is no whole zip archive")
	whole := a.zip(t)
	refused(t, whole[:len(whole)-30], "it is no whole zip archive")
	refused(t, members(t, zip.Store, "a/archive_format", "pt2", "a/archive_format", "pt2"),
		`the member "a/archive_format" is there twice`)
	refused(t, members(t, zip.Store, "a/archive_format", "pt2", "b/archive_format", "pt2"),
		`the folders "a/" and "b/" both hold an archive`)
	bomb := members(t, zip.Deflate, "archive_format", "pt2", modelJSON, strings.Repeat(" ", maxText+1))
	refused(t, bomb, "models/model.json: it has 67108865 bytes: at most 67108864")
	if len(bomb) > 1<<20 {
		t.Errorf("the bomb has %d bytes", len(bomb))
	}
	refused(t, members(t, zip.Deflate, "archive_format", "pt2", modelJSON, a[modelJSON], weightsJSON, a[weightsJSON],
		"data/weights/weight_0", strings.Repeat("\x00", 40)),
		"data/weights/weight_0: it is compressed (method 8, ")
	empty := members(t, zip.Store, "archive_format", "pt2", modelJSON, a[modelJSON], weightsJSON, a[weightsJSON],
		"data/weights/weight_0", "")
	refused(t, empty, "data/weights/weight_0 is empty, its shape is [5 2]: the model was saved without weights")
	at := bytes.Index(whole, []byte(a["data/weights/weight_0"]))
	damaged := bytes.Clone(whole)
	damaged[at+7] ^= 1
	refused(t, damaged, "data/weights/weight_0: it is damaged (zip: checksum error)")
	locked := bytes.Replace(whole, []byte("PK\x01\x02\x14\x00\x14\x00\x08"), []byte("PK\x01\x02\x14\x00\x14\x00\x09"), 1)
	refused(t, locked, "is encrypted")
}

func TestRefusedFiles(t *testing.T) {
	folder := t.TempDir()
	if _, _, err := Read(folder); err == nil || !strings.Contains(err.Error(), " is a folder; give a regular file") {
		t.Errorf("a folder: %v", err)
	}
	path := filepath.Join(folder, "mine.pt2")
	if _, _, err := Read(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("no file: %v", err)
	}
	if err := os.WriteFile(path, []byte("torch"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Read(path); err == nil || !strings.Contains(err.Error(), "pt2: "+path+": it is no whole zip archive") {
		t.Errorf("no archive: %v", err)
	}
}
