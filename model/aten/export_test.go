package aten

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// python is the path of Debian's Python, which finds the package python3-torch.
const python = "/usr/bin/python3"

const (
	exporter = "../../python/millrace_export.py"
	styles   = "testdata/styles.py"
)

// driver exports many modules in one process. For each module it prints the content of its state_dict, read with
// PyTorch alone.
const driver = `
import contextlib, hashlib, io, json, os, sys
sys.path[:0] = [os.path.dirname(sys.argv[1]), os.path.dirname(sys.argv[2])]
import torch, millrace_export, styles
for line in sys.stdin:
    name, *rest = line.split()
    said, done = io.StringIO(), io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(done):
        code = millrace_export.main([sys.argv[2] + ":" + name, "-o", sys.argv[3] + "/" + name] + rest)
    state = {}
    if code == 0:
        torch.manual_seed(0)
        for key, x in getattr(styles, name)()[0].state_dict().items():
            x = x.view(torch.int16) if x.dtype == torch.bfloat16 else x
            state[key] = [list(x.shape), hashlib.sha256(x.contiguous().numpy().tobytes()).hexdigest()]
    print(json.dumps({"name": name, "code": code, "said": said.getvalue(), "done": done.getvalue(), "state": state}))
`

// exported has the modules that can be exported, by name. Each value is a list of further arguments for the export.
var exported = map[string]string{"tied": "", "recurrent": "--loss=cross_entropy", "normed": "", "loop": "", "kinds": "",
	"scripted": "", "sequence": "--loss=cross_entropy", "regression": "--loss=mse", "normalized": "--loss=mse",
	"optional": "--loss=mse", "counted": "", "transposed": "--loss=mse",
	"compiled": "--loss=cross_entropy", "beside": ""}

// refused lists the modules that cannot be exported, with the line of styles.py that the error names, and the message.
var refused = []struct{ name, args, line, says string }{
	{"raises", "", `raise ValueError("no data`, "ValueError: no data here"},
	{"forward_raises", "", "x @ y.unknown", "AttributeError: 'Tensor' object has no attribute 'unknown'"},
	{"exits", "", "raise SystemExit(0)", "SystemExit: 0"},
	{"no_pair", "", "", "returns a Linear; give a pair: a module and a tuple of tensors"},
	{"inputs_are_a_number", "", "", "input 0 is a int; give tensors alone"},
	{"inputs_are_a_dict", "", "", "input 0 is a dict; give tensors alone"},
	{"nested_inputs", "", "", "input 0 is a dict; give tensors alone"},
	{"other_rows", "", "", "input 1 has the shape [3, 3], and the first one [2, 3]; the first dimension of each is"},
	{"one_row", "", "", "[1, 3]; the first dimension of each is the batch, of 2 rows or more"},
	{"too_many", "", "", "forward of Linear does not take 3 inputs"},
	{"outputs_alone", "", "", "forward of Linear takes 1 of the 2 inputs of build(): where the last one is the " +
		"target of a loss of its outputs, give --loss cross_entropy|mse|bce"},
	{"no_number", "", "", "the module returns the shape [2, 3], where its mean loss should be; return that, or give " +
		"--loss cross_entropy|mse|bce"},
	{"text", "", "", "the module returns a str, where its mean loss should be"},
	{"text", "--loss=mse", "", "the module returns a str; --loss is of a tensor with the batch in front"},
	{"no_loss", "", "", "the module returns a dict, where its mean loss should be; return that, or give --loss"},
	{"no_gradient", "--loss=mse", "", "the module returns one number; --loss is of a tensor with the batch in front"},
	{"replaced_buffer", "", "", "forward replaces mean; write into it, as in self.mean.copy_(...)"},
	{"counted_rows", "", "torch.arange(len(x))", "aten::arange: its argument 2 is 4 with twice the rows: Python made it"},
	{"other_operators", "", "for i in range(len(x)", "forward calls other operators with twice the rows"},
	{"written_rows", "", ".view(2, 3) - y)", "with twice the rows (4 instead of 2): RuntimeError: shape '[2, 3]' is " +
		"invalid for input of size 12; a size of the batch is written as a number there, or before it: use x.shape[0]"},
	{"fails_in_traces", "", "x.untraced", "AttributeError: 'Tensor' object has no attribute 'untraced'"},
	{"packed", "", "pack_padded_sequence(", "a packed sequence has other sizes in each batch; give the padded tensor"},
	{"behind_autograd", "", "self.weight.data.sum()", "what is computed of weight does not follow its training"},
	{"shared_memory", "", "", "share memory; make them one parameter, or copy one"},
	{"data_dependent", "", "if bool(x.sum() > 0)", "prim::If: branches of scripted functions and backwards"},
	{"own_backward", "", "Square.apply", "prim::PythonOp: branches of scripted functions and backwards of"},
	{"lazy", "--loss=mse", "", "weight has no shape yet; call the module once in build()"},
	{"single", "", "", "there is one input; the last one is the target: give it, or --loss"},
	{"sparse", "", "", "table is torch.sparse_coo, torch.float32, on cpu; give a dense tensor"},
	{"nobody", "", "", "has no function nobody; did you mean "},
	{"cyclic", "", "", "RecursionError"},
}

