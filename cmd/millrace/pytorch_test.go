package main

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/cmd/internal/clitest"
)

// clone makes a folder in which commands of the documents run as in a fresh clone after make. It has the program in
// bin, the exporter and the examples; Debian's python3 comes first in the path.
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

// counted is what both export and load.py print about the example's tensors.
const counted = " parameters in 22 tensors and 18 buffers"

// thereAndBack checks the output of the commands for a PyTorch model in the README and in the example. The commands go
// from the module to two stages and back. The check needs python3-torch; `make setup-pytorch` installs it.
func thereAndBack(t *testing.T, sh func(command string) string, printed map[string]string) {
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
			found = append(found, oneLine(string(m[1])))
		}
		if len(found) != 3 || commands != nil && strings.Join(found, "\n") != strings.Join(commands, "\n") {
			t.Fatalf("%s has the commands %q, the README %q", page, found, commands)
		}
		commands = found
	}
	scores := func(command, line string) (loss, accuracy float64) {
		out := printed[command]
		at := strings.Index(out, line)
		if exported := printed[commands[0]]; at < 0 || !strings.Contains(exported, counted+", in ") {
			t.Fatalf("%s prints\n%s; it has no %q, or export counts otherwise:\n%s", command, out, line, exported)
		}
		if _, err := fmt.Sscanf(out[at+len(line):], "loss %f, accuracy %f %%", &loss, &accuracy); err != nil {
			t.Fatalf("%s prints\n%s: %v", command, out, err)
		}
		return loss, accuracy
	}
	loss, accuracy := scores(commands[1], "evaluation after 300 steps: ")
	again, also := scores(commands[2], "loaded"+counted+"; evaluation: ")
	if math.Abs(again-loss) > 2e-4 || math.Abs(also-accuracy) > 0.011 || accuracy < 90 {
		t.Errorf("millrace evaluates loss %v, accuracy %v, and PyTorch %v, %v", loss, accuracy, again, also)
	}
	// PyTorch loads exactly what was exported, name by name, and computes with it.
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
	// The run resumes with other stages, with recomputation, and with the micro-batch size that the planner chooses.
	sh("bin/millrace profile --model runs/digits.mr --batch 32 --sizes 1,2,4,8,16,32 --passes 1 -o runs/profile.json")
	const given = "train --model runs/digits.mr --data digits --profile runs/profile.json "
	if out := sh("bin/millrace " + given + "--batch 32 --steps 302 --out runs/on " +
		"--resume runs/pytorch/checkpoints --workers 3 --stages 3 --recompute stage --schedule 1f1b"); !strings.Contains(out,
		"after 302 steps") {
		t.Errorf("it goes on with %s", out)
	}
	// An operator that cannot be computed is an input error, even if it is only found while measuring.
	out = sh(`python3 -c '
import json, zipfile
of = zipfile.ZipFile("runs/digits.mr")
graph = json.loads(of.read("graph.json"))
node = [n for n in graph["nodes"] if n["op"] == "prim::ListConstruct" and n["scope"] == "blocks.2"][0]
node["in"][1]["int"] = 2000000
with zipfile.ZipFile("runs/wrong.mr", "w") as wrong:
    wrong.writestr("graph.json", json.dumps(graph))
    wrong.writestr("weights.safetensors", of.read("weights.safetensors"))
' && { bin/millrace profile --model runs/wrong.mr --sizes 4 2>&1; echo exit $?; }`)
	if !strings.HasSuffix(out, "exit 2\n") || strings.Count(out, "aten::max_pool2d in blocks.2, digits.py:29") != 1 {
		t.Errorf("a pool of 2000000 columns: %s", out)
	}
	// Workers in separate processes reach the same weights as workers in one process, also for a stream.
	for i, how := range []string{"", "launch -n 2 -- "} {
		sh(fmt.Sprintf("bin/millrace %s%s--batch 16 --steps 12 --workers 2 --stages 2 "+
			"--split blocks.1.conv1 --schedule 1f1b-rr --weights stash --out runs/p%d && "+
			"bin/millrace checkpoint export runs/p%[3]d -o runs/p%[3]d.safetensors", how, given, i))
	}
	sh("cmp runs/p0.safetensors runs/p1.safetensors")
}

