package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/millrace-ml/millrace/cmd/internal/clitest"
)

// rank is one of several processes without a launcher.
type rank struct {
	*exec.Cmd
	out  bytes.Buffer // its stdout
	errs io.Reader    // its stderr
}

// ranks starts processes that meet on the loopback, each with its own command line.
func ranks(t *testing.T, p *clitest.Program, lines ...string) []*rank {
	t.Helper()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(free.Addr().String())
	free.Close()
	var all []*rank
	for n, line := range lines {
		r := &rank{Cmd: p.Command(t, strings.Fields(line))}
		r.Env = append(r.Env, "MILLRACE_TOKEN=of these processes alone", "MILLRACE_MASTER_ADDR=127.0.0.1",
			"MILLRACE_NODES=1", "MILLRACE_MASTER_PORT="+port, fmt.Sprint("MILLRACE_RANK=", n),
			fmt.Sprint("MILLRACE_WORLD_SIZE=", len(lines)))
		r.Stdout = &r.out
		if r.errs, err = r.StderrPipe(); err == nil {
			err = r.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	return all
}

// ended reads a process's stderr to the end, and returns it with the exit code.
func (r *rank) ended() (code int, said string) {
	text, _ := io.ReadAll(r.errs)
	_ = r.Wait() // ProcessState says how the process ended
	return r.ProcessState.ExitCode(), string(text)
}

// A signal to any process stops all processes after their step, which is saved. All processes exit as if they had been
// signalled, and only rank 0 prints the result.
func TestASignalToOneStopsAll(t *testing.T) {
	t.Parallel()
	p := profiled(t)
	for told, codes := range [][]int{{130, 143}, {143, 130}} {
		out := fmt.Sprint("out", told)
		line := strings.Replace(small, "--steps 6", "--steps 1000000", 1) + out
		all := ranks(t, p, line, line)
		words := bufio.NewReader(all[0].errs)
		for said := ""; !strings.Contains(said, "step 1/"); {
			var err error
			if said, err = words.ReadString('\n'); err != nil {
				t.Fatal("rank 0 takes no step: ", err, said)
			}
		}
		all[0].errs = words
		if err := all[told].Process.Signal(syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
		for n, r := range all {
			if code, said := r.ended(); code != codes[n] {
				t.Errorf("rank %d of which %d is told to stop: code %d, want %d\n%s", n, told, code, codes[n], said)
			}
		}
		if saved := ", saved " + out + "/checkpoints/step-"; !strings.Contains(all[0].out.String(), saved) ||
			all[1].out.Len() > 0 {
			t.Errorf("rank 0 prints\n%s\nrank 1 prints\n%s", &all[0].out, &all[1].out)
		}
		if names := p.List(t, out+"/checkpoints"); !strings.Contains(names, "manifest.json") {
			t.Errorf("saved is %q", names)
		}
	}
}
