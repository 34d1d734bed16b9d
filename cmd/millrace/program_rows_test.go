package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/cmd/internal/clitest"
)

// streamOfDocs returns the Program of a stream in docs/programs.md.
func streamOfDocs(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/programs.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(page), "six minibatches of one micro-batch each:")
	text, _, _ = strings.Cut(text, "In the prologue")
	return strings.TrimSpace(strings.ReplaceAll(text, "\n    ", "\n")) + "\n"
}

// A Program of a stream needs some steps in a row. A run with fewer is refused as bad input. The refusal names the
// settings and what would be right. Nothing is measured before it, and no folder is made.
func TestStepsThatAProgramCannotTrain(t *testing.T) {
	clitest.NeedTorch(t)
	text, dir := streamOfDocs(t), t.TempDir()
	out := filepath.Join(dir, "out")
	for i, c := range []struct{ args, want string }{
		{"--steps 1", "--steps 1: step 1 would be trained by itself; in a row, NAME trains 2 or more; give --steps 2"},
		{"--steps 1 --dry-run", "; give --steps 2"},
		{"--steps 51 --eval-every 50", "--steps 51, --eval-every 50: step 51 would be trained by itself; in a row, NAME " +
			"trains 2 or more; give --steps 50 or 52, or --eval-every 49 or 51"},
		{"--steps 9 --save-every 4 --eval-every 3", "--steps 9, --eval-every 3, --save-every 4: step 4 would be"},
		{"--steps 2 --save-every 1 --eval-every 1", "; evaluate and save after as many steps, or at the end alone, and "},
		{"--steps 2", "nowhere.json"}, // enough steps: the next thing is the profile
	} {
		name := fmt.Sprintf("row%d.txt", i) // names differ, because a process registers each only once
		write(t, filepath.Join(dir, name), text)
		args := append([]string{"train", "--model", "mlp", "--data", "digits", "--program", filepath.Join(dir, name),
			"--profile", filepath.Join(dir, "nowhere.json"), "--out", out}, strings.Fields(c.args)...)
		_, errs, code := ran(t, args...)
		if want := strings.ReplaceAll(c.want, "NAME", name); code != cli.ExitBadInput || !strings.Contains(errs, want) {
			t.Errorf("%s: exit %d, %q; want %q", c.args, code, errs, want)
		}
		if _, err := os.Stat(out); err == nil {
			t.Errorf("%s: there is a folder of a run", c.args)
		}
	}
}

// Steps that are too many for one Program are divided among several. The limit is known before anything is measured.
func TestStepsThatAreDividedAmongPrograms(t *testing.T) {
	t.Parallel()
	p := profiled(t)
	write(t, filepath.Join(p.Dir, "odd.txt"), "millrace program 1\nname odd\nstages 2\nworkers 2\nmicro_batches 2\n"+
		"period 2\nrepeat 2\nweights stash\nreplication round_robin\nplace p0/0: 0\nplace p0/1: 1\nprologue\n"+
		"0: 0F0 0F1 0B0 0F2\n1: 1F0 1B0 1F1 1B1 1F2\nbody\n0: 0B1 0F3 0B2 0F4\n1: 1B2 1F3 1B3 1F4\n"+
		"epilogue\n0: 0B1 0B2\n1: 1B2\n")
	for _, c := range []struct {
		steps, code int
		want        string
	}{
		{4097, 0, ""}, {4098, 0, ""}, {10000, 0, ""},
		{4094, cli.ExitBadInput, "give --steps 4093 or 4095"}, {4095, 0, ""},
	} {
		run := p.Command(t, strings.Fields(fmt.Sprintf("train --model mlp --data digits --profile mlp.json --batch 4 "+
			"--program odd.txt --dry-run --steps %d", c.steps)))
		text, _ := run.CombinedOutput()
		said := strings.Join(strings.Fields(string(text)), " ")
		if run.ProcessState.ExitCode() != c.code || !strings.Contains(said, c.want) {
			t.Errorf("%d steps: %v, %s; want %q", c.steps, run.ProcessState, text, c.want)
		}
	}
}

// A run that resumes counts the steps that are left, and so does a run of several processes.
func TestStepsLeftThatAProgramCannotTrain(t *testing.T) {
	t.Parallel()
	p := profiled(t)
	write(t, filepath.Join(p.Dir, "stream.txt"), streamOfDocs(t))
	learn(t, p, "--batch 4 --program stream.txt --steps 2 --out own")
	for _, line := range []string{"train", "train --dry-run", "launch -n 2 -- train"} {
		c := p.Command(t, strings.Fields(line+" --resume own --steps 3"))
		text, _ := c.CombinedOutput()
		said := strings.Join(strings.Fields(string(text)), " ")
		if c.ProcessState.ExitCode() != cli.ExitBadInput || !strings.Contains(said, "--steps 3: step 3 would be trained "+
			"by itself; in a row, stream.txt trains 2 or more; give --steps 4") {
			t.Errorf("%s: %v, %s", line, c.ProcessState, text)
		}
	}
	if _, err := os.Stat(filepath.Join(p.Dir, "own", "error.json")); err == nil {
		t.Error("a refusal has left error.json")
	}
}
