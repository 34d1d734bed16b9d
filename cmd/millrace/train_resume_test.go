package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/millrace-ml/millrace/cmd/internal/clitest"
	"github.com/millrace-ml/millrace/cmd/internal/prepare"
	"github.com/millrace-ml/millrace/cmd/millrace/internal/training"
	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/report"
	"github.com/millrace-ml/millrace/run/checkpoint"
)

// learn trains and returns the JSON output.
func learn(t *testing.T, p *clitest.Program, args string) training.Outcome {
	t.Helper()
	c := p.Command(t, strings.Fields("train --json --model mlp --data digits --profile mlp.json --eval-rows 8 "+args))
	var stderr bytes.Buffer
	c.Stderr = &stderr
	text, err := c.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", args, err, stderr.String())
	}
	var o training.Outcome
	if err := json.Unmarshal(text, &o); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return o
}

// measured is the profile of the mlp. The first test that needs it measures it for all tests.
var measured struct {
	sync.Mutex
	text []byte
}

// profiled returns the program with a profile of the mlp.
func profiled(t *testing.T) *clitest.Program {
	t.Helper()
	p := clitest.Trainer(t)
	file := filepath.Join(p.Dir, "mlp.json")
	measured.Lock()
	defer measured.Unlock()
	if measured.text == nil {
		line := "profile --model mlp --sizes 4 --batch 4 --passes 1 -o mlp.json"
		if out := p.Run(t, strings.Fields(line), true); out != "" {
			t.Fatal(out)
		}
		var err error
		if measured.text, err = os.ReadFile(file); err != nil {
			t.Fatal(err)
		}
	}
	write(t, file, string(measured.text))
	return p
}

// sameTensors compares two checkpoints bit by bit.
func sameTensors(t *testing.T, p *clitest.Program, a, b string) {
	t.Helper()
	if names := changed(t, p, a, b); names != nil {
		t.Errorf("%s and %s differ in %v", a, b, names)
	}
}

// changed returns which tensors differ between two checkpoints. Both must have the same tensors.
func changed(t *testing.T, p *clitest.Program, a, b string) (names []string) {
	t.Helper()
	var of [2]*checkpoint.Checkpoint
	for i, path := range []string{a, b} {
		c, err := checkpoint.Open(filepath.Join(p.Dir, path))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		of[i] = c
	}
	if n, m := len(of[0].Names()), len(of[1].Names()); n != m {
		t.Fatalf("%s has %d tensors, %s %d", a, n, b, m)
	}
	for i, name := range of[0].Names() {
		x, err := of[0].Tensor(name)
		y, errY := of[1].Tensor(name)
		if err != nil || errY != nil || of[1].Names()[i] != name {
			t.Fatalf("%s: of %s %v, of %s %v", name, a, err, b, errY)
		}
		if !bytes.Equal(x.Data, y.Data) {
			names = append(names, name)
		}
	}
	return names
}

// saysItsNumbers checks that a run's JSON output has the numbers of its report and of its last evaluation.
func saysItsNumbers(t *testing.T, p *clitest.Program, o training.Outcome, dir string) {
	t.Helper()
	last := o.Evaluations[len(o.Evaluations)-1]
	if o.Held == nil || *o.Held != last.Loss || o.Accuracy == nil ||
		*o.Accuracy != float64(last.Correct)/float64(last.Samples) || o.Over == "" {
		t.Errorf("after %+v it says %+v", last, o)
	}
	text, err := p.Command(t, []string{"report", "--json", dir}).Output()
	var rows []report.Comparison
	if err == nil {
		err = json.Unmarshal(text, &rows)
	}
	if err != nil || len(rows) < 5 || !reflect.DeepEqual(rows, o.Numbers) {
		t.Errorf("the report says %+v, train %+v (%v)", rows, o.Numbers, err)
	}
}

