package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/cmd/internal/clitest"
)

// TestSchedulesAreComparedOnAModel: schedule compare takes a model and a described cluster in place of a profile's
// file. The ranking is the same as with a file of the model's analytic profile for this cluster. The printed text names
// the model and the cluster.
func TestSchedulesAreComparedOnAModel(t *testing.T) {
	file := filepath.Join(t.TempDir(), "gpt.json")
	if out, errs, code := ran(t, "profile", "--model", "gpt", "--analytic", "--cluster", "dgx-a100", "--sizes", "2", "-o",
		file); code != 0 {
		t.Fatalf("%d %s%s", code, out, errs)
	}
	on := strings.Fields("--cluster dgx-a100 --workers 4 --micro-batch 2 --only 1f1b,afab,zb-v,dp")
	compare := func(args ...string) string {
		out, errs, code := ran(t, append(append([]string{"schedule", "compare"}, args...), on...)...)
		if code != 0 {
			t.Fatalf("%v: %d %s%s", args, code, out, errs)
		}
		return out
	}
	ranked, want := compare("--model", "gpt", "--json"), compare("--profile", file, "--json")
	if ranked != want || !strings.Contains(want, `"zb-v"`) {
		t.Errorf("on the model:\n%s\non its profile:\n%s", ranked, want)
	}
	text := strings.Join(strings.Fields(compare("--model", "gpt")), " ")
	if !strings.Contains(text, "gpt in micro-batches of 2, computed for dgx-a100. time: of a step") {
		t.Errorf("it says %s", text)
	}
	for args, says := range map[string]string{
		"--model gpt --profile " + file:           "has a model's costs already; give it or a model, not both",
		"--model gpt --activation-limit 3":        "is of uniform stages; with --model give --memory-limit",
		"--model gpt --micro-batch -1":            "--micro-batch -1; give 1 or more",
		"--profile " + file:                       "go together: the model's costs, and what they are spread over; or",
		"--model mpl --cluster dgx-a100":          `there is no model "mpl"; did you mean mlp?`,
		"--model gpt --set layers=2 --chunks 999": "--chunks 999",
	} {
		out, errs, code := ran(t, append([]string{"schedule", "compare"}, strings.Fields(args)...)...)
		if said := strings.Join(strings.Fields(errs), " "); code != 2 || !strings.Contains(said, says) {
			t.Errorf("%s: want %q\n%s%s", args, says, out, errs)
		}
	}
}

// TestSchedulesAreComparedOnAPlannedModel: schedule compare ranks schedules for a model that cannot be trained here,
// because its costs are computed for a described cluster. Without a cluster it refuses the model.
func TestSchedulesAreComparedOnAPlannedModel(t *testing.T) {
	for model, cluster := range map[string]string{"bert-48": "pipedream-c", "gnmt-16": "dapple-a"} {
		args := strings.Fields("schedule compare --micro-batch 4 --micro-batches 8 --only 1f1b,dp --model " + model)
		out, errs, code := ran(t, append(args, "--cluster", cluster, "--workers", "4")...)
		text := strings.Join(strings.Fields(out), " ")
		if want := model + " in micro-batches of 4, computed for " + cluster + ". time: of a step"; code != 0 ||
			!strings.Contains(text, "1f1b sync ") || !strings.Contains(text, want) {
			t.Errorf("%s on %s: %d, want %q\n%s%s", model, cluster, code, want, out, errs)
		}
		out, errs, code = ran(t, args...)
		if code != 2 || !strings.Contains(strings.Join(strings.Fields(errs), " "), "neither measured nor trained here") {
			t.Errorf("%s without a cluster: %d\n%s%s", model, code, out, errs)
		}
	}
}

// TestSchedulesAreComparedOnThisMachine: the first call measures the model and keeps the measurements. The second call
// measures nothing, and prints the same ranking.
func TestSchedulesAreComparedOnThisMachine(t *testing.T) {
	p := clitest.Trainer(t)
	t.Parallel()
	args := strings.Fields("schedule compare --model mlp --micro-batch 4 --micro-batches 2 --workers 2 " +
		"--only 1f1b,afab,single")
	run := func() (out, errs string) {
		c := p.Command(t, args)
		var stdout, stderr bytes.Buffer
		c.Stdout, c.Stderr = &stdout, &stderr
		if err := c.Run(); err != nil {
			t.Fatalf("%v %s%s", err, &stdout, &stderr)
		}
		return stdout.String(), stderr.String()
	}
	first, said := run()
	again, silent := run()
	if !strings.Contains(said, "measuring mlp, 2 workers at once") || strings.Contains(silent, "measuring") {
		t.Errorf("first it says %q, then %q", said, silent)
	}
	text := strings.Join(strings.Fields(first), " ")
	if first != again || !strings.Contains(text, "mlp in micro-batches of 4, as profiled on this machine") {
		t.Errorf("first it prints\n%s\nthen\n%s", first, again)
	}
	for _, name := range []string{"1f1b", "afab", "single"} {
		if !strings.Contains(text, name+" sync ") {
			t.Errorf("there is no %s:\n%s", name, first)
		}
	}
}