// ownNetwork is a network with four inputs of three types, with a batch norm and its own running average. The script
// also writes eight rows for the network. Each row reports a power of two: 1, 2, 4 and so on. Their sum shows which
// rows an evaluation used.
const ownNetwork = `
import numpy, torch
from torch import nn
from torch.nn import functional as F

class Own(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(6))
        self.embed, self.norm, self.head = nn.Embedding(9, 6), nn.BatchNorm1d(6), nn.Linear(6, 3)

    def forward(self, words, keep, code, target):
        x = (self.embed(words) * keep.unsqueeze(2)).sum(1)
        if self.training:
            with torch.no_grad():
                self.mean.lerp_(x.mean(0), 0.2)
        x = self.norm((x - self.mean) * (1 + self.mean.square()))
        return {"loss": F.cross_entropy(self.head(x), target), "seen": code.mean()}

def rows(n=8):
    torch.manual_seed(1)
    return dict(words=torch.randint(0, 9, (n, 5)), keep=torch.rand(n, 5) < 0.7, code=2.0 ** torch.arange(n),
                target=torch.randint(0, 3, (n,)))

def build():
    torch.manual_seed(2)
    return Own(), tuple(x[:4] for x in rows().values())

if __name__ == "__main__":
    used = {k: x.numpy() for k, x in rows().items()}
    numpy.savez("rows.npz", unread=numpy.zeros(3), **used)
    numpy.savez("used.npz", **used)
`

