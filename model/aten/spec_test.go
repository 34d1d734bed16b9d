package aten

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// A dict may have numbers besides the loss. Each is reported under its key.
func TestKeysNameTheirNumbers(t *testing.T) {
	g, _, _ := model(t, "beside")
	by := map[int]string{}
	for _, n := range g.Nodes {
		by[n.Out[0].ID] = n.Op
	}
	got := map[string]string{}
	for _, o := range g.Outputs {
		got[o.Name] = by[o.Arg.Value]
	}
	want := map[string]string{"loss": "aten::cross_entropy_loss", "accuracy": "aten::mean", "spread": "aten::std"}
	if !maps.Equal(got, want) {
		t.Errorf("the outputs come of %v; want %v", got, want)
	}
}

// If the spec names no function, or one that does not exist, the error lists the functions of the spec's file.
func TestAFunctionIsNamed(t *testing.T) {
	const text = `
from torch import zeros, randn
from torch.nn import Module

class Net(Module):
    pass

def build(rows=4, *more, **named): pass
def sized(rows): pass
def small(): pass
`
	const both = "did you mean net.py:build or net.py:small?"
	dir := t.TempDir()
	script, err := filepath.Abs(exporter)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"net.py": text, "none.py": "x = 1\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for spec, want := range map[string]string{
		"net.py":       "net.py: no function of it is named; " + both,
		"net.py:":      "net.py: no function of it is named; " + both,
		"net.py:large": "net.py has no function large; " + both,
		"none.py": "none.py: no function of it is named; write one that takes no arguments: def build(), which returns a " +
			"module and a tuple of example tensors",
		"other.py": "other.py: there is no such Python file; give a file and a function, as in model.py:build",
	} {
		c := exec.CommandContext(t.Context(), python, "-B", script, spec, "-o", "out.mr")
		c.Dir = dir
		c.Env = append(os.Environ(), "OMP_NUM_THREADS=1")
		said, _ := c.CombinedOutput()
		if c.ProcessState.ExitCode() != 2 || string(said) != "millrace_export: "+want+"\n" {
			t.Errorf("%s: code %d, %s; want %s", spec, c.ProcessState.ExitCode(), said, want)
		}
	}
}
