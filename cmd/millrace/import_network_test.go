package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// ownModel is a user's network with a skip and a shared table. If its parameter `dice` is true, it draws random
// numbers, which cannot be repeated.
const ownModel = `
import torch, torch.nn as nn, torch.nn.functional as F

class Own(nn.Module):
    def __init__(self, dice=False):
        super().__init__()
        self.embed = nn.Embedding(11, 6)
        self.mix = nn.Linear(6, 6)
        self.head = nn.Linear(6, 11, bias=False)
        self.head.weight = self.embed.weight
        self.dice = dice

    def forward(self, words, target):
        x = self.embed(words).mean(1)
        x = x + F.relu_(self.mix(x))
        if self.dice:
            x = x + torch.rand_like(x)
        return F.cross_entropy(self.head(x), target)

def example():
    return torch.zeros(7, 3, dtype=torch.int64), torch.zeros(7, dtype=torch.int64)

def build(): return Own(), example()
def dice(): return Own(True), example()
`

// import shows the contents of a PyTorch network as layers, and refuses by name what cannot be trained.
func TestImportShowsAPyTorchNetwork(t *testing.T) {
	t.Parallel()
	p := bare(t)
	write(t, filepath.Join(p.Dir, "own.py"), ownModel)
	script, err := filepath.Abs("../../python/millrace_export.py")
	if err != nil {
		t.Fatal(err)
	}
	cluster, err := os.ReadFile("../../examples/two-nodes.yaml")
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(p.Dir, "two.yaml"), string(cluster))
	for _, name := range []string{"build", "dice"} {
		c := exec.CommandContext(t.Context(), "/usr/bin/python3", "-B", script, "own.py:"+name, "-o", name+".mr")
		c.Dir = p.Dir
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("/usr/bin/python3 with torch, which Debian has as python3-torch: %v\n%s", err, out)
		}
	}
	const facts = `
network     Own
inputs      words I64[3], target I64[]
parameters  108, 108 of them trained
`
	const layers = `  layer               parameters    forward  yields    operators
                                      MFLOP
  embed                       66          0  F32[3 6]  embedding
  mean                         0          0  F32[6]    mean.dim
  mix                         42  0.0000720  F32[6]    linear
  relu                         0          0  F32[6]    relu add.Tensor
  head                         0   0.000132  F32[11]   linear
  cross_entropy_loss           0          0            cross_entropy_loss
`
	tells(t, p, "import --from torch build.mr", facts+"fused       1 embedding, 2 linear\n"+layers)
	tells(t, p, "import --from torch --fuse off build.mr", facts+layers)
	// import -o writes a folder from the file, even if the folder exists. Both the file and the folder are models.
	for range 2 {
		if out := p.Run(t, strings.Fields("import --from torch build.mr -o net"), false); !strings.HasSuffix(out,
			"wrote net, for --model\n") {
			t.Error(out)
		}
	}
	file := p.Run(t, strings.Fields("plan --model build.mr --batch 8 --cluster two.yaml"), false)
	if folder := p.Run(t, strings.Fields("plan --model net --batch 8 --cluster two.yaml"), false); folder != file {
		t.Errorf("planned from its folder:\n%s\nfrom its file:\n%s", folder, file)
	}
	for line, want := range map[string]string{
		"import --from torch dice.mr":           "aten::rand_like",
		"import --from torch own.py":            "own.py",
		"import --from torch --fuse a build.mr": "on and off are right",
		"import --from pt2 build.mr":            "build.mr",
		"plan --model dice.mr --batch 8":        "aten::rand_like",
		"plan --model own.py --batch 8":         "own.py",
		"plan --model gone.mr --batch 8":        "there is no such file",
		"plan --model build.mr --set a=1":       "takes no settings",
	} {
		c := p.Command(t, strings.Fields(line))
		out, err := c.CombinedOutput()
		if err == nil || c.ProcessState.ExitCode() != 2 || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v: %s", line, err, out)
		}
	}
}
