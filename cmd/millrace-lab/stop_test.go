package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/cmd/internal/clitest"
)

// stubborn is a build that ignores SIGTERM, SIGINT and SIGHUP, and so does its child. It writes the process ids of both
// to a file, and leaves a further file in TMPDIR.
const stubborn = `#!/bin/sh
trap "" TERM INT HUP
sleep 1000 &
touch "$TMPDIR/millrace-profile-of-a-child"
echo $$ $! >%s
wait
`

// A verb that is stopped by a signal leaves no folder, no child and no grandchild, even if child and grandchild ignore
// signals.
func TestAStoppedExperimentLeavesNothing(t *testing.T) {
	for _, verb := range []string{"versus build build --only plan --planners dapple", "splits build build --only gpt"} {
		for signal, code := range clitest.Ends {
			t.Run(strings.Fields(verb)[0]+" "+signal.String(), func(t *testing.T) {
				t.Parallel()
				clitest.Obeyed(t, signal)
				leavesNothing(t, verb, signal, code)
			})
		}
	}
}

func leavesNothing(t *testing.T, verb string, signal syscall.Signal, code int) {
	p := &clitest.Program{Dir: t.TempDir(), Native: filepath.Join(t.TempDir(), "no-library.so"), Cache: t.TempDir()}
	temporary, started := t.TempDir(), filepath.Join(p.Dir, "started")
	if err := os.WriteFile(filepath.Join(p.Dir, "build"), fmt.Appendf(nil, stubborn, started), 0o755); err != nil {
		t.Fatal(err)
	}
	c := p.Command(t, strings.Fields(verb))
	c.Env = append(c.Env, "TMPDIR="+temporary)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	var child, grandchild int
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		text, _ := os.ReadFile(started)
		if n, _ := fmt.Sscanln(string(text), &child, &grandchild); n == 2 {
			break
		}
		if time.Since(began) > 20*time.Second {
			t.Fatal("it starts no build")
		}
	}
	if err := c.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := c.Wait(); !errors.As(err, &exit) || exit.ExitCode() != code {
		t.Errorf("ended with %v, want exit code %d", err, code)
	}
	left, err := os.ReadDir(temporary)
	if err != nil || len(left) > 0 {
		t.Errorf("it left %v, %v", left, err)
	}
	for _, pid := range []int{child, grandchild} {
		for began := time.Now(); ; time.Sleep(time.Millisecond) { // a killed process takes a moment to disappear
			stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			if err != nil || strings.Contains(string(stat), ") Z ") {
				break
			}
			if time.Since(began) > time.Second {
				t.Fatalf("it left %s", stat)
			}
		}
	}
}
