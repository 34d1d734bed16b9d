package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/cmd/internal/clitest"
	"github.com/millrace-ml/millrace/plan"
)

// planOf returns the plan that `plan` with these flags writes. Paths are those seen from this package.
func planOf(t *testing.T, flags string) *plan.Plan {
	t.Helper()
	p := &clitest.Program{Dir: ".", Cache: t.TempDir()}
	out := filepath.Join(t.TempDir(), "plan.json")
	if code, said := started(t, p, "plan -o "+out+" "+flags); code != 0 {
		t.Fatalf("plan %s: exit %d: %s", flags, code, said)
	}
	pl, err := plan.Read(out)
	if err != nil {
		t.Fatal(err)
	}
	return pl
}

// A plan is no faster if the schedule, or the number of stages too, is fixed to those of a good plan. The search must
// find that plan's three stages from plans with others, and under an order with split backwards.
func TestFixedSettingsGiveNoFasterPlan(t *testing.T) {
	t.Parallel()
	var steps []float64
	for _, fixed := range []string{"", "--schedule zb-h1", "--schedule zb-h1 --stages 3"} {
		steps = append(steps, planOf(t, "--model gnmt --cluster dgx-h100 --batch 256 --micro-batches 4 "+fixed).
			Predicted.StepS)
	}
	for _, fixed := range steps[1:] {
		if fixed < steps[0]*(1-0.005) {
			t.Errorf("steps take %.4g s with nothing, a schedule, and its stages fixed", steps)
		}
	}
}

// With 2 % more memory, a plan is not several times slower. The larger limit lies between the memory that estimates
// count and what simulations count: plans that recompute fit it by estimate only.
func TestMoreMemoryGivesNoSlowerPlan(t *testing.T) {
	t.Parallel()
	step := func(limit string) float64 {
		return planOf(t, "--model gpt --batch 64 --cluster ../../examples/two-nodes.yaml --memory-limit "+limit).
			Predicted.StepS
	}
	if less, more := step("16986931B"), step("17326669B"); more > less {
		t.Errorf("with 2 %% more memory a step takes %.3g s, not %.3g", more, less)
	}
}

// Families whose depths are not searched choose replicas, recompute and small batches too. Each limit is a little above
// what a search found when this test was written.
func TestFamiliesWithoutSearchedDepths(t *testing.T) {
	t.Parallel()
	for flags, most := range map[string]float64{
		"--weights 2bw": 7.1e-3, "--weights 2bw --split 5,10": 12.9e-3, "--schedule 1f1b-rr --stages 3": 8.5e-3,
		"--schedule zb-h2 --memory-limit 30MiB": 41e-3,
	} {
		got := planOf(t, "--model gpt --batch 64 --cluster ../../examples/two-nodes.yaml "+flags).Predicted.StepS
		if got > most {
			t.Errorf("%s: a step takes %.4g s, want at most %g", flags, got, most)
		}
	}
}

// A plan file repeats the prediction that was printed when it was made, though optimizer and clipping are not the
// model's. What a flag names wins: with adamw, which gpt takes by itself, a worker holds more.
func TestAPlanIsSimulatedWithItsUpdates(t *testing.T) {
	t.Parallel()
	p := &clitest.Program{Dir: t.TempDir(), Cache: t.TempDir()}
	simulated := func(flags string) (q plan.Predicted) {
		code, said := started(t, p, "simulate --json --plan plan.json "+flags)
		at := strings.Index(said, "{")
		if code != 0 || at < 0 {
			t.Fatalf("simulate %s: exit %d: %s", flags, code, said)
		}
		if err := json.NewDecoder(strings.NewReader(said[at:])).Decode(&q); err != nil {
			t.Fatal(err)
		}
		return q
	}
	for _, flags := range []string{"--optimizer sgd", "--clip 1", "--optimizer sgd --momentum 0.9 --clip 2", ""} {
		if code, said := started(t, p, "plan --model gpt --cluster dapple-a:1x4 --batch 64 --stages 2 -o plan.json "+
			flags); code != 0 {
			t.Fatalf("plan %s: exit %d: %s", flags, code, said)
		}
		pl, err := plan.Read(filepath.Join(p.Dir, "plan.json"))
		if err != nil {
			t.Fatal(err)
		}
		got := simulated("")
		if got.StepS != pl.Predicted.StepS || !slices.Equal(got.MemoryBytes, pl.Predicted.MemoryBytes) {
			t.Errorf("%s: the plan takes %v s in %v bytes, simulated %v s in %v", flags, pl.Predicted.StepS,
				pl.Predicted.MemoryBytes, got.StepS, got.MemoryBytes)
		}
		if same := simulated("--weight-decay 0"); flags == "--optimizer sgd" && same.StepS != got.StepS {
			t.Errorf("without weight decay, which sgd has not, a step takes %v s, not %v", same.StepS, got.StepS)
		}
		if usual := simulated("--optimizer adamw"); flags == "--optimizer sgd" && usual.MemoryBytes[0] <= got.MemoryBytes[0] {
			t.Errorf("adamw holds %d bytes, sgd %d", usual.MemoryBytes[0], got.MemoryBytes[0])
		}
	}
}

