package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/cmd/internal/clitest"
)

// small is a training of two workers; its folder is to follow.
const small = "train --model mlp --data digits --profile mlp.json --batch 8 --micro-batch 4 --stages 2 --steps 6 " +
	"--eval-rows 8 --out "

// Two processes leave what one with two workers leaves, and rank 0 alone says how it went.
func TestProcessesTrainAsThreadsDo(t *testing.T) {
	p := profiled(t)
	for _, line := range []string{small + "one --workers 2", "launch -n 2 -- " + small + "two"} {
		code, said := started(t, p, line)
		if code != 0 || strings.Count(said, "\ncheckpoint ") != 1 || strings.Contains(said, "[1] ") {
			t.Errorf("%s: code %d\n%s", line, code, said)
		}
	}
	sameTensors(t, p, "one/checkpoints", "two/checkpoints")
}

// What is wrong with one process every process says, with the code that says whether to try again.
func TestEveryProcessSaysWhatIsWrong(t *testing.T) {
	p := &clitest.Program{Dir: t.TempDir(), Native: filepath.Join(t.TempDir(), "no-library.so"), Cache: t.TempDir()}
	if err := os.WriteFile(filepath.Join(p.Dir, "job.yaml"), []byte("model: mlp\ndata: digits\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]string{
		"train --model mlp --data digits --workers 3": "--workers is 3, and there are 2 workers (processes 2, " +
			"workers of each 1)",
		"train --model mlp --data none": "data: none is neither digits",
		"train none.yaml":               "none.yaml",
		"train job.yaml":                "engine torch: ",
	} {
		code, out := started(t, p, "launch -n 2 -- "+line)
		if code != 2 {
			t.Errorf("%s: code %d\n%s", line, code, out)
		}
		for _, rank := range []string{"[0] millrace: ", "[1] millrace: rank 0 on host "} {
			at := strings.Index(out, rank)
			if at < 0 {
				t.Errorf("%s: no line begins with %q\n%s", line, rank, out)
			} else if said, _, _ := strings.Cut(out[at:], "\n"); !strings.Contains(said, want) {
				t.Errorf("%s: %q; want %q", line, said, want)
			}
		}
	}
}
