package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/cmd/internal/clitest"
	"github.com/millrace-ml/millrace/cmd/internal/prepare"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/plan"
)

// A model that cannot run here is refused before libtorch is used, with a suggestion. Models that can run are not
// refused.
func TestModelsThatCannotRunHere(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"gnmt-8":   `model gnmt-8: nn: layer "attention": there is no computation of kind`,
		"resnet50": `model resnet50: nn: layer "pool1": there is no computation of kind`,
		"mlp":      "",
		"convnet":  "",
		"gpt":      "",
		"lstm":     "",
		"llama":    "",
		"s2vt":     "",
	} {
		m, err := model.Load(name, nil)
		if err != nil {
			t.Fatal(err)
		}
		err = prepare.CheckRunnable(m)
		if want == "" && err != nil || want != "" &&
			(err == nil || !strings.HasPrefix(err.Error(), want) || !strings.Contains(err.Error(), "--cluster")) {
			t.Errorf("%s: got %v, want it to say %q", name, err, want)
		}
	}
}

// A model with several inputs is measured on samples made for all of them. Data with only one input is refused.
func TestAModelOfSeveralInputs(t *testing.T) {
	t.Parallel()
	p := clitest.Trainer(t)
	s2vt := "--model s2vt --set features=6 --set width=4 --set embedding=4 --set vocabulary=5 --set context=3 --batch 2"
	if out := p.Run(t, strings.Fields("profile "+s2vt+" --sizes 2 --passes 1 -o p.json"), true); strings.Contains(out,
		"exit") {
		t.Errorf("profile: %s", out)
	}
	out := p.Run(t, strings.Fields("train "+s2vt+" --data digits"), false)
	if want := "millrace: data: digits has one input and its targets, and the model reads [input float[3 6] " +
		"target int[3] previous int[3]]; give an .npz or .safetensors file with an array for each\nexit 2\n"; out != want {
		t.Errorf("%q; want %q", out, want)
	}
}

// Missing data is reported before anything is measured.
func TestDataIsLookedAtFirst(t *testing.T) {
	t.Parallel()
	p := clitest.Trainer(t)
	for _, args := range []string{
		"tune --model mlp --rivals",
		"train --model mlp",
	} {
		out := p.Run(t, append(strings.Fields(args), "--data", "nosuch"), false)
		if !strings.HasPrefix(out, `millrace: data: there is no file and no data set "nosuch"; `) ||
			!strings.HasSuffix(out, "\nexit 2\n") {
			t.Errorf("%s: %s", args, out)
		}
	}
}

// A plan that cannot be trained is refused before its sizes are measured. The error names its file.
func TestAPlanThatCannotBeTrainedIsNotMeasured(t *testing.T) {
	t.Parallel()
	p := clitest.Trainer(t)
	m, err := model.Load("mlp", nil)
	if err != nil {
		t.Fatal(err)
	}
	divided := &plan.Plan{Version: plan.Version, Model: m.Name, ModelID: m.ID(), Replication: "split", MicroBatch: 2,
		MicroBatches: 3, Schedule: "1f1b", Weights: "sync", Stages: []plan.Stage{
			{LastLayer: len(m.Layers) - 1, LastFraction: 0.5, Devices: []int{0}, Warmup: 2},
			{FirstLayer: len(m.Layers) - 1, FirstFraction: 0.5, LastLayer: len(m.Layers) - 1, Devices: []int{1}, Warmup: 1}}}
	if err := divided.Write(filepath.Join(p.Dir, "divided.json")); err != nil {
		t.Fatal(err)
	}
	out := p.Run(t, strings.Fields("train --model mlp --data digits --steps 1 --plan divided.json --out run"), false)
	if !strings.HasPrefix(out, `millrace: run: model: mlp: layer "loss" cannot be divided between stages: it is of kind `+
		"cross_entropy; layers of 2 features or more can be, of kinds conv2d and dense, and of imported networks one "+
		"linear or one convolution; plan without that, for the "+
		"bapipe planner with --set fractions=features, or off ") ||
		!strings.HasSuffix(out, "(in divided.json)\nexit 2\n") {
		t.Error(out)
	}
}

