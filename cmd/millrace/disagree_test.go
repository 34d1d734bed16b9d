package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/cmd/internal/clitest"
	"github.com/millrace-ml/millrace/engine/torch"
	"github.com/millrace-ml/millrace/internal/torchtest"
)

// ranked is a process that is started without a launcher.
type ranked struct {
	env  string // additional variables
	args string // additional arguments
	dir  string // a folder below the program's folder; "": the program's folder itself
}

// torchrunOf returns the environment that torchrun gives a process.
func torchrunOf(rank, size int) string {
	return fmt.Sprintf("RANK=%d WORLD_SIZE=%d LOCAL_RANK=%[1]d LOCAL_WORLD_SIZE=%[2]d MASTER_ADDR=127.0.0.1", rank, size)
}

// Processes that disagree all report which process differs and why. They end within seconds with an exit code that says
// whether to try again.
func TestProcessesThatDisagreeSayWhoAndWhy(t *testing.T) {
	p := profiled(t)
	otherNative := filepath.Join(t.TempDir(), "other.so")
	native, _ := torch.Find()
	text, err := os.ReadFile(native)
	for name, content := range map[string]string{
		otherNative: string(text) + "\n", filepath.Join(p.Dir, "one/text.txt"): strings.Repeat("to be or not to be\n", 200),
		filepath.Join(p.Dir, "two/text.txt"): strings.Repeat("to be, or not to be\n", 200),
	} {
		err = errors.Join(err, os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(content), 0o755))
	}
	for i, a := range torchtest.Run(t, torchtest.Request{Name: "averages", File: "hidden.py"},
		torchtest.Request{Name: "recomputed", File: "hidden.py"}) {
		err = errors.Join(err, os.Rename(a.Model, filepath.Join(p.Dir, []string{"one", "two"}[i], "net.mr")))
	}
	if err != nil {
		t.Fatal(err)
	}
	for i, schedule := range []string{"1f1b", "afab"} {
		if out := p.Run(t, strings.Fields("plan --model mlp --profile mlp.json --batch 8 --micro-batch 4 --stages 2 "+
			"--schedule "+schedule+" -o "+[]string{"one", "two"}[i]+"/plan.json"), true); out != "" {
			t.Fatal(out)
		}
	}
	const mlp = "--model mlp --data digits --profile mlp.json --batch 8 --micro-batch 4 --steps 2 --out run"
	for _, c := range []struct {
		name  string
		all   string // arguments of all processes
		procs []ranked
		want  []string // a text for each process, or a single text for all
		codes []int
	}{
		{"two launchers", mlp, []ranked{
			{env: torchrunOf(0, 2) + " OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=3"},
			{env: torchrunOf(1, 2) + " OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=3"}},
			[]string{"torchrun says rank 0 of 2 (RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2), Open MPI says rank 0 of",
				"torchrun says rank 1 of 2 (RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2), Open MPI says rank 1 of"},
			[]int{2, 2}},
		{"a missing rank", mlp, []ranked{{env: torchrunOf(0, 3)}, {env: torchrunOf(2, 3)}},
			[]string{"rank 1 of 3 did not come within 5s (here: "}, []int{3, 3}},
		{"a doubled rank", mlp, []ranked{{env: torchrunOf(0, 3)}, {env: torchrunOf(1, 3)}, {env: torchrunOf(1, 3)}},
			[]string{"rank 1 is there twice: process "}, []int{2, 2, 2}},
		{"other sizes", mlp, []ranked{{env: torchrunOf(0, 2)}, {env: torchrunOf(1, 3)}},
			[]string{"on host HOST) says that there are 3 processes, rank 0 (process "}, []int{2, 2}},
		{"other flags", mlp, []ranked{{env: torchrunOf(0, 2)}, {env: torchrunOf(1, 2), args: "--seed 7"}},
			[]string{"seed is left out for rank 0 on host HOST and 7 for rank 1 on host HOST"}, []int{2, 2}},
		{"other numbers of workers", mlp, []ranked{{env: torchrunOf(0, 2)},
			{env: torchrunOf(1, 2) + " MILLRACE_WORKERS_PER_PROCESS=2"}},
			[]string{"workers is 2 for rank 0 on host HOST and 4 for rank 1 on host HOST"}, []int{2, 2}},
		{"other plans", strings.Replace(mlp, "mlp.json", "../mlp.json", 1) + " --plan plan.json",
			[]ranked{{env: torchrunOf(0, 2), dir: "one"}, {env: torchrunOf(1, 2), dir: "two"}},
			[]string{"plan.json is "}, []int{2, 2}},
		{"other data", "--model gpt --set width=8 --set layers=1 --set heads=1 --set context=8 --data text.txt --out run",
			[]ranked{{env: torchrunOf(0, 2), dir: "one"}, {env: torchrunOf(1, 2), dir: "two"}},
			[]string{"data is "}, []int{2, 2}},
		{"other networks of one name", "--model net.mr --data digits --out run",
			[]ranked{{env: torchrunOf(0, 2), dir: "one"}, {env: torchrunOf(1, 2), dir: "two"}},
			[]string{"what is in --model net.mr is "}, []int{2, 2}},
		{"another build", mlp, []ranked{{env: torchrunOf(0, 2)}, {env: torchrunOf(1, 2) + " MILLRACE_NATIVE=" + otherNative}},
			[]string{"native library"}, []int{2, 2}},
		{"another clock", mlp, []ranked{{env: torchrunOf(0, 2)}, {env: torchrunOf(1, 2) + " " + wrongClock + "=-2m"}},
			[]string{"on host HOST) is 2m0s from that of rank 0 (process "}, []int{2, 2}},
		{"another token", mlp, []ranked{{env: torchrunOf(0, 2) + " MILLRACE_TOKEN=0123456789abcdef-one"},
			{env: torchrunOf(1, 2) + " MILLRACE_TOKEN=0123456789abcdef-two"}},
			[]string{"rank 1 of 2 did not come within 5s", "its token is not this run's"}, []int{3, 2}},
		{"another start", mlp, []ranked{{env: torchrunOf(0, 2)}, {env: torchrunOf(1, 2) + " MILLRACE_RESTART=1"}},
			[]string{"rank 1 of 2 did not come within 5s", "it is of another run, or of another start of it"}, []int{3, 3}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel() // most of these subtests only wait
			began, port := time.Now(), aPort(t)
			codes, outs := make([]int, len(c.procs)), make([]string, len(c.procs))
			var all sync.WaitGroup
			for i, r := range c.procs {
				all.Go(func() { codes[i], outs[i] = alone(t, p, r, "train "+c.all, port) })
			}
			all.Wait()
			host, _ := os.Hostname()
			for i, out := range outs {
				want := strings.ReplaceAll(c.want[i%len(c.want)], "HOST", host)
				said := slices.ContainsFunc(strings.Split(out, "\n"), func(line string) bool {
					return strings.Contains(line, "millrace: ") && strings.Contains(line, want)
				})
				if codes[i] != c.codes[i] || !said {
					t.Errorf("process %d: code %d, want %d and %q\n%s", i, codes[i], c.codes[i], want, out)
				}
			}
			if took := time.Since(began); took > time.Minute {
				t.Errorf("it took %v", took)
			}
			if _, err := os.Stat(filepath.Join(p.Dir, "run")); err == nil {
				t.Error("a folder is left")
			}
		})
	}
}

// alone runs one process, which waits five seconds for the others.
func alone(t *testing.T, p *clitest.Program, r ranked, line, port string) (code int, out string) {
	c := p.Command(t, strings.Fields(line+" "+r.args))
	c.Dir = filepath.Join(p.Dir, r.dir)
	c.Env = append(append(c.Env, "XDG_CONFIG_HOME="+filepath.Join(p.Dir, "config"), "MILLRACE_WAIT=5",
		"MASTER_PORT="+port), strings.Fields(r.env)...)
	text, err := c.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Error(err)
	}
	return c.ProcessState.ExitCode(), string(text)
}
