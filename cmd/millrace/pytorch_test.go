package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/cmd/internal/clitest"
)

// clone is a folder in which commands of the documents run as in a clone after make: with the program in bin, the
// exporter, the examples, and Debian's python3 in front of others.
func clone(t *testing.T) (dir string, sh func(command string) string) {
	t.Helper()
	p := clitest.Trainer(t)
	dir = p.Dir
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, of := range map[string]string{"bin/millrace": self, "path/python3": "/usr/bin/python3",
		"python": "../../python", "examples": "../../examples"} {
		of, err := filepath.Abs(of)
		if err == nil {
			err = os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755)
		}
		if err == nil {
			err = os.Symlink(of, filepath.Join(dir, name))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "runs"), 0o755); err != nil {
		t.Fatal(err)
	}
	return dir, func(command string) string {
		t.Helper()
		c := exec.CommandContext(t.Context(), "sh", "-c", command)
		c.Dir = dir
		c.Env = append(os.Environ(), clitest.AsProgram+"=1", "MILLRACE_NATIVE="+p.Native, "XDG_CACHE_HOME="+p.Cache,
			"PYTHONDONTWRITEBYTECODE=1", "PATH="+filepath.Join(dir, "path")+":"+os.Getenv("PATH"))
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", command, err, out)
		}
		return string(out)
	}
}

// The commands for a PyTorch model that the README has, and those of the example, do what they say, from the module to
// two stages and back; without python3-torch, which make setup-pytorch installs, that fails.
func TestThePyTorchExampleGoesThereAndBack(t *testing.T) {
	shown := regexp.MustCompile(`(?m)^    \$ (.*(?:digits\.mr|digits\.safetensors).*)$`)
	var commands []string
	for _, page := range []string{"../../README.md", "../../examples/pytorch/README.md"} {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		text = bytes.ReplaceAll(text, []byte("&&\n"), []byte("&& "))
		var found []string
		for _, m := range shown.FindAllSubmatch(text, -1) {
			found = append(found, string(m[1]))
		}
		if len(found) != 3 || commands != nil && strings.Join(found, "\n") != strings.Join(commands, "\n") {
			t.Fatalf("%s has the commands %q, the README %q", page, found, commands)
		}
		commands = found
	}
	_, sh := clone(t)
	for i, command := range commands {
		want := []string{"parameters in", "accuracy 0.", "loaded 40 tensors"}[i]
		if out := sh(command); !strings.Contains(out, want) {
			t.Errorf("%s prints\n%s", command, out)
		}
	}
	// What PyTorch has loaded is what was exported, name by name, and is what it computes with.
	out := sh(`python3 -c '
import sys, torch
sys.path[:0] = ["python", "examples/pytorch"]
from digits import build
from millrace_weights import read
module, _ = build()
first = {k: x.clone() for k, x in module.state_dict().items()}
saved = read("runs/digits.safetensors")
print(module.load_state_dict(saved))
now = module.state_dict()
print(len(now), all(torch.equal(now[k], saved[k]) for k in saved), sum(not torch.equal(now[k], first[k]) for k in now))
'`)
	if out != "<All keys matched successfully>\n40 True 40\n" {
		t.Errorf("PyTorch says %s", out)
	}
	// It goes on with other stages, with recomputation.
	if out := sh("bin/millrace train --model runs/digits.mr --data digits --batch 32 --steps 302 --out runs/on " +
		"--resume runs/pytorch/checkpoints --workers 3 --stages 3 --recompute stage --schedule 1f1b"); !strings.Contains(out,
		"after 302 steps") {
		t.Errorf("it goes on with %s", out)
	}
	// Processes leave the weights of threads, of a stream too.
	for i, how := range []string{"", "launch -n 2 -- "} {
		sh(fmt.Sprintf("bin/millrace %strain --model runs/digits.mr --data digits --batch 16 --steps 12 --workers 2 "+
			"--stages 2 --split blocks.1.conv1 --schedule 1f1b-rr --weights stash --out runs/p%d && "+
			"bin/millrace checkpoint export runs/p%[2]d -o runs/p%[2]d.safetensors", how, i))
	}
	sh("cmp runs/p0.safetensors runs/p1.safetensors")
}
