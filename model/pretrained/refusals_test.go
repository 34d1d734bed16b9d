package pretrained_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/internal/safetensors"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/model/pretrained"
)

// tensors maps names to shapes. The type is F32, or the word before the name, as in "BF16 name".
type tensors map[string][]int64

// write writes a file of zeros.
func (all tensors) write(t testing.TB, path string) {
	t.Helper()
	raw := all.bytes(t)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, raw, 0o644); err != nil {
		t.Fatal(err)
	}
}

func (all tensors) bytes(t testing.TB) []byte {
	t.Helper()
	var named []safetensors.Named
	total := int64(0)
	for _, key := range slices.Sorted(maps.Keys(all)) {
		n := safetensors.Named{Name: key, Entry: safetensors.Entry{DType: "F32", Shape: all[key]}}
		if dtype, name, ok := strings.Cut(key, " "); ok {
			n.DType, n.Name = dtype, name
		}
		size, err := safetensors.Size(n.DType, n.Shape)
		if err != nil {
			t.Fatal(err)
		}
		named, total = append(named, n), total+size
	}
	header, err := safetensors.Header(named, nil)
	if err != nil {
		t.Fatal(err)
	}
	return append(header, make([]byte, total)...)
}

// small has the tensors of a GPT-2 with one block of width 4, 5 tokens and 6 positions.
func small(prefix string) tensors {
	all := tensors{"wte.weight": {5, 4}, "wpe.weight": {6, 4}, "ln_f.weight": {4}, "ln_f.bias": {4},
		"h.0.ln_1.weight": {4}, "h.0.ln_1.bias": {4}, "h.0.ln_2.weight": {4}, "h.0.ln_2.bias": {4},
		"h.0.attn.c_attn.weight": {4, 12}, "h.0.attn.c_attn.bias": {12}, "h.0.attn.c_proj.weight": {4, 4},
		"h.0.attn.c_proj.bias": {4}, "h.0.mlp.c_fc.weight": {4, 16}, "h.0.mlp.c_fc.bias": {16},
		"h.0.mlp.c_proj.weight": {16, 4}, "h.0.mlp.c_proj.bias": {4}}
	out := tensors{}
	for name, shape := range all {
		out[prefix+name] = shape
	}
	return out
}

var smallSettings = map[string]any{"layers": 1, "width": 4, "heads": 2, "context": 3, "vocabulary": 5, "tied": true,
	"activation": "gelu_tanh"}

// tiny has the tensors of a Llama with one block, under the names of its files.
func tiny() tensors {
	return tensors{"model.embed_tokens.weight": {5, 4}, "model.norm.weight": {4}, "lm_head.weight": {5, 4},
		"model.layers.0.input_layernorm.weight": {4}, "model.layers.0.post_attention_layernorm.weight": {4},
		"model.layers.0.self_attn.q_proj.weight": {4, 4}, "model.layers.0.self_attn.k_proj.weight": {2, 4},
		"model.layers.0.self_attn.v_proj.weight": {2, 4}, "model.layers.0.self_attn.o_proj.weight": {4, 4},
		"model.layers.0.mlp.gate_proj.weight": {6, 4}, "model.layers.0.mlp.up_proj.weight": {6, 4},
		"model.layers.0.mlp.down_proj.weight": {4, 6}}
}

var tinySettings = map[string]any{"layers": 1, "width": 4, "heads": 2, "kv_heads": 1, "hidden": 6, "context": 3,
	"vocabulary": 5}

// with returns a copy with some entries changed; a nil shape removes an entry.
func (all tensors) with(other tensors) tensors {
	out := maps.Clone(all)
	for name, shape := range other {
		if out[name] = shape; shape == nil {
			delete(out, name)
		}
	}
	return out
}

