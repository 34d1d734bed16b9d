package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/cmd/internal/clitest"
	"github.com/millrace-ml/millrace/cmd/internal/prepare"
	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/lab/race"
	"github.com/millrace-ml/millrace/plan"
)

// Imported modules on two stages have the same losses, step by step, as the rival that trains the same module. With
// another learning rate the losses differ.
func TestImportedModulesTrainAsTheirRivalsDo(t *testing.T) {
	p := clitest.Trainer(t)
	python, _, err := race.Python(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	text := filepath.Join(p.Dir, "text.txt")
	if err := os.WriteFile(text, []byte(strings.Repeat("two stages and one text, ", 40)), 0o644); err != nil {
		t.Fatal(err)
	}
	rows := filepath.Join(p.Dir, "rows")
	gpt := race.Workload{Layers: 2, Width: 16, Heads: 2, Context: 8, Vocabulary: 256, Batch: 4, Optimizer: "sgd",
		LearningRate: 0.1, Data: text, Seed: 7}
	// A batch norm over two values tells little more than which of them is larger. So the last maps have four pixels
	// each, and the learning rate is small. Then rounding differences between kernels stay small for a few steps.
	resnet := race.ResNet{Classes: 10, Size: 64, Batch: 4, LearningRate: 0.001, Seed: 7}
	for _, one := range []struct {
		race.Module
		data string
	}{{gpt.Module(rows), text}, {resnet.Module(rows), ""}} {
		t.Run(one.Name, func(t *testing.T) {
			dir := t.TempDir()
			if err := race.WriteScripts(dir); err != nil {
				t.Fatal(err)
			}
			j := job.Default()
			j.Model.Name, j.Data.Source, j.Plan.Batch, j.Machine.Workers = filepath.Join(dir, "net.mr"), one.data, 4, 2
			j.Train.Optimizer.Kind = "sgd"
			if err := one.Export(t.Context(), python, "../../python/millrace_export.py", dir, j.Model.Name); err != nil {
				t.Fatal(err)
			}
			if err := j.Complete(); err != nil {
				t.Fatal(err)
			}
			m, err := prepare.LoadModel(&j)
			if err != nil {
				t.Fatal(err)
			}
			middle := len(m.Layers) / 2
			cut := &plan.Plan{Version: plan.Version, Model: m.Name, ModelID: m.ID(), Cluster: "local",
				Replication: "round_robin", MicroBatch: 2, MicroBatches: 2, Schedule: "1f1b", Weights: "sync", Planner: "given",
				Stages: []plan.Stage{{LastLayer: middle, Devices: []int{0}, Warmup: 2},
					{FirstLayer: middle + 1, LastLayer: len(m.Layers) - 1, Devices: []int{1}, Warmup: 1}}}
			if err := (&importedModule{job: &j, rows: rows}).record(m); err != nil {
				t.Fatal(err)
			}
			x := &experiment{job: &j, dir: dir, steps: 1, rate: one.LearningRate}
			rival := one.Rival(python, dir, cut.MicroBatch, 1)
			agree := func() (race.Agreement, error) {
				ours, err := x.command("ours", cut, 1)
				if err != nil {
					t.Fatal(err)
				}
				ours.Env = p.Command(t, nil).Env
				return race.Agree(t.Context(), ours, rival, agreeingSteps, lossesWithin)
			}
			a, err := agree()
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%v and %v lie within %.2g", a.LossA, a.LossB, a.Within)
			if x.rate *= 2; one.Name == "resnet18" {
				return // the other rate is tried with gpt alone
			}
			if a, err = agree(); err == nil || !strings.Contains(err.Error(), "has the loss") {
				t.Errorf("with twice the rate %v and %v agree: %v", a.LossA, a.LossB, err)
			}
		})
	}
}

func TestBenchImportedRefuses(t *testing.T) {
	p := &clitest.Program{Dir: t.TempDir(), Native: filepath.Join(t.TempDir(), "no-library.so"), Cache: t.TempDir()}
	for args, want := range map[string]string{
		"":                             "no text is named; give --data FILE.txt, or --only resnet18",
		"--only vgg":                   "--only vgg: the modules are gpt and resnet18",
		"--only resnet18 --pairs 3":    "--pairs 3; give 6 at least",
		"--only resnet18":              "millrace_export.py; run it in millrace's repository",
		"--only resnet18 --exporter x": "there is no x",
	} {
		out := p.Run(t, append([]string{"bench", "imported"}, strings.Fields(args)...), false)
		if !strings.Contains(out, want) || !strings.HasSuffix(out, "\nexit 2\n") {
			t.Errorf("%s: %s", args, out)
		}
	}
}

// A batch norm uses the rows of a micro-batch. If replicas can split the micro-batch equally, it uses the rows of one
// replica's slice.
func TestRowsTogether(t *testing.T) {
	for _, c := range []struct {
		replication   string
		micro, device int
		want          int
	}{{"split", 8, 2, 4}, {"split", 8, 1, 8}, {"round_robin", 8, 2, 8}, {"split", 9, 2, 9}} {
		pl := &plan.Plan{Replication: c.replication, MicroBatch: c.micro,
			Stages: []plan.Stage{{Devices: make([]int, c.device)}}}
		if got := rowsTogether(pl); got != c.want {
			t.Errorf("%+v: %d rows", c, got)
		}
	}
}
