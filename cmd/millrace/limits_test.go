package main

import (
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/cmd/internal/clitest"
	"github.com/millrace-ml/millrace/cmd/internal/prepare"
	"github.com/millrace-ml/millrace/job"
)

func TestThreadsAreBounded(t *testing.T) {
	t.Parallel()
	most := prepare.ThreadsPerProcessor * runtime.NumCPU()
	for _, c := range []struct {
		workers, threads int
		cluster          string
		refused          bool
	}{{2, most / 2, "", false}, {2, most/2 + 1, "", true}, {4096, 1, "", false}, {4096, 2, "", true},
		{1, 1 << 62, "", true}, {2, 1 << 30, "dapple-a", false}} {
		err := prepare.CheckThreads(&job.Job{Machine: job.Machine{Workers: c.workers,
			ThreadsPerWorker: c.threads, Cluster: c.cluster}})
		if (err != nil) != c.refused || err != nil && !strings.Contains(err.Error(),
			fmt.Sprint("--threads-per-worker ", c.threads)) {
			t.Errorf("%d workers of %d threads: %v", c.workers, c.threads, err)
		}
	}
}

// If the address space is too small, a verb ends with one line. If the Go runtime itself gets no thread or memory, the
// verb ends with the runtime's dump instead. In both cases the exit code is 2.
func TestALimitedAddressSpace(t *testing.T) {
	t.Parallel()
	p := clitest.Trainer(t)
	limiter, err := exec.LookPath("prlimit")
	if err != nil {
		t.Skip("no prlimit to limit a process with: ", err)
	}
	for _, megabytes := range []int{1200, 2000, 2300, 2400, 2500} {
		c := p.Command(t, strings.Fields("profile mlp --sizes 4 --passes 1 -o out.json"))
		c.Args = append([]string{limiter, fmt.Sprintf("--as=%d000000", megabytes), c.Path}, c.Args[1:]...)
		c.Path = limiter
		began := time.Now()
		out, _ := c.CombinedOutput()
		code := c.ProcessState.ExitCode()
		if code != 0 && code != cli.ExitBadInput || code == cli.ExitBadInput &&
			!strings.Contains(string(out), "millrace: ") &&
			!strings.Contains(string(out), "pthread_create failed") &&
			!strings.Contains(string(out), "fatal error: out of memory") {
			t.Errorf("%d MB: exit %d after %v:\n%.400s", megabytes, code, time.Since(began), out)
		}
	}
}