func TestFilesThatDoNotFit(t *testing.T) {
	gpt, own := build(t, "gpt", smallSettings), build(t, "mlp", map[string]any{"inputs": 3, "hidden": "2", "classes": 2})
	llama := build(t, "llama", tinySettings)
	untied := maps.Clone(smallSettings)
	untied["tied"] = false
	exact := maps.Clone(smallSettings)
	exact["activation"] = "gelu"
	mlp := tensors{"dense0.weight": {2, 3}, "dense0.bias": {2}, "head.weight": {2, 2}, "head.bias": {2}}
	for _, c := range []struct {
		what, config string
		m            *model.Model
		file         tensors
		want         string // text of the error; empty: the file is accepted
	}{
		{"gpt2", "", gpt, small(""), ""},
		{"prefixed", "", gpt, small("transformer."), ""},
		{"masks", "", gpt, small("").with(tensors{"U8 h.0.attn.bias": {1, 1, 6, 6}, "h.0.attn.masked_bias": {}}), ""},
		{"both heads, alike", "", gpt, small("").with(tensors{"lm_head.weight": {5, 4}}), ""},
		{"head of another shape", "", gpt, small("").with(tensors{"lm_head.weight": {4, 5}}), "lm_head.weight is F32[4 5]"},
		{"wider", "", gpt, small("").with(tensors{"h.0.mlp.c_fc.weight": {16, 4}}),
			"h.0.mlp.c_fc.weight is F32[16 4]; block0.mlp.up.weight of this model needs float[4 16]"},
		{"ints", "", gpt, small("").with(tensors{"ln_f.bias": nil, "I32 ln_f.bias": {4}}), "ln_f.bias is I32[4]"},
		{"few positions", "", gpt, small("").with(tensors{"wpe.weight": {2, 4}}),
			"wpe.weight is F32[2 4]; embed.position of this model needs float[3 4] or more rows"},
		{"missing", "", gpt, small("").with(tensors{"ln_f.weight": nil, "h.0.ln_1.bias": nil}),
			"there is no h.0.ln_1.bias (block0.attention.norm.shift), ln_f.weight (head.norm.gain); give the settings"},
		{"two blocks", "", gpt, small("").with(tensors{"h.1.ln_1.bias": {4}}),
			"it has 2 blocks, and the model 1; give --set layers=2"},
		{"more of a block", "", gpt, small("").with(tensors{"h.0.ln_3.bias": {4}}), "no parameter for h.0.ln_3.bias"},
		{"no head", "", build(t, "gpt", untied), small(""), "no lm_head.weight (head.weight); the head is the embedding; " +
			"give --set tied=true"},
		{"gelu", "", build(t, "gpt", exact), small(""), "give --set activation=gelu_tanh"},
		{"gelu, as configured", `{"activation_function": "gelu"}`, build(t, "gpt", exact), small(""), ""},
		{"configured", `{"activation_function": "gelu_new", "n_head": 2, "layer_norm_epsilon": 1e-05}`, gpt, small(""), ""},
		{"relu", `{"activation_function": "relu"}`, gpt, small(""), `activation_function "relu"; gpt has gelu and gelu_tanh`},
		{"heads", `{"n_head": 4}`, gpt, small(""), "n_head 4, and the model 2; give --set heads=4"},
		{"epsilon", `{"layer_norm_epsilon": 1e-6}`, gpt, small(""), "layer_norm_epsilon 1e-06; the family has 1e-05 alone"},
		{"no JSON", `{"n_head": `, gpt, small(""), "config.json: unexpected end"},
		{"for llama", "", llama, small(""), "it has GPT-2's names, which are for --model gpt; this is llama"},
		{"for gpt", "", gpt, tiny(), "it has Llama's names, which are for --model llama; this is gpt"},
		{"llama", "", llama, tiny(), ""},
		{"bare llama", "", llama, tensors{"embed_tokens.weight": {5, 4}}, "there is no layers.0.input_layernorm.weight"},
		{"biases", "", llama, tiny().with(tensors{"model.layers.0.self_attn.q_proj.bias": {4}}),
			"no parameter for model.layers.0.self_attn.q_proj.bias"},
		{"scaled", `{"rope_scaling": {"type": "linear"}}`, llama, tiny(), `rope_scaling {"type": "linear"}; llama's`},
		{"not scaled", `{"rope_scaling": null, "rms_norm_eps": 1e-5}`, llama, tiny(), ""},
		{"no epsilon", `{}`, llama, tiny(), "rms_norm_eps 1e-06, and the model 1e-05; give --set epsilon=1e-06"},
		{"a list", `[]`, llama, tiny(), "config.json: all of it is a JSON array, and an object is right"},
		{"heads as text", `{"n_head": "2"}`, gpt, small(""),
			"config.json: n_head is a JSON string, and a whole number is right"},
		{"three blocks", "", llama, tiny().with(tensors{"model.layers.1.mlp.up_proj.weight": {6, 4},
			"model.layers.11.mlp.up_proj.weight": {6, 4}}), "it has 3 blocks, and the model 1; give --set layers=3"},
		{"theta", `{"rope_theta": 500000.0}`, llama, tiny(), "rope_theta 500000, and the model 10000; give --set theta=500000"},
		{"newer theta", `{"rope_parameters": {"rope_theta": 2e4, "rope_type": "default"}}`, llama, tiny(), "theta=20000"},
		{"scaled anew", `{"rope_parameters": {"rope_type": "llama3"}}`, llama, tiny(), "rope_type llama3"},
		{"another kind", `{"model_type": "gemma"}`, llama, tiny(), "model_type gemma"},
		{"own names", "", own, mlp, ""},
		{"own in 16 bits", "", own, mlp.with(tensors{"head.bias": nil, "BF16 head.bias": {2}}), ""},
		{"own, missing", "", own, mlp.with(tensors{"head.bias": nil}), "there is no head.bias; all parameters"},
		{"own, more", "", own, mlp.with(tensors{"head.bias#momentum": {2}}), "no parameter for head.bias#momentum"},
		{"strange", "", own, tensors{"x": {1}, "y": {1}},
			"it has x, y; those are neither names of model mlp, like dense0.weight"},
		{"nothing", "", own, tensors{}, "it has no tensors"},
	} {
		path := filepath.Join(t.TempDir(), "x.safetensors")
		c.file.write(t, path)
		if c.config != "" {
			if err := os.WriteFile(filepath.Join(filepath.Dir(path), "config.json"), []byte(c.config), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		w, err := pretrained.Open(path, c.m)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.what, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) ||
			!strings.HasPrefix(err.Error(), "init: "+path)):
			t.Errorf("%s: %v; want it to say %q", c.what, err, c.want)
		case c.want == "":
			if _, err := w.Tensor("nobody's"); err == nil {
				t.Errorf("%s has a tensor that is nobody's", c.what)
			}
		}
	}
}