// A resumed run takes every setting of the training from its checkpoint, to the last bit, except those that a flag
// changes.
func TestResumeTakesItsSettingsFromTheCheckpoint(t *testing.T) {
	t.Parallel()
	p := profiled(t)
	learn(t, p, "--optimizer sgd --lr 0.5 --momentum 0.9 --weight-decay 0.1 --clip 0.1 --seed 3 --batch 12 "+
		"--lr-schedule cosine --lr-warmup 2 --split 1 --micro-batches 3 --steps 6 --save-every 3 --out whole")
	rest := learn(t, p, "--split 2 --out rest --resume whole/checkpoints/step-00000003")
	saysItsNumbers(t, p, rest, "rest")
	if rest.Steps != 6 || len(rest.Changed) != 0 || !slices.Contains(rest.Taken, "optimizer.momentum 0.9") {
		t.Errorf("%+v", rest)
	}
	sameTensors(t, p, "whole/checkpoints", "rest/checkpoints")

	other := learn(t, p, "--split 1 --out other --resume whole/checkpoints/step-00000003 --optimizer sgd "+
		"--momentum 0.1 --clip 0")
	if got := strings.Join(other.Changed, ", "); got != "optimizer.momentum 0.1 (was 0.9), clip 0 (was 0.1)" {
		t.Errorf("changed: %s", got)
	}
	c, err := checkpoint.Open(filepath.Join(p.Dir, "other/checkpoints"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if m := c.Manifest; m.Optimizer.Momentum != 0.1 || m.Optimizer.WeightDecay != 0.1 || m.Clip != 0 ||
		m.Rate.Base != 0.5 ||
		m.Rate.Kind != "cosine" || m.Rate.Total != 6 || m.Batch != 12 || m.Seed != 3 {
		t.Errorf("%+v", *m)
	}
}

// A run resumes with its own job, in its own folder, if no other job is named. The result is the same as with that
// job given in full.
func TestARunGoesOnWithItsOwnJob(t *testing.T) {
	t.Parallel()
	p := profiled(t)
	for _, name := range []string{"a", "b", "c"} {
		learn(t, p, "--batch 4 --steps 4 --seed 3 --overwrite --out "+name)
	}
	p.Run(t, strings.Fields("train --job a/job.yaml --model mlp --data digits --resume a --steps 6 --seed 3"), true)
	p.Run(t, strings.Fields("train --resume b --steps 6"), true)
	p.Run(t, strings.Fields("train --resume c/checkpoints/step-00000004 --steps 6"), true)
	for _, name := range []string{"b", "c"} {
		sameTensors(t, p, "a/checkpoints/step-00000006", name+"/checkpoints/step-00000006")
	}
	for at, want := range map[string]string{
		"mlp.json":           "--resume mlp.json: there is no mlp.json/job.yaml",
		"aa":                 "--resume aa: there is no such run",
		"b --batch 6":        "step-00000006: its batch is 4, and its place in the data",
		"b --seed 9":         "its seed is 3, and the order",
		"b --optimizer lars": "its optimizer is adamw, and it holds"} {
		if out := p.Run(t, strings.Fields("train --steps 6 --resume "+at), false); !strings.Contains(out, want) {
			t.Errorf("%s: %s", at, out)
		}
	}
}

// Here a run with a rate schedule is resumed with more steps than it had. The schedule then ends at the new last step.
// The weights are the same whether the flags are given again or not.
func TestAddedStepsFollowTheRateSchedule(t *testing.T) {
	t.Parallel()
	p := profiled(t)
	const flags = "--lr-schedule cosine --batch 4 --seed 3 "
	for _, name := range []string{"a", "b"} {
		learn(t, p, flags+"--steps 4 --out "+name)
	}
	p.Run(t, strings.Fields("train --resume a --steps 8"), true)
	learn(t, p, flags+"--steps 8 --resume b/checkpoints/step-00000004 --out c")
	sameTensors(t, p, "a/checkpoints/step-00000008", "c/checkpoints/step-00000008")
	if err := os.RemoveAll(filepath.Join(p.Dir, "c/checkpoints")); err != nil { // as if it was killed before it saved one
		t.Fatal(err)
	}
	if out := p.Run(t, strings.Fields("train --resume c"), false); strings.Contains(out, "exit") {
		t.Error(out)
	}
	c, err := checkpoint.Open(filepath.Join(p.Dir, "a/checkpoints"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if total := c.Manifest.Rate.Total; total != 8 {
		t.Errorf("the schedule ends at step %d, not at 8", total)
	}
}

// A run whose folder has a job in the old flat form can be resumed, and then has a nested job file. The fixture was
// written by millrace before jobs had groups, for the settings of this test.
func TestARunWithAFlatJobFileGoesOn(t *testing.T) {
	t.Parallel()
	flat, err := os.ReadFile("testdata/flat-job.yaml")
	if err != nil {
		t.Fatal(err)
	}
	p := profiled(t)
	for _, name := range []string{"today", "d"} {
		learn(t, p, "--batch 8 --steps 4 --seed 3 --optimizer sgd --lr 0.05 --momentum 0.9 --lr-schedule cosine "+
			"--lr-warmup 1 --micro-batches 2 --stages 2 --save-every 2 --out "+name)
	}
	file := filepath.Join(p.Dir, "d", "job.yaml")
	own, old := job.Default(), job.Default()
	if err := own.Read(file); err != nil {
		t.Fatal(err)
	}
	write(t, file, string(flat))
	if err := old.Read(file); err != nil {
		t.Fatal(err)
	}
	if a, b := fmt.Sprint(own.Keys()), fmt.Sprint(old.Keys()); a != b {
		t.Errorf("the fixture says %s, the run's own file %s", b, a)
	}
	p.Run(t, strings.Fields("train --resume today --steps 6"), true)
	p.Run(t, strings.Fields("train --resume d --steps 6"), true)
	sameTensors(t, p, "today/checkpoints/step-00000006", "d/checkpoints/step-00000006")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var groups struct {
		Train struct{ Steps int }
		Save  struct{ Every int }
	}
	if err := json.Unmarshal(text, &groups); err != nil || groups.Train.Steps != 6 || groups.Save.Every != 2 {
		t.Errorf("%v: %s", err, text)
	}
}

// Flags override the plan settings that a run fixed: the job is from the run's folder, and the plan is made again.
func TestARunGoesOnUnderAnotherPlan(t *testing.T) {
	t.Parallel()
	p := profiled(t)
	train := func(args string) string {
		t.Helper()
		text, err := p.Command(t, strings.Fields("train --eval-rows 8 "+args)).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", args, err, text)
		}
		return string(text)
	}
	begin := "--model mlp --data digits --profile mlp.json --batch 4 --steps 2 --micro-batches 1 "
	train(begin + "--stages 2 --split dense1 --schedule 1f1b --out cut")
	file, err := os.ReadFile(filepath.Join(p.Dir, "cut", "plan.json"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(p.Dir, "first.json"), string(file))
	if said := train("--resume cut --steps 3 --workers 1"); !strings.Contains(said, "changed: the plan, one worker, ") {
		t.Errorf("another plan trains, of which it says nothing: %s", said)
	}
	said := train("--resume cut --steps 4 --plan first.json --workers 2 --out first")
	if !strings.Contains(strings.Join(strings.Fields(said), " "), "(was one worker, ") {
		t.Errorf("the first plan trains again, of which it says nothing: %s", said)
	}
	train("--resume cut --steps 4 --workers 2 --stages 2")
	train("--resume cut --steps 5 --schedule afab --split head")
	// A Program is a schedule of its own. The run's job names the Program's file, and also has its name as the
	// schedule.
	text, err := p.Command(t, strings.Fields("schedule afab --workers 2 --micro-batches 1 --text")).Output()
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(p.Dir, "own.txt"), string(text))
	train(begin + "--program own.txt --out own")
	train("--resume own --steps 3")
	train("--job own/job.yaml --out again")
	train("--resume own --steps 4 --workers 1")
	// A run can also be resumed in several processes, with another number of workers and so another plan.
	if text, err := p.Command(t, strings.Fields("launch -n 2 -- train --eval-rows 8 --resume own --steps 5")).
		CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
}

// A run cannot resume in a folder that an older millrace began, and nothing there is moved. In another folder it can
// resume.
func TestAFolderOfAnOlderMillraceStaysAsItIs(t *testing.T) {
	t.Parallel()
	p := profiled(t)
	learn(t, p, "--batch 4 --steps 4 --save-every 2 --out old")
	begun := filepath.Join(p.Dir, "old", "run.json")
	if err := os.WriteFile(begun, []byte(`{"version": 1, "first_step": 0}`), 0o644); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadDir(filepath.Join(p.Dir, "old"))
	if err != nil {
		t.Fatal(err)
	}
	for _, from := range []string{"old", "old/checkpoints/step-00000002"} {
		out := p.Run(t, strings.Fields("train --steps 6 --resume "+from), false)
		if want := "give another --out"; !strings.Contains(out, want) || !strings.Contains(out, "reads version 2") {
			t.Errorf("%s: %s; want something about %q", from, out, want)
		}
	}
	after, err := os.ReadDir(filepath.Join(p.Dir, "old"))
	if err != nil || len(after) != len(before) {
		t.Errorf("%v, %v; want %v", after, err, before)
	}
	p.Run(t, strings.Fields("train --steps 6 --resume old --out new"), true)
}

// The size of micro-batches affects bits, so a resumed run reports a change of it, whichever setting caused it.
func TestResumeSaysThatMicroBatchesChange(t *testing.T) {
	t.Parallel()
	p := clitest.Trainer(t)
	p.Run(t, strings.Fields("profile --model mlp --sizes 2,4,8 --batch 8 --passes 1 -o mlp.json"), true)
	learn(t, p, "--batch 8 --split 1 --micro-batches 2 --steps 1 --out run")
	for flags, want := range map[string]string{
		"--out a --micro-batches 4": "micro_batch 2 (was 4)",
		"--out b --micro-batch 8":   "micro_batch 8 (was 4)",
		"--out c":                   "",
	} {
		got := learn(t, p, "--split 1 --steps 1 --resume run/checkpoints "+flags)
		if strings.Join(got.Changed, ", ") != want {
			t.Errorf("%s: changed %q; want %q", flags, got.Changed, want)
		}
	}
}

// A setting of 0 is not replaced by a default: with rate 0 the weights do not change.
func TestARateOfZeroIsZero(t *testing.T) {
	t.Parallel()
	p := profiled(t)
	learn(t, p, "--optimizer sgd --lr 0 --batch 8 --split 1 --micro-batches 2 --steps 2 --save-every 1 --out frozen")
	sameTensors(t, p, "frozen/checkpoints/step-00000001", "frozen/checkpoints/step-00000002")
}

// CommandFrom returns the original command with --resume set to another checkpoint, and quoted for a shell. It leaves
// out --overwrite.
func TestCommandFrom(t *testing.T) {
	for given, want := range map[string]string{
		"train|--resume|a|--out|b":                    "train --resume c/d --out b",
		"train|--resume=a|--out|b":                    "train --resume=c/d --out b",
		"train|job.yaml":                              "train job.yaml --resume c/d",
		"train|--overwrite|job.yaml|--overwrite=true": "train job.yaml --resume c/d",
		"train|--out|it's [0.1]|-x":                   `train --out 'it'\''s [0.1]' -x --resume c/d`,
	} {
		if got := training.CommandFrom(strings.Split(given, "|"), "c/d"); got != want {
			t.Errorf("%s: %s; want %s", given, got, want)
		}
	}
}

// For a given plan, exactly the sizes that it computes are measured, including its replicas' slices. Measuring other
// sizes may take a long time.
func TestAGivenPlanHasItsSlicesMeasured(t *testing.T) {
	three := plan.Plan{Stages: []plan.Stage{{Devices: []int{0, 1}}}, Replication: "split", MicroBatch: 3, MicroBatches: 2}
	four := three
	four.MicroBatch = 4
	for _, c := range []struct {
		plan *plan.Plan
		want []int
	}{{nil, []int{1, 2, 4, 8}}, {&three, []int{1, 2}}, {&four, []int{2}}} {
		p := &prepare.Prepared{Job: &job.Job{Plan: job.Plan{Batch: 8}}, Plan: c.plan}
		if got := p.Sizes(); !slices.Equal(got, c.want) {
			t.Errorf("%+v: %v, want %v", c.plan, got, c.want)
		}
	}
}

// A run with --keep 0 keeps all its checkpoints, also after it is resumed. If a setting of the checkpoint is 0 and a
// new run would have another default, the 0 is reported as taken from the checkpoint.
func TestResumeKeepsAsManyCheckpoints(t *testing.T) {
	t.Parallel()
	p := profiled(t)
	learn(t, p, "--batch 8 --split 1 --micro-batches 2 --lr 0 --weight-decay 0 --steps 4 --save-every 1 --keep 0 --out "+
		"run")
	rest := learn(t, p, "--steps 6 --out run --resume run/checkpoints")
	for _, want := range []string{"keep 0", "rate.base 0", "optimizer.weight_decay 0"} {
		if !slices.Contains(rest.Taken, want) {
			t.Errorf("%s is not among %q", want, rest.Taken)
		}
	}
	if n := strings.Count(p.List(t, "run/checkpoints"), "manifest.json"); n != 6 {
		t.Errorf("%d checkpoints are left of 6", n)
	}
	learn(t, p, "--steps 7 --keep 2 --out run --resume run/checkpoints")
	if n := strings.Count(p.List(t, "run/checkpoints"), "manifest.json"); n != 2 {
		t.Errorf("%d checkpoints are left; 2 are to be kept", n)
	}
}
