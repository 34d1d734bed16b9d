package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/cmd/internal/clitest"
)

// A stream's program.txt is the Program of the run's steps: trained from that file, the same steps give the same bits.
func TestTheProgramOfAStreamTrainsTheSame(t *testing.T) {
	t.Parallel()
	p := clitest.Trainer(t)
	train := func(out, how string) []byte {
		line := "train --model mlp --data digits --batch 32 --steps 30 --out " + out + " " + how
		if code, said := started(t, p, line); code != 0 {
			t.Fatalf("%s: exit %d: %s", line, code, said)
		}
		stage, err := os.ReadFile(filepath.Join(p.Dir, out, "checkpoints", "step-00000030", "stage-000.safetensors"))
		if err != nil {
			t.Fatal(err)
		}
		return stage
	}
	named := train("named", "--schedule 1f1b-rr --weights stash --stages 2 --micro-batches 1")
	text, err := os.ReadFile(filepath.Join(p.Dir, "named", "program.txt"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), "\nrepeat 28\n") {
		t.Errorf("the run of 30 steps has the Program\n%s", text)
	}
	if !bytes.Equal(named, train("read", "--program named/program.txt")) {
		t.Error("the run's program.txt trains other weights")
	}
}