// An embedding and a head with different values are two parameters.
func TestTwoHeadsThatDiffer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.safetensors")
	raw := small("").with(tensors{"lm_head.weight": {5, 4}}).bytes(t)
	raw[len(raw)-1] = 1 // a byte of wte.weight, the last tensor by name
	if err := os.WriteFile(path, raw, 0o644); err != nil {
		t.Fatal(err)
	}
	_, err := pretrained.Open(path, build(t, "gpt", smallSettings))
	if err == nil || !strings.Contains(err.Error(), "wte.weight and lm_head.weight have other values") {
		t.Error(err)
	}
}

func TestPartsThatDoNotFit(t *testing.T) {
	llama := build(t, "llama", tinySettings)
	names := slices.Sorted(maps.Keys(tiny()))
	const a, b = "a.safetensors", "b.safetensors"
	for _, c := range []struct {
		what  string
		index func(of map[string]string) // changes a correct index
		more  tensors                    // further tensors in b
		text  string                     // if set, it replaces the index
		want  string
	}{
		{what: "right"},
		{what: "outside", index: func(of map[string]string) { of[names[0]] = "../" + a }, want: `in "../a.safetensors"; it is ` +
			"a file of the same folder"},
		{what: "nameless", index: func(of map[string]string) { of[names[0]] = "" }, want: `in ""`},
		{what: "not there", index: func(of map[string]string) { of["x"] = "c.safetensors" },
			want: "c.safetensors: there"},
		{what: "in the other", index: func(of map[string]string) { of[names[0]] = b }, want: "lm_head.weight"},
		{what: "left out", index: func(of map[string]string) { delete(of, names[0]) }, want: `tensor "lm_head.weight" is not in ` +
			"the weight_map"},
		{what: "twice", more: tensors{names[0]: {5, 4}}, want: `tensor "lm_head.weight" is in another file`},
		{what: "no map", text: "{}", want: "no weight_map"},
		{what: "no JSON", text: "[", want: "model.safetensors.index.json: unexpected end"},
		{what: "lists", text: `{"weight_map": {"x": ["y"]}}`, want: "weight_map is a JSON array, and a text is right"},
	} {
		folder := t.TempDir()
		of, parts := map[string]string{}, map[string]tensors{a: {}, b: maps.Clone(c.more)}
		if c.more == nil {
			parts[b] = tensors{}
		}
		for i, name := range names {
			file := []string{a, b}[min(i/6, 1)]
			of[name] = file
			parts[file][name] = tiny()[name]
		}
		for file, all := range parts {
			all.write(t, filepath.Join(folder, file))
		}
		if c.index != nil {
			c.index(of)
		}
		text, err := json.Marshal(map[string]any{"weight_map": of})
		if err != nil {
			t.Fatal(err)
		}
		if c.text != "" {
			text = []byte(c.text)
		}
		if err := os.WriteFile(filepath.Join(folder, "model.safetensors.index.json"), text, 0o644); err != nil {
			t.Fatal(err)
		}
		_, err = pretrained.Open(folder, llama)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v; want it to say %q", c.what, err, c.want)
		}
		if got := pretrained.Files(folder); c.want == "" && len(got) != 3 {
			t.Errorf("files %v", got)
		}
	}
}

