package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/cmd/internal/clitest"
)

// small is the command line of a training of two workers. Its output folder is appended.
const small = "train --model mlp --data digits --profile mlp.json --batch 8 --micro-batch 4 --stages 2 --steps 6 " +
	"--eval-rows 8 --out "

// Two processes save the same tensors as one process with two workers, and only rank 0 prints the result.
func TestProcessesTrainAsThreadsDo(t *testing.T) {
	t.Parallel()
	p := profiled(t)
	for _, line := range []string{small + "one --workers 2", "launch -n 2 -- " + small + "two"} {
		code, said := started(t, p, line)
		if code != 0 || strings.Count(said, "\ncheckpoint ") != 1 || strings.Contains(said, "[1] ") {
			t.Errorf("%s: code %d\n%s", line, code, said)
		}
	}
	sameTensors(t, p, "one/checkpoints", "two/checkpoints")
}

// Each command `apart` trains in several processes. It saves the same tensors as the command `alone`, which trains in
// one process.
func TestProcessesTrainHowever(t *testing.T) {
	t.Parallel()
	p, four := profiled(t), strings.Replace(small, "stages 2", "stages 4", 1)
	for n, c := range []struct{ alone, apart string }{
		{small + "a0 --workers 2", "launch -n 2 -- " + small + "b0"},
		{small + "a0 --workers 2 --resume a0/checkpoints --steps 9 --eval-every 2 --save-every 2",
			"launch -n 2 -- " + small + "b0 --resume b0/checkpoints --steps 9 --eval-every 2 --save-every 2"},
		{small + "a2 --workers 2 --pipelines 2", "launch -n 2 -- " + small + "b2 --pipelines 2"},
		{small + "a3 --workers 2 --schedule 1f1b --advance auto", // the run itself chooses its advance forwards
			"launch -n 2 -- " + small + "b3 --schedule 1f1b --advance auto --metrics localhost:0"},
		{four + "a4 --workers 4", "launch -n 3 -- " + four + "b4 --workers-per-process 2 --plan a4/plan.json"},
	} {
		for _, line := range []string{c.alone, c.apart} {
			if code, said := started(t, p, line); code != 0 {
				t.Fatalf("%s: code %d\n%s", line, code, said)
			}
		}
		n := []int{0, 0, 2, 3, 4}[n]
		sameTensors(t, p, fmt.Sprintf("a%d/checkpoints", n), fmt.Sprintf("b%d/checkpoints", n))
	}
}

// A dry run of two processes ends with success before the first step, and leaves no file. In a run with --json, only
// rank 0 prints the result.
func TestProcessesAnswerAsOneDoes(t *testing.T) {
	t.Parallel()
	p := profiled(t)
	code, said := started(t, p, "launch -n 2 -- "+small+"dry --dry-run")
	if code != 0 || !strings.Contains(said, "predicted ") || p.List(t, "dry") != "" {
		t.Errorf("code %d\n%s", code, said)
	}
	c := p.Command(t, strings.Fields("launch -n 2 -- "+small+"json --json"))
	text, err := c.Output()
	var outcome struct{ Steps int }
	if err = errors.Join(err, json.Unmarshal(text, &outcome)); err != nil || outcome.Steps != 6 {
		t.Errorf("%v\n%s", err, text)
	}
}

// Rank 0 reports its error in full, and the other process refers to it. The exit code says whether to try again.
func TestEveryProcessSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	p := &clitest.Program{Dir: t.TempDir(), Native: filepath.Join(t.TempDir(), "no-library.so"), Cache: t.TempDir()}
	if err := os.WriteFile(filepath.Join(p.Dir, "job.yaml"), []byte("model: mlp\ndata: digits\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]string{
		"train --model mlp --data digits --workers 3": "--workers is 3, and there are 2 workers (processes 2, " +
			"workers of each 1)",
		"train --model mlp --data none": `data: there is no file and no data set "none"`,
		"train none.yaml":               "none.yaml",
		"train job.yaml":                "engine torch: ",
	} {
		code, out := started(t, p, "launch -n 2 -- "+line)
		if code != 2 {
			t.Errorf("%s: code %d\n%s", line, code, out)
		}
		for rank, want := range map[string]string{"[0] millrace: ": want,
			"[1] millrace: rank 0 on host ": "has refused its input, as its own line says"} {
			at := strings.Index(out, rank)
			if at < 0 {
				t.Errorf("%s: no line begins with %q\n%s", line, rank, out)
			} else if said, _, _ := strings.Cut(out[at:], "\n"); !strings.Contains(said, want) {
				t.Errorf("%s: %q; want %q", line, said, want)
			}
		}
	}
}
