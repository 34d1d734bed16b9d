package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"

	"github.com/millrace-ml/millrace/cmd/internal/clitest"
	"github.com/millrace-ml/millrace/cmd/millrace/internal/training"
)

// endless is the command line of a training that lasts until it is stopped. Its output folder is appended.
const endless = "train --model mlp --data digits --profile mlp.json --batch 8 --micro-batch 4 --stages 2 " +
	"--eval-rows 8 --steps 100000000 --out "

// A training that gets the same signal twice finishes the step, and ends with the exit code of the signal. It leaves
// one whole checkpoint and a report.
func TestSignalsStopAfterAStep(t *testing.T) {
	t.Parallel()
	p := profiled(t)
	for signal, code := range clitest.Ends {
		t.Run(signal.String(), func(t *testing.T) {
			clitest.Obeyed(t, signal)
			out := "runs/" + signal.String()
			c := p.Command(t, strings.Fields(endless+out))
			stderr, err := c.StderrPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			said := ""
			for lines := bufio.NewScanner(stderr); lines.Scan(); {
				said += lines.Text() + "\n"
				if strings.HasPrefix(lines.Text(), "step 1/") {
					for range 2 {
						if err := c.Process.Signal(signal); err != nil {
							t.Fatal(err)
						}
					}
				}
			}
			err = c.Wait()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != code {
				t.Fatalf("ended with %v, want exit code %d:\n%s", err, code, said)
			}
			saved, err := filepath.Glob(filepath.Join(p.Dir, out, "checkpoints", "*"))
			if err != nil || len(saved) != 1 || filepath.Ext(saved[0]) != "" {
				t.Fatalf("left %v (%v)", saved, err)
			}
			if _, err := os.Stat(filepath.Join(p.Dir, out, "report.html")); err != nil {
				t.Error(err)
			}
		})
	}
}

// Stopping after 4 of 9 steps and resuming under another plan changes no bit of the loss. Plans with replicas, such
// as Chimera's two directions, are left out, because they add in another order.
func TestResumeIsBitEqualUnderAnotherPlan(t *testing.T) {
	t.Parallel()
	p := clitest.Trainer(t)
	const dropping = "--model mlp --set dropout=0.1 --batch 24 "
	if out := p.Run(t, strings.Fields("profile --sizes 6,24 --passes 1 -o dropping.json "+dropping), true); out != "" {
		t.Fatal(out)
	}
	learn := func(args string) training.Outcome {
		t.Helper()
		c := p.Command(t, strings.Fields("train --json --data digits --profile dropping.json --clip 1 "+dropping+args))
		var stderr bytes.Buffer
		c.Stderr = &stderr
		text, err := c.Output()
		if err != nil {
			t.Fatalf("%v\n%s", err, stderr.String())
		}
		var o training.Outcome
		if err := json.Unmarshal(text, &o); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		return o
	}
	whole := learn("--steps 9 --stages 2 --schedule 1f1b --micro-batches 4 --out whole")
	learn("--steps 4 --stages 2 --schedule 1f1b --micro-batches 4 --out part")
	rest := learn("--steps 9 --stages 1 --workers 1 --resume part/checkpoints --out rest")
	if whole.Loss != rest.Loss || !reflect.DeepEqual(whole.Evaluations[len(whole.Evaluations)-1],
		rest.Evaluations[len(rest.Evaluations)-1]) {
		t.Errorf("without a stop %v %v, with one %v %v", whole.Loss, whole.Evaluations, rest.Loss, rest.Evaluations)
	}
}

// A run is saved even if the reader of its output, such as tee, was stopped by the same Ctrl-C.
func TestARunIsSavedWhenNobodyReadsItsOutput(t *testing.T) {
	t.Parallel()
	p := profiled(t)
	c := p.Command(t, strings.Fields(endless+"run"))
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	c.Stdout, c.Stderr = w, w
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	lines := bufio.NewScanner(r)
	for lines.Scan() && !strings.HasPrefix(lines.Text(), "step 1/") {
	}
	r.Close()
	if err := c.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	err = c.Wait()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 130 {
		t.Errorf("ended with %v, want exit code 130", err)
	}
	saved, err := filepath.Glob(filepath.Join(p.Dir, "run", "checkpoints", "step-*"))
	if err != nil || len(saved) != 1 {
		t.Errorf("saved %v (%v)", saved, err)
	}
}