// A flag that contradicts the given plan is refused. A flag that agrees with the plan is not refused.
func TestSettingsBesideAPlanAgreeWithIt(t *testing.T) {
	t.Parallel()
	p := &clitest.Program{Dir: t.TempDir(), Native: filepath.Join(t.TempDir(), "no-library.so"), Cache: t.TempDir()}
	model := "--model mlp --cluster dapple-b:2"
	p.Run(t, strings.Fields("plan "+model+" --batch 8 --schedule 1f1b --stages 2 --micro-batch 2 -o p.json"), true)
	for args, want := range map[string]string{
		"--batch 8 --schedule 1f1b --stages 2 --micro-batch 2 --micro-batches 4 --weights sync": "",
		"--batch 64":        "batch is 64; the plan in p.json has 8",
		"--schedule afab":   "schedule is afab; the plan in p.json has 1f1b",
		"--stages 1":        "stages is 1; the plan in p.json has 2",
		"--micro-batch 4":   "micro_batch is 4; the plan in p.json has 2",
		"--micro-batches 2": "micro_batches is 2; the plan in p.json has 4",
		"--weights stash":   "weights is stash; the plan in p.json has sync",
		"--pipelines 2":     "pipelines is 2; the plan in p.json has 1",
	} {
		if want != "" {
			want = "millrace: " + want + ": leave one of them out\nexit 2\n"
		}
		if got := p.Run(t, strings.Fields("simulate "+model+" --plan p.json "+args), true); got != want {
			t.Errorf("%s: %q, want %q", args, got, want)
		}
	}
}

// A plan that divides a layer trains, and its report and checkpoint say which stages have parts. The run resumes
// under a plan of whole layers; exported weights are whole.
func TestAPlanOfPartsTrains(t *testing.T) {
	t.Parallel()
	p := clitest.Trainer(t)
	m, err := model.Load("mlp", nil)
	if err != nil {
		t.Fatal(err)
	}
	parts := &plan.Plan{Version: plan.Version, Model: m.Name, ModelID: m.ID(), Replication: "split", MicroBatch: 8,
		MicroBatches: 4, Schedule: "1f1b", Weights: "sync", Planner: "bapipe", Stages: []plan.Stage{
			{LastLayer: 1, LastFraction: 0.25, Devices: []int{0}, Warmup: 2},
			{FirstLayer: 1, FirstFraction: 0.75, LastLayer: len(m.Layers) - 1, Devices: []int{1}, Warmup: 1}}}
	whole := *parts
	whole.Stages = []plan.Stage{{LastLayer: 0, Devices: []int{0}, Warmup: 2},
		{FirstLayer: 1, LastLayer: len(m.Layers) - 1, Devices: []int{1}, Warmup: 1}}
	for name, pl := range map[string]*plan.Plan{"parts.json": parts, "whole.json": &whole} {
		if err := pl.Write(filepath.Join(p.Dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	train := "train --model mlp --data digits "
	said := p.Run(t, strings.Fields(train+"--steps 2 --plan parts.json --out run"), false) +
		p.Run(t, strings.Fields("checkpoint show run"), false) + p.Run(t, strings.Fields("checkpoint verify run"), false)
	for _, want := range []string{"(25 % of 1)  0", "(75 % of 1)  1", "step-00000002  ok: 2 files"} {
		if !strings.Contains(said, want) {
			t.Errorf("nobody says %q:\n%s", want, said)
		}
	}
	page, err := os.ReadFile(filepath.Join(p.Dir, "run", "report.html"))
	if err != nil || !strings.Contains(string(page), "25 % of 1") || !strings.Contains(string(page), "75 % of 1") {
		t.Errorf("the report's page says of no parts: %v", err)
	}
	for _, args := range []string{train + "--resume run --steps 4 --plan whole.json --out on",
		train + "--resume on --steps 6 --plan parts.json --out again"} {
		if out := p.Run(t, strings.Fields(args), false); strings.Contains(out, "\nexit ") {
			t.Error(out)
		}
	}
	p.Run(t, strings.Fields("checkpoint export again -o again.safetensors"), false)
	text, err := os.ReadFile(filepath.Join(p.Dir, "again.safetensors"))
	if err != nil || !strings.Contains(string(text), `"dense1.weight"`) || strings.Contains(string(text), "dense1.weight[") {
		t.Errorf("exported: %v", err)
	}
}