type outcome struct {
	Name, Said, Done string
	Code             int
	State            map[string][2]any // from PyTorch: shape and SHA-256 of the elements of each tensor
}

// exports exports all modules in one process, on its first call, and returns their outcomes.
var exports = sync.OnceValues(func() ([]outcome, error) {
	for _, path := range []string{exporter, "../../python/millrace_graph.py"} {
		if _, err := os.ReadFile(path); err != nil { // makes the go command's test cache depend on the file
			return nil, err
		}
	}
	folder, err := os.MkdirTemp("", "millrace-aten-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	var asked strings.Builder
	names := slices.Sorted(maps.Keys(exported))
	for _, name := range names {
		fmt.Fprintln(&asked, name, exported[name])
	}
	for _, r := range refused {
		fmt.Fprintln(&asked, r.name, r.args)
	}
	c := exec.Command(python, "-c", driver, exporter, styles, folder)
	c.Env = append(os.Environ(), "OMP_NUM_THREADS=1", "PYTHONDONTWRITEBYTECODE=1", "PYTHONHASHSEED=1")
	c.Stdin = strings.NewReader(asked.String())
	var said bytes.Buffer
	c.Stderr = &said
	out, err := c.Output()
	if err != nil {
		return nil, fmt.Errorf("%s with torch, which Debian has as python3-torch: %w\n%s", python, err, said.String())
	}
	var all []outcome
	for line := range bytes.Lines(out) {
		var o outcome
		if err := json.Unmarshal(line, &o); err != nil {
			return nil, fmt.Errorf("%q: %w", line, err)
		}
		all = append(all, o)
	}
	for i := range names { // the folder is removed on return, so the models are read first
		text, err := os.ReadFile(filepath.Join(folder, names[i]))
		if err != nil {
			return nil, fmt.Errorf("%s: %w\n%+v", names[i], err, all[i])
		}
		files[names[i]] = text
	}
	left, err := os.ReadDir(folder)
	if err == nil && len(left) != len(names) {
		err = fmt.Errorf("%d files are left of %d models", len(left), len(names))
	}
	return all, err
})

// files holds the models that exports has made.
var files = map[string][]byte{}

// model opens the exported model of a module.
func model(t *testing.T, name string) (*Graph, *Weights, outcome) {
	t.Helper()
	all, err := exports()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, files[name], 0o600); err != nil {
		t.Fatal(err)
	}
	g, w, err := Read(path)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	t.Cleanup(func() { _ = w.Close() })
	return g, w, all[slices.IndexFunc(all, func(o outcome) bool { return o.Name == name })]
}