// A network learns from an .npz of its inputs. Its evaluation loss and reported values equal those that PyTorch
// computes with the trained weights on the same rows. If the first layers are frozen by name, the head learns as in
// PyTorch, and batch statistics still change. A wrong name to freeze is refused with similar names.
func TestAPyTorchNetworkLearnsFromArrays(t *testing.T) {
	t.Parallel()
	dir, sh := clone(t)
	write(t, filepath.Join(dir, "own.py"), ownNetwork)
	sh("python3 own.py && python3 python/millrace_export.py own.py:build -o own.mr")
	out := sh("bin/millrace profile --model own.mr --batch 4 --sizes 2 --passes 1 -o own.json && " +
		"bin/millrace train --model own.mr --profile own.json --data rows.npz --train-part 0.5 " +
		"--workers 2 --stages 2 --split norm --schedule 1f1b --micro-batches 2 --batch 4 --steps 3 " +
		"--lr 0.1 --out runs/own && " +
		"bin/millrace checkpoint export runs/own -o own.safetensors && " +
		"bin/millrace data show used.npz --train-part 0.5 --rows test > held-out.txt")
	if !regexp.MustCompile(`evaluation after 3 steps: loss [0-9.]+, seen [0-9.]+\n`).MatchString(out) {
		t.Errorf("train prints\n%s", out)
	}
	const frozen = "--model own.mr --freeze embed,norm.* "
	sh("bin/millrace profile --batch 8 --sizes 8 --passes 1 -o frozen.json " + frozen + "&& " +
		"bin/millrace train --profile frozen.json --data rows.npz --train-part 1 " +
		"--workers 2 --stages 2 --split head --schedule 1f1b --batch 8 --micro-batches 1 " +
		"--optimizer sgd --lr 0.1 --steps 3 --out runs/frozen " + frozen + "&& " +
		"bin/millrace checkpoint export runs/frozen -o frozen.safetensors")
	for pattern, want := range map[string]string{
		"embd":             `freeze "embd" matches no parameter; near it: embed, `,
		"norm.running_var": `freeze "norm.running_var": it matches buffers alone`,
		"*":                "freeze *: nothing would learn that the loss depends on; leave a layer out",
	} {
		out := sh("bin/millrace train --model own.mr --data rows.npz --batch 4 --steps 1 --out runs/no --freeze '" + pattern +
			"' 2>&1; echo exit $?")
		if !strings.Contains(out, want) || !strings.HasSuffix(out, "exit 2\n") {
			t.Errorf("--freeze %s prints %s; want %q", pattern, out, want)
		}
	}
	said := sh(`python3 -c '
import json, sys, torch
sys.path.insert(0, "python")
from own import build, rows
from millrace_weights import read
lines = [json.loads(line) for line in open("runs/own/metrics.jsonl")]
last = [line for line in lines if "evaluation_loss" in line][-1]
seen = last["evaluation_reported"]["seen"] * 4
these = [i for i in range(8) if int(seen) >> i & 1]
held_out = [int(line) for line in open("held-out.txt")]
print(sorted(held_out) == these)
module, _ = build()
first = module.eval()(*[x[these] for x in rows().values()])["loss"].item()
print(module.load_state_dict(read("own.safetensors")))
loss = module.eval()(*[x[these] for x in rows().values()])["loss"].item()
print(len(these), seen == int(seen), abs(loss - last["evaluation_loss"]) < 1e-5, abs(loss - first) > 1e-3)
module, saved = build()[0], read("frozen.safetensors")
before = {k: x.clone() for k, x in module.state_dict().items()}
for p in list(module.embed.parameters()) + list(module.norm.parameters()):
    p.requires_grad_(False)
optimizer = torch.optim.SGD(module.head.parameters(), 0.1)
for step in range(3):
    optimizer.zero_grad()
    module(*rows().values())["loss"].backward()
    optimizer.step()
after = module.state_dict()
print(*[k for k in after if torch.equal(saved[k], before[k])])
print(all(torch.allclose(saved[k], after[k], 1e-4, 1e-6) for k in after))
'`)
	if said != "True\n<All keys matched successfully>\n4 True True True\nembed.weight norm.weight norm.bias\nTrue\n" {
		t.Errorf("PyTorch says %s", said)
	}
	reportedOnThePage(t, dir, sh)
}

// reportedOnThePage runs the code of docs/pytorch.md that repeats an evaluation, and compares the loss that it prints
// with that of the last evaluation.
func reportedOnThePage(t *testing.T, dir string, sh func(string) string) {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "pytorch.md"))
	if err != nil {
		t.Fatal(err)
	}
	code := "import sys\nsys.path.insert(0, 'python')\nfrom own import build\n"
	for _, begins := range []string{"    from millrace_weights", "    import inspect"} {
		_, block, found := strings.Cut(string(page), "\n"+begins)
		block, _, _ = strings.Cut(begins+block, "\n\n")
		if !found {
			t.Fatalf("the page has no block that begins with %q", begins)
		}
		code += regexp.MustCompile("(?m)^    ").ReplaceAllString(block, "") + "\n"
	}
	write(t, filepath.Join(dir, "page.py"), code)
	said := sh("cp own.safetensors weights.safetensors && python3 page.py && " +
		"grep -h evaluation_loss runs/own/metrics.jsonl")
	var printed, reported float64
	if m := regexp.MustCompile(`'loss': tensor\(([0-9.]+)`).FindStringSubmatch(said); m != nil {
		printed, _ = strconv.ParseFloat(m[1], 64) // the text has only digits and dots
	}
	for _, m := range regexp.MustCompile(`"evaluation_loss":\s*([0-9.]+)`).FindAllStringSubmatch(said, -1) {
		reported, _ = strconv.ParseFloat(m[1], 64)
	}
	if printed == 0 || math.Abs(printed-reported) > 1e-4 {
		t.Errorf("the page's code gives a loss of %v, and the evaluation of %v: %s", printed, reported, said)
	}
}