// Updates that no job can have are refused with the plan file that names them.
func TestAPlanWithImpossibleUpdates(t *testing.T) {
	t.Parallel()
	p := &clitest.Program{Dir: t.TempDir(), Native: "none", Cache: t.TempDir()}
	if code, said := started(t, p, "plan --model gpt --cluster dapple-a:1x4 --batch 64 --stages 2 -o plan.json "+
		"--optimizer sgd --clip 2"); code != 0 {
		t.Fatalf("plan: exit %d: %s", code, said)
	}
	text, err := os.ReadFile(filepath.Join(p.Dir, "plan.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ was, becomes, want string }{
		{`"optimizer": "sgd"`, `"optimizer": "lion"`, "asked.updates: optimizer: "},
		{`"clip": 2`, `"clip": -2`, "asked.updates: clip is -2"},
	} {
		changed := strings.Replace(string(text), c.was, c.becomes, 1)
		if changed == string(text) {
			t.Fatalf("the plan has no %s", c.was)
		}
		if err := os.WriteFile(filepath.Join(p.Dir, "changed.json"), []byte(changed), 0o644); err != nil {
			t.Fatal(err)
		}
		code, said := started(t, p, "simulate --plan changed.json")
		if code != 2 || !strings.Contains(said, "plan changed.json: "+c.want) {
			t.Errorf("%s: exit %d: %s", c.becomes, code, said)
		}
	}
}

// tune refuses a schedule that it would not choose.
func TestTuneRefusesASchedule(t *testing.T) {
	t.Parallel()
	p := &clitest.Program{Dir: t.TempDir(), Native: "none", Cache: t.TempDir()}
	code, said := started(t, p, "tune --model gpt --cluster bapipe-4xv100 --batch 32 --schedule zb-h1")
	if code != 2 || !strings.Contains(said, "--schedule zb-h1: tune chooses degrees of elastic pipelines") {
		t.Errorf("exit %d: %s", code, said)
	}
}

// A plan is enough: without --model and --out, train takes the plan's model and the folder of its name.
func TestAPlanNamesModelAndFolder(t *testing.T) {
	p := clitest.Trainer(t)
	for _, args := range []string{"plan --model mlp --batch 32 --stages 2 --split dense1 --schedule 1f1b " +
		"--micro-batches 4 -o plan.json", "train --plan plan.json --data digits --steps 3"} {
		if code, said := started(t, p, args); code != 0 {
			t.Fatalf("%s: exit %d: %s", args, code, said)
		}
	}
	if _, err := os.Stat(filepath.Join(p.Dir, "runs/mlp/report.html")); err != nil {
		t.Error(err)
	}
}

// Replicas that take micro-batches in turn end steps at unequal distances. With computed costs no worker is slow.
func TestUnequalStepsAreExplained(t *testing.T) {
	t.Parallel()
	p := &clitest.Program{Dir: t.TempDir(), Native: "none", Cache: t.TempDir()}
	code, said := started(t, p, "simulate --model gpt --cluster dgx-a100:1x3 --batch 56 --micro-batches 7 "+
		"--schedule dp-async")
	said = strings.Join(strings.Fields(said), " ")
	if code != 0 || !strings.Contains(said, "(of unequal steps)") || strings.Contains(said, "slow") {
		t.Errorf("exit %d: %s", code, said)
	}
}

// The schedule of one worker is that of data parallelism on one worker, and refused for more.
func TestTheScheduleOfOneWorker(t *testing.T) {
	t.Parallel()
	p := &clitest.Program{Dir: t.TempDir(), Native: "none", Cache: t.TempDir()}
	for args, want := range map[string]string{
		"--workers 1": "gpt: schedule dp on 1 worker",
		"--workers 2": "--schedule: single; it is for one worker, and there are 2: give one worker, or the schedule dp",
	} {
		_, said := started(t, p, "plan --model gpt --cluster dgx-a100:1x2 --batch 8 --schedule single "+args)
		if !strings.Contains(said, want) {
			t.Errorf("%s: %s", args, said)
		}
	}
}

// Sizes of micro-batches suit the workers: each of four gets one of 12. A single stage may use any number of workers.
func TestEachWorkerGetsAsManyMicroBatches(t *testing.T) {
	t.Parallel()
	p := &clitest.Program{Dir: t.TempDir(), Native: "none", Cache: t.TempDir()}
	for args, want := range map[string]string{
		"1x4 --batch 48":                                 "dp on 4 workers, 48 samples a step as 4 micro-batches of 12",
		"1x8 --batch 96 --stages 1":                      "dp on 8 workers, 96 samples a step as 8 micro-batches of 12",
		"1x8 --batch 96 --stages 1 --micro-batches 6":    "dp on 6 of 8 workers",
		"1x8 --batch 96 --schedule dp --micro-batches 6": "dp on 6 of 8 workers",
		"1x2 --batch 8 --stages 1 --micro-batches 1":     "dp on 2 workers, 8 samples a step as 1 micro-batch of 8",
	} {
		if _, said := started(t, p, "plan --model gpt --cluster dgx-a100:"+args); !strings.Contains(said, want) {
			t.Errorf("%s: %s; want it to say %q", args, said, want)
		}
	}
}