// Every name in a module's state_dict is the name of a tensor in the file, or an alias of one. This tensor has the
// shape and the elements that it has in PyTorch before the module's first call. All other tensors in the file are
// constants, or buffers that state_dict leaves out.
func TestWeightsAreThoseOfStateDict(t *testing.T) {
	for name := range exported {
		g, w, o := model(t, name)
		if o.Code != 0 || len(o.State) == 0 {
			t.Fatalf("%s: %+v", name, o)
		}
		shapes := map[string][]int64{}
		for _, tensor := range g.Tensors {
			shapes[tensor.Name] = tensor.Shape
			if _, saved := o.State[tensor.Name]; saved == (tensor.Unsaved || tensor.Role == Constant) {
				t.Errorf("%s: %+v is in state_dict: %v", name, tensor, saved)
			}
		}
		for key, want := range o.State {
			of := key
			if alias, is := g.Aliases[key]; is {
				of = alias
			}
			if w.Of[of] == nil {
				t.Errorf("%s: there is no %s", name, key)
				continue
			}
			data, err := io.ReadAll(io.NewSectionReader(w.Of[of], 0, w.Of[of].Size())) // an alias has its tensor's elements
			if err != nil {
				t.Fatal(err)
			}
			shape := fmt.Sprint(shapes[of])
			if shape != fmt.Sprint(want[0]) || fmt.Sprintf("%x", sha256.Sum256(data)) != want[1] {
				t.Errorf("%s: %s has the shape %s, or other elements than state_dict's %v", name, key, shape, want[0])
			}
		}
	}
}

