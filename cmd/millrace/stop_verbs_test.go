package main

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/millrace-ml/millrace/cmd/internal/clitest"
)

// A verb that a signal stops says so and ends at once with 128 + the signal: what a search had found by then
// is neither printed nor written, and nothing half-written is left.
func TestSignalsStopEveryVerb(t *testing.T) {
	for _, args := range []string{
		"plan --model gpt --set layers=24 --cluster dapple-a --batch 256 -o out.json",
		"tune --model gnmt --cluster avgpipe --batch 128 --pipelines 8 --memory 16GiB --rivals -o out.json",
	} {
		for signal, code := range clitest.Ends {
			t.Run(strings.Fields(args)[0]+" "+signal.String(), func(t *testing.T) {
				t.Parallel()
				p := &clitest.Program{Dir: t.TempDir(), Native: filepath.Join(t.TempDir(), "no-library.so"),
					Cache: t.TempDir()}
				said := p.StopAtWork(t, args, "", signal, code)
				if !strings.HasPrefix(said, "millrace: stopped by SIG") || strings.Count(said, "\n") != 1 {
					t.Errorf("it said %q", said)
				}
				if left := p.List(t, "."); left != "" {
					t.Errorf("it left\n%s", left)
				}
			})
		}
	}
}

// A verb that does not look whether it was stopped is ended, and leaves no half of a file.
func TestSignalsStopADeafVerb(t *testing.T) {
	p := &clitest.Program{Dir: t.TempDir(), Cache: t.TempDir()}
	said := p.StopAtWork(t, "deaf", "writing", syscall.SIGTERM, 143)
	if said != "writing\nmillrace: stopped by SIGTERM before it was done\n" {
		t.Errorf("it said %q", said)
	}
	if left := p.List(t, "."); left != "" {
		t.Errorf("it left\n%s", left)
	}
}

// Training that is stopped while another process measures its profile ends as that process does.
func TestSignalsStopTrainingThatMeasures(t *testing.T) {
	p := clitest.Trainer(t)
	said := p.StopAtWork(t, "train --model gpt --set context=16 --data text.txt --batch 64 --out run",
		"profile: measuring", syscall.SIGTERM, 143)
	if strings.Contains(said, "finishing") || strings.Contains(said, "killed") {
		t.Errorf("it said %q", said)
	}
	if left := p.List(t, "run"); left != "" {
		t.Errorf("it left\n%s", left)
	}
}
