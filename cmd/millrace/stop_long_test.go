package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/millrace-ml/millrace/cmd/internal/clitest"
)

// Verbs that read, simulate or draw for a long time end soon after a signal. They say that nothing was written, and
// leave no output, whole or partial.
func TestSignalsStopWhatWorksForLong(t *testing.T) {
	t.Parallel()
	native := filepath.Join(t.TempDir(), "no-library.so")
	p := &clitest.Program{Dir: t.TempDir(), Native: native, Cache: t.TempDir()}
	program, table := filepath.Join(p.Dir, "program.txt"), filepath.Join(p.Dir, "table.csv")
	write(t, program, p.Run(t, strings.Fields("schedule 1f1b --workers 64 --micro-batches 4000 --text"), false))
	if out := p.Run(t, strings.Fields("export --to torch-csv --program program.txt -o table.csv"), true); out != "" {
		t.Fatal(out)
	}
	for _, args := range []string{
		"schedule 1f1b --workers 256 --micro-batches 8000 --html out.html",
		"schedule " + program + " --svg out.svg",
		"schedule compare --workers 64 --micro-batches 1024 --activation-limit 64",
		"simulate --model gpt --set layers=64 --cluster pipedream-1080ti --batch 8192 --stages 32 --micro-batches 8192 " +
			"--schedule 1f1b",
		"import --from torch-csv " + table + " -o out.json",
	} {
		t.Run(strings.ReplaceAll(strings.Join(strings.Fields(args)[:2], " "), p.Dir+"/", ""), func(t *testing.T) {
			p := &clitest.Program{Dir: t.TempDir(), Native: native, Cache: t.TempDir()}
			said := p.StopAtWork(t, args, "", syscall.SIGINT, 130)
			if said != "millrace: stopped by SIGINT before it was done; nothing was written\n" {
				t.Errorf("it said %q", said)
			}
			if left, err := os.ReadDir(p.Dir); err != nil || len(left) > 0 {
				t.Errorf("it left %v (%v)", left, err)
			}
		})
	}
}