// An exported graph has its module's inputs, tensors (with their roles), aliases and outputs. Each constant occurs only
// once.
func TestGraphsAreWhatTheModulesCall(t *testing.T) {
	for _, c := range []struct{ name, inputs, tensors, aliases, outputs string }{
		{"tied", "ids I64[3 5], *labels I64[3 5]",
			"~mask F32[5 5], +embed.weight F32[11 8], +block.self_attn.in_proj_weight F32[24 8], ...",
			"again.bias=norm.bias again.weight=norm.weight head.weight=embed.weight", "loss"},
		{"recurrent", "x F32[2 7 4], *target I64[2]", "+lstm.weight_ih_l0 F32[24 4], ...", "", "loss"},
		{"normed", "image F32[4 1 6 6], *label I64[4]", "+spare F32[3], -body.0.weight F32[4 1 3 3], +body.0.bias F32[4], " +
			"+body.1.0.weight F32[4], +body.1.0.bias F32[4], =body.1.0.running_mean F32[4], =body.1.0.running_var F32[4], " +
			"=body.1.0.num_batches_tracked I64[], +head.weight F32[2 4], +head.bias F32[2]", "", "loss accuracy"},
		{"loop", "left F32[2 3], right F32[2 3], *target F32[2 3]",
			"+step.weight F32[3 3], +step.bias F32[3], !constant0 F32[3]", "", "loss"},
		{"kinds", "x F32[2 3], *y F32[2 3]", "+first F32[2 3], +second F32[2 3], +turned F32[3 2], +wide F64[3], " +
			"=brain BF16[2], =yes BOOL[3], =count I32[], =none F32[0 3]", "", "loss"},
		{"scripted", "a F32[3 4], b F32[3 2], *label F32[3]", "+w F32[4 6]", "", "loss"},
		{"sequence", "input F32[2 2 2], *target I64[2]",
			"+1.weight F32[3 4], +1.bias F32[3], +3.weight F32[2 3], +3.bias F32[2]", "", "loss"},
		{"regression", "input F32[2 4], *target F32[2 1]", "+0.weight F32[3 4], ...", "", "loss"},
		{"normalized", "input F32[2 4], *target F32[2 1]", "+bias F32[1], +weight_g F32[1 1], +weight_v F32[1 4]",
			"", "loss"},
		{"optional", "x F32[2 3 4], *target F32[2 5]", "+gru.weight_ih_l0 F32[15 4], ...", "", "loss"},
		{"counted", "x F32[2 3], *y F32[2 3]", "=seen I64[], +layers.0.weight F32[3 3], +layers.0.bias F32[3], " +
			"+layers.1.weight F32[3 3], +layers.1.bias F32[3], +weights.0 F32[3]", "", "loss error"},
		{"beside", "x F32[4 3], *y I64[4]", "+weight F32[2 3], +bias F32[2]", "", "loss accuracy spread"},
		{"compiled", "input F32[3 4], *target I64[3]",
			"+0.weight F32[4 4], +0.bias F32[4], +2.weight F32[2 4], +2.bias F32[2], !constant0 F32[2]", "", "loss"},
		{"transposed", "x F32[2 2 3 3], *target F32[2 144]", "+up.weight F32[2 4 2 2], ...", "", "loss"},
	} {
		g, _, _ := model(t, c.name)
		var inputs, tensors, aliases, outputs []string
		for _, in := range g.Inputs {
			inputs = append(inputs, strings.Repeat("*", btoi(in.Target))+fmt.Sprintf("%s %s%v", in.Name, in.DType, in.Shape))
		}
		for _, x := range g.Tensors {
			mark := map[Role]string{Parameter: "-", Buffer: "=", Constant: "!"}[x.Role]
			if x.Trained {
				mark = "+"
			} else if x.Unsaved {
				mark = "~"
			}
			tensors = append(tensors, fmt.Sprintf("%s%s %s%v", mark, x.Name, x.DType, x.Shape))
		}
		for _, name := range slices.Sorted(maps.Keys(g.Aliases)) {
			aliases = append(aliases, name+"="+g.Aliases[name])
		}
		for _, o := range g.Outputs {
			outputs = append(outputs, o.Name)
		}
		if got := strings.Join(inputs, ", "); got != c.inputs {
			t.Errorf("%s: inputs %s; want %s", c.name, got, c.inputs)
		}
		begins, more := strings.CutSuffix(c.tensors, "...")
		if got := strings.Join(tensors, ", "); got != begins && (!more || !strings.HasPrefix(got, begins)) {
			t.Errorf("%s: tensors %s; want %s", c.name, got, c.tensors)
		}
		if got := strings.Join(aliases, " "); got != c.aliases {
			t.Errorf("%s: aliases %s; want %s", c.name, got, c.aliases)
		}
		if got := strings.Join(outputs, " "); got != c.outputs {
			t.Errorf("%s: outputs %s; want %s", c.name, got, c.outputs)
		}
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Nodes name their operator, their module and their line in the user's code.
func TestNodesHaveScopesAndPlaces(t *testing.T) {
	for _, c := range []struct{ name, op, scope, line, shape string }{
		{"tied", "aten::embedding", "embed", "x = self.again(self.block(self.norm(self.embed(ids))", "[3 5 8]"},
		{"tied", "aten::softmax.int", "block.self_attn", "x = self.again(self.block(", "[6 5 5]"},
		{"tied", "aten::cross_entropy_loss", "", "self.head(x).flatten(0, 1)", "[]"},
		{"normed", "aten::batch_norm", "body.1.0", "x = self.body(image)", "[4 4 4 4]"},
		{"normed", "aten::relu_", "body.1.1", "x = self.body(image)", "[4 4 4 4]"},
		{"counted", "aten::add_.Tensor", "", "self.seen += 1", "[]"},
		{"counted", "aten::linear", "layers.0", "x = x + layer(x)", "[2 3]"},
		{"beside", "aten::std", "", "right, wide = (out.argmax", "[]"},
		{"scripted", "aten::softplus", "", "x * torch.tanh(F.softplus(x))", "[]"},
		{"sequence", "aten::gelu", "2", "", "[2 3]"},
		{"recurrent", "aten::lstm.input", "lstm", "h, (last, cell) = self.lstm(x)", "[2 7 6]"},
	} {
		g, _, _ := model(t, c.name)
		i := slices.IndexFunc(g.Nodes, func(n Node) bool { return n.Op == c.op })
		if i < 0 {
			t.Errorf("%s calls no %s", c.name, c.op)
			continue
		}
		where := ""
		if c.line != "" {
			where = fmt.Sprintf("styles.py:%d", lineOf(t, c.line))
		}
		if n := g.Nodes[i]; n.Scope != c.scope || n.Where != where || fmt.Sprint(n.Out[0].Shape) != c.shape {
			t.Errorf("%s: %s in %q at %q yields %v; want %q, %q, %s", c.name, n.Op, n.Scope, n.Where, n.Out[0].Shape, c.scope,
				where, c.shape)
		}
	}
}

// Operators whose results are not used are not in the file. Values that Python read from a tensor are reported.
func TestDeadNodesAndNotes(t *testing.T) {
	g, _, _ := model(t, "loop")
	for i, n := range g.Nodes {
		if n.Op == "aten::sum" {
			t.Errorf("%s is computed for nobody", n.said(i))
		}
	}
	for name, want := range map[string]string{
		"normed": "note: all is a tensor of shape [4, 2], and is left out; to report it return one number of it, as its " +
			"mean()\n",
		"counted": "note: step is 3, a number of Python, and is left out; to report it return a tensor, not its item()\n",
		"beside": "note: all is a tensor of shape [4, 2], and is left out; to report it return one number of it, as its " +
			"mean()\nnote: step is 3, a number of Python, and is left out; to report it return a tensor, not its item()\n" +
			"note: inner is a dict, and is left out; to report what it has return (loss, {\"name\": number, ...})\n" +
			"note: none is None, and is left out\n" +
			"note: another number is called loss too, and is left out; give each a name of its own\n",
		"tied":      "",
		"recurrent": "note: the target is made to fit the outputs: [2] of torch.int64\n"} {
		if _, _, o := model(t, name); o.Said != want {
			t.Errorf("%s: %q; want %q", name, o.Said, want)
		}
	}
	_, _, o := model(t, "sequence")
	if want := "Sequential: 5 operators, 23 parameters in 4 tensors, "; !strings.HasPrefix(o.Done, want) {
		t.Errorf("%q; want %q", o.Done, want)
	}
}

// lineOf returns the only line of styles.py that contains a text.
func lineOf(t *testing.T, text string) int {
	t.Helper()
	all, err := os.ReadFile(styles)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(all), text); n != 1 {
		t.Fatalf("%s has %q %d times", styles, text, n)
	}
	return 1 + strings.Count(string(all[:strings.Index(string(all), text)]), "\n")
}

// A module that cannot be exported is refused in one line, with exit code 2, and leaves no file.
func TestRefusalsAreOneLine(t *testing.T) {
	all, err := exports()
	if err != nil {
		t.Fatal(err)
	}
	warned := regexp.MustCompile(`(?m)^(/.*Warning: .*|  warnings\.warn.*)\n`)
	for i, r := range refused {
		o := all[len(exported)+i]
		said := warned.ReplaceAllString(o.Said, "")
		if o.Code != 2 || strings.Count(said, "\n") != 1 || !strings.HasPrefix(said, "millrace_export: ") ||
			!strings.Contains(said, r.says) {
			t.Errorf("%s: code %d, %q; want %q", r.name, o.Code, said, r.says)
		}
		if r.line != "" && !strings.Contains(said, fmt.Sprintf("styles.py:%d: ", lineOf(t, r.line))) {
			t.Errorf("%s: %q does not blame line %d", r.name, said, lineOf(t, r.line))
		}
	}
}

// Another process, started as users start it, writes the same bytes for the same module.
func TestTheSameModuleIsTheSameFile(t *testing.T) {
	model(t, "tied")
	path := filepath.Join(t.TempDir(), "again")
	c := exec.Command(python, exporter, styles+":tied", "-o", path)
	c.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1", "PYTHONHASHSEED=2")
	if out, err := c.CombinedOutput(); err != nil || !strings.HasPrefix(string(out), "Tied: 73 operators, ") {
		t.Fatalf("%v: %s", err, out)
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, files["tied"]) {
		t.Errorf("%d bytes (%v); want the same %d", len(got), err, len(files["tied"]))
	}
}
