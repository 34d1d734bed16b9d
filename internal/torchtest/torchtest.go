// Package torchtest makes PyTorch export and train the networks of model/aten/testdata/networks, for tests to
// compare with.
//
// Input: requests, each with a network's name. Output: the files that python/millrace_export.py wrote, and PyTorch's
// own results for the same module: losses, gradients, buffers, training curves; see oracle.py for their names. The
// answer also says if a network was not exported. The caller is a test, which fails without Debian's PyTorch.
package torchtest

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/millrace-ml/millrace/internal/safetensors"
)

// python is Debian's Python, for which python3-torch and python3-torchvision are installed.
const python = "/usr/bin/python3"

// Request asks for one network.
type Request struct {
	Name  string  `json:"name"`            // name of the function that builds it
	File  string  `json:"file"`            // in testdata/networks
	Loss  string  `json:"loss,omitempty"`  // value of --loss
	Rate  float64 `json:"rate,omitempty"`  // learning rate of 50 steps of SGD; 0 means no training
	Order [][]int `json:"order,omitempty"` // rows of each step; nil means the usual order
	// Frozen has prefixes of the names of parameters that do not learn in these steps.
	Frozen []string `json:"frozen,omitempty"`
}

// Answer is the result of a request.
type Answer struct {
	Name       string
	Doc        string // docstring of the module's class
	Code       int    // exit code of the exporter
	Said, Done string // what the exporter wrote to stderr and stdout
	Oracle     bool   // PyTorch's own numbers were written, as for every network that draws no random numbers
	Model      string // the exported file
	Numbers    string // the safetensors file of PyTorch's numbers
}

// Tensor is a tensor from PyTorch.
type Tensor struct {
	DType string
	Shape []int64
	Data  []byte // little-endian
}

// Main returns the networks for which every part of training is compared with PyTorch's.
func Main() []Request {
	return []Request{
		{Name: "resnet18", File: "vision.py", Rate: 0.05},
		{Name: "mobilenet_v2", File: "vision.py", Rate: 0.05},
		{Name: "vit_b_16", File: "vision.py", Rate: 0.05},
		{Name: "gpt", File: "language.py", Rate: 0.05},
		{Name: "bert", File: "language.py", Rate: 0.05},
		{Name: "lstm", File: "language.py", Loss: "cross_entropy", Rate: 0.5},
		{Name: "encoder", File: "language.py", Rate: 0.02}, // at 0.05 PyTorch itself varies by 4 %
		{Name: "branches", File: "language.py", Rate: 0.05},
	}
}

// Run answers requests with one Python process, with files in a temporary folder of the test.
func Run(t testing.TB, requests ...Request) []Answer {
	t.Helper()
	return RunIn(t, t.TempDir(), requests...)
}

// RunIn answers requests with files in the given folder.
func RunIn(t testing.TB, folder string, requests ...Request) []Answer {
	t.Helper()
	root := moduleRoot(t)
	networks := filepath.Join(root, "model/aten/testdata/networks")
	exporter := filepath.Join(root, "python/millrace_export.py")
	sources, err := filepath.Glob(filepath.Join(networks, "*.py"))
	for _, path := range append(sources, exporter, filepath.Join(root, "python/millrace_graph.py")) {
		if err == nil {
			_, err = os.ReadFile(path) // so that the go command's cache depends on it
		}
	}
	var asked, said bytes.Buffer
	for _, r := range requests {
		if err == nil {
			err = json.NewEncoder(&asked).Encode(r)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), python, "-B", filepath.Join(networks, "oracle.py"), exporter, folder)
	c.Env = append(os.Environ(), "OMP_NUM_THREADS=1", "PYTHONHASHSEED=1")
	c.Stdin, c.Stderr = &asked, &said
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%s with torch and torchvision, which make setup-pytorch installs: %v\n%s", python, err, said.String())
	}
	var answers []Answer
	for line := range bytes.Lines(out) {
		var a Answer
		if err := json.Unmarshal(line, &a); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		a.Model, a.Numbers = filepath.Join(folder, a.Name+".mr"), filepath.Join(folder, a.Name+".safetensors")
		answers = append(answers, a)
	}
	return answers
}

// Read reads the file of PyTorch's numbers.
func Read(t testing.TB, path string) map[string]Tensor {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	index, err := safetensors.ReadIndex(bytes.NewReader(raw), int64(len(raw)), safetensors.LongestHeader,
		"F32", "F64", "I64", "I32", "BOOL", "U8")
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	tensors := map[string]Tensor{}
	for name, e := range index.Entries {
		tensors[name] = Tensor{e.DType, e.Shape, raw[index.Start+e.Offsets[0] : index.Start+e.Offsets[1]]}
	}
	return tensors
}

// moduleRoot returns the folder of go.mod, which is the test's folder or one above it.
func moduleRoot(t testing.TB) string {
	t.Helper()
	at, err := os.Getwd()
	for ; err == nil; at = filepath.Dir(at) {
		if _, err := os.Stat(filepath.Join(at, "go.mod")); err == nil {
			return at
		}
		if at == filepath.Dir(at) {
			t.Fatal("there is no go.mod in or above the folder of the test")
		}
	}
	t.Fatal(err)
	return ""
}