func TestFoldersThatSayTooLittle(t *testing.T) {
	m, folder := build(t, "llama", tinySettings), t.TempDir()
	refused := func(path, want string) {
		t.Helper()
		if _, err := pretrained.Open(path, m); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want it to say %q", err, want)
		}
	}
	refused(folder, "0 files of that kind")
	tiny().write(t, filepath.Join(folder, "x.safetensors"))
	if _, err := pretrained.Open(folder, m); err != nil {
		t.Error(err)
	}
	tiny().write(t, filepath.Join(folder, "y.safetensors"))
	refused(folder, "2 files of that kind")
	refused(filepath.Join(folder, "z"), "no such file")
	refused("/dev/null", "a device")
	if err := os.WriteFile(filepath.Join(folder, "model.safetensors"), []byte("\x80\x02pickle....."), 0o644); err != nil {
		t.Fatal(err)
	}
	refused(folder, "is no safetensors file")
}

// Reading from a file that has become shorter since it was opened returns an error, not zeros.
func TestAFileThatChanges(t *testing.T) {
	m, path := build(t, "llama", tinySettings), filepath.Join(t.TempDir(), "x.safetensors")
	tiny().write(t, path)
	w, err := pretrained.Open(path, m)
	if err != nil {
		t.Fatal(err)
	}
	if v, err := w.Tensor("norm.gain"); err != nil || v.DType != "F32" || len(v.Data) != 16 {
		t.Errorf("%v, %v", v, err)
	}
	if err := os.Truncate(path, 200); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Tensor("norm.gain"); err == nil || !strings.Contains(err.Error(), "has changed") {
		t.Error(err)
	}
}

// Opening any file and index returns an error or the values of a whole model.
func FuzzOpen(f *testing.F) {
	one := tensors{"model.norm.weight": {4}}.bytes(f)
	f.Add(tiny().bytes(f), []byte(`{"weight_map": {"lm_head.weight": "a"}}`), []byte(`{"rope_theta": 1}`))
	f.Add(small("transformer.").bytes(f), []byte(`{"weight_map": {"wte.weight": "a"}}`), []byte(`{"n_head": 2}`))
	f.Add(one, []byte(`{"weight_map": {"model.norm.weight": "a"}}`), []byte(`{}`))
	llama, gpt := build(f, "llama", tinySettings), build(f, "gpt", smallSettings)
	folder := f.TempDir()
	f.Fuzz(func(t *testing.T, file, index, config []byte) {
		for name, text := range map[string][]byte{"a": file, "model.safetensors.index.json": index, "config.json": config} {
			if err := os.WriteFile(filepath.Join(folder, name), text, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		for _, m := range []*model.Model{llama, gpt} {
			for _, path := range []string{folder, filepath.Join(folder, "a")} {
				w, err := pretrained.Open(path, m)
				if err != nil {
					continue
				}
				for i := range m.Layers {
					for k, p := range m.Layers[i].Params {
						if p.Tied != "" {
							continue
						}
						v, err := w.Tensor(m.Layers[i].ParamName(k))
						if err != nil {
							t.Fatal(err)
						}
						if size, err := safetensors.Size(v.DType, v.Shape); err != nil || size != int64(len(v.Data)) {
							t.Fatalf("%s%v in %d bytes: %v", v.DType, v.Shape, len(v.Data), err)
						}
					}
				}
			}
		}
	})
}
