package main

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/millrace-ml/millrace/cmd/internal/clitest"
	"github.com/millrace-ml/millrace/launch"
	"github.com/millrace-ml/millrace/plan"
)

// launcher starts n processes of a command line, and waits for them. `quick` means that the launcher itself takes
// little time.
type launcher struct {
	name  string
	quick bool
	needs string // a program that must be installed
	run   func(t *testing.T, p *clitest.Program, n int, args []string) (code int, out string)
}

// launchers are the launchers that work on this host without further setup.
var launchers = []launcher{
	{"millrace launch", true, "", func(t *testing.T, p *clitest.Program, n int, args []string) (int, string) {
		return by(t, p, args, nil, "SELF", "launch", "-n", fmt.Sprint(n), "--")
	}},
	{"millrace launch over hosts", true, "", func(t *testing.T, p *clitest.Program, n int, args []string) (int, string) {
		path, _ := otherHosts(t)
		hosts := []string{"u@127.0.0.2", "127.0.0.3", "127.0.0.4"}[:n]
		return by(t, p, args, []string{path}, "SELF", "launch", "--hosts", strings.Join(hosts, ","), "--")
	}},
	{"mpirun of Open MPI", true, "mpirun.openmpi", func(t *testing.T, p *clitest.Program, n int, args []string) (int,
		string) {
		root := []string{"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"}
		return by(t, p, args, root, "mpirun.openmpi", "--bind-to", "none", "--oversubscribe", "-np", fmt.Sprint(n), "SELF")
	}},
	{"mpiexec of MPICH", false, "mpiexec.hydra", func(t *testing.T, p *clitest.Program, n int, args []string) (int,
		string) {
		return by(t, p, args, []string{"MILLRACE_MASTER_PORT=" + aPort(t)}, "mpiexec.hydra", "-n", fmt.Sprint(n), "SELF")
	}},
	{"torchrun's variables", true, "", byHand(func(rank, n int, port string) string {
		return fmt.Sprintf("RANK=%d WORLD_SIZE=%d LOCAL_RANK=%[1]d LOCAL_WORLD_SIZE=%[2]d MASTER_ADDR=127.0.0.1 "+
			"MASTER_PORT=%s GROUP_RANK=0 GROUP_WORLD_SIZE=1 TORCHELASTIC_RESTART_COUNT=0 TORCHELASTIC_RUN_ID=none", rank, n,
			port)
	})},
	{"pods of a TrainJob", false, "", byHand(func(rank, n int, port string) string {
		return fmt.Sprintf("PET_NNODES=%d PET_NPROC_PER_NODE=1 PET_NODE_RANK=%d PET_MASTER_ADDR=127.0.0.1 "+
			"PET_MASTER_PORT=%s JOB_COMPLETION_INDEX=%[2]d HOSTNAME=gpt-node-0-%[2]d", n, rank, port)
	})},
	// Debian's torchrun fails with its own defaults under Python 3.11, but works with these settings.
	{"torchrun", false, "/usr/bin/python3", func(t *testing.T, p *clitest.Program, n int, args []string) (int, string) {
		if exec.Command("/usr/bin/python3", "-c", "import torch.distributed.run").Run() != nil {
			t.Skip("python3-torch is not installed")
		}
		return by(t, p, args, nil, "/usr/bin/python3", "-m", "torch.distributed.run", "--no_python", "--redirects", "1",
			"--tee", "1", "--log_dir", t.TempDir(), "--nnodes", "1", "--nproc_per_node", fmt.Sprint(n), "--master_port",
			aPort(t), "SELF")
	}},
}

// by runs a program that starts other programs; SELF means millrace.
func by(t *testing.T, p *clitest.Program, args, env []string, program ...string) (code int, out string) {
	t.Helper()
	c := p.Command(t, args)
	self := c.Path
	for i, word := range program {
		if word == "SELF" {
			program[i] = self
		}
	}
	path, err := exec.LookPath(program[0])
	if err != nil {
		t.Fatal(err)
	}
	c.Path, c.Args = path, append(program, args...)
	c.Env = append(append(c.Env, "XDG_CONFIG_HOME="+filepath.Join(p.Dir, "config")), env...)
	text, _ := c.CombinedOutput() // the exit code is the result
	return c.ProcessState.ExitCode(), string(text)
}

// byHand starts processes with a launcher's variables, but without the launcher.
func byHand(env func(rank, n int, port string) string) func(*testing.T, *clitest.Program, int, []string) (int, string) {
	return func(t *testing.T, p *clitest.Program, n int, args []string) (code int, out string) {
		port := aPort(t)
		codes, texts := make([]int, n), make([]string, n)
		var all sync.WaitGroup
		for rank := range n {
			all.Go(func() {
				codes[rank], texts[rank] = by(t, p, args, strings.Fields(env(rank, n, port)), "SELF")
			})
		}
		all.Wait()
		for _, c := range codes {
			code = max(code, c)
		}
		return code, strings.Join(texts, "")
	}
}

// aPort returns a port that no process listens on.
func aPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// launchedRuns are small trainings whose plans do not depend on measurements.
var launchedRuns = []struct {
	name      string
	processes int
	each      int // workers of a process
	flags     string
	quick     bool
	env       []string
}{
	{"a pipeline of two", 2, 1, "--split 2 --schedule 1f1b --clip 0.5 --optimizer adam --save-every 4", true, nil},
	{"two replicas", 2, 1, "--plan replicas.json --optimizer sgd --momentum 0.9", false, nil},
	{"three, without a flush", 3, 1, "--split 1,2 --schedule 1f1b-rr --weights stash --batch 4 --micro-batches 1 " +
		"--lr 0.02", false, nil},
	{"three, with split backwards", 3, 1, "--split 1,2 --schedule zb-h1 --clip 0.5", false, nil},
	{"two of two workers each", 2, 2, "--split 1,2,3 --schedule 1f1b", false, nil},
	{"two, over TLS", 2, 1, "--split 2 --schedule 1f1b", false, []string{launch.TLSVar + "=on"}},
}

// replicas writes a plan of two replicas. It plans for a described cluster with fast links, because with slow measured
// links one worker would be planned.
func replicas(t *testing.T, p *clitest.Program, batches ...string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(p.Dir, "fast.yaml"), []byte(`name: fast
device_types: {cpu: {peak: 1GFLOPS, memory_bandwidth: 1GB/s}}
device: cpu
levels:
  - {name: machine, size: 2, bandwidth: 1000GB/s, latency: 1ns}
`), 0o644); err != nil {
		t.Fatal(err)
	}
	planned := strings.Fields("plan --model mlp --cluster fast.yaml --stages 1 --schedule dp -o replicas.json")
	if out := p.Run(t, append(planned, batches...), true); out != "" {
		t.Fatal(out)
	}
	path := filepath.Join(p.Dir, "replicas.json")
	made, err := plan.Read(path)
	if err != nil || len(made.Devices()) != 2 {
		t.Fatalf("%v of %+v", err, made)
	}
	made.Cluster, made.Hardware = "", nil // this plan then fits any hosts
	if err := made.Write(path); err != nil {
		t.Fatal(err)
	}
}

const launchedFlags = "train --model mlp --data digits --profile mlp.json --batch 16 --micro-batches 4 --steps 6 " +
	"--seed 3 --eval-rows 8 --lr 0.05 "

// left returns a hash of every tensor file that a run left.
func left(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "checkpoints", "*", "*.safetensors"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: %v, %v", dir, files, err)
	}
	var all strings.Builder
	for _, path := range files {
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.New()
		if _, err := io.Copy(sum, f); err != nil {
			t.Fatal(err)
		}
		f.Close()
		name, _ := filepath.Rel(dir, path)
		fmt.Fprintf(&all, "%s %x\n", name, sum.Sum(nil))
	}
	return all.String()
}

// Processes reach the same weights as a single process, whichever launcher starts them.
func TestLaunchersLeaveTheSameWeights(t *testing.T) {
	p := profiled(t)
	replicas(t, p, "--batch", "16", "--micro-batches", "4")
	long := os.Getenv("MILLRACE_SOAK") != ""
	for i, r := range launchedRuns {
		if !r.quick && !long {
			continue
		}
		flags := strings.Fields(launchedFlags + r.flags)
		alone := fmt.Sprint("alone", i)
		threads := append(flags, "--workers", fmt.Sprint(r.processes*r.each), "--out", alone)
		if code, out := by(t, p, threads, nil, "SELF"); code != 0 {
			t.Fatalf("%s: code %d\n%s", r.name, code, out)
		}
		want := left(t, filepath.Join(p.Dir, alone))
		for j, l := range launchers {
			t.Run(l.name+", "+r.name, func(t *testing.T) {
				if !l.quick && !long {
					t.Skip("MILLRACE_SOAK is not set")
				}
				if l.needs != "" {
					if _, err := exec.LookPath(l.needs); err != nil {
						t.Skip("not installed: ", l.needs)
					}
				}
				for _, line := range r.env {
					name, value, _ := strings.Cut(line, "=")
					t.Setenv(name, value)
				}
				out := fmt.Sprintf("run-%d-%d", i, j)
				code, text := l.run(t, p, r.processes, append(flags, "--workers-per-process", fmt.Sprint(r.each), "--out", out))
				if code != 0 {
					t.Fatalf("code %d\n%s", code, text)
				}
				if got := left(t, filepath.Join(p.Dir, out)); got != want {
					t.Errorf("it leaves\n%s, and one process\n%s", got, want)
				}
				if token, err := os.ReadFile(filepath.Join(p.Dir, "config", "millrace", "token")); err == nil &&
					bytes.Contains([]byte(text), bytes.TrimSpace(token)) {
					t.Error("the token is printed")
				}
			})
		}
	}
}

// If one pod of an Indexed Job is lost, all are replaced and resume without an extra flag.
func TestReplacedPodsGoOn(t *testing.T) {
	t.Parallel()
	p := profiled(t)
	pods := func(id, port string) []ranked {
		var all []ranked
		for i := range 2 {
			all = append(all, ranked{env: fmt.Sprintf("JOB_COMPLETION_INDEX=%d MILLRACE_WORLD_SIZE=2 MILLRACE_RUN_ID=%s "+
				"MILLRACE_MASTER_ADDR=127.0.0.1 MILLRACE_MASTER_PORT=%s HOSTNAME=gpt-%[1]d", i, id, port)})
		}
		return all
	}
	const flags = "train --model mlp --data digits --profile mlp.json --batch 8 --micro-batch 4 --stages 2 " +
		"--eval-rows 8 --steps 2000 --save-every 50 --out "
	together := func(id string, disturb func()) (codes []int, outs []string) {
		codes, outs = make([]int, 2), make([]string, 2)
		var all sync.WaitGroup
		for i, r := range pods(id, aPort(t)) {
			all.Go(func() { codes[i], outs[i] = alone(t, p, r, flags+"pods", "1") })
		}
		disturb()
		all.Wait()
		return codes, outs
	}
	codes, outs := together("uid-1", func() {
		if err := killOne(filepath.Join(p.Dir, "pods"), "pods", "JOB_COMPLETION_INDEX=1"); err != nil {
			t.Error(err)
		}
	})
	if codes[0] != 3 || codes[1] != -1 {
		t.Fatalf("codes %v\n%s", codes, outs)
	}
	if codes, outs = together("uid-2", func() {}); codes[0] != 2 || codes[1] != 2 {
		t.Errorf("another Job takes over the folder: codes %v\n%s", codes, outs)
	}
	if codes, outs = together("uid-1", func() {}); codes[0] != 0 || codes[1] != 0 {
		t.Fatalf("codes %v\n%s", codes, outs)
	}
	if code, out := started(t, p, flags+"alone --workers 2"); code != 0 {
		t.Fatalf("code %d\n%s", code, out)
	}
	sameTensors(t, p, "pods/checkpoints", "alone/checkpoints")
}

// A run on several hosts continues without a lost host, and ends with the same weights as an undisturbed run.
func TestLaunchGoesOnWithoutALostHost(t *testing.T) {
	t.Parallel()
	p := profiled(t)
	path, _ := otherHosts(t)
	killed := make(chan error)
	go func() {
		err := killOne(filepath.Join(p.Dir, "run"), otherHalf, "ON=127.0.0.3")
		killed <- errors.Join(err, os.WriteFile(filepath.Join(p.Dir, "gone"), []byte("127.0.0.3"), 0o644))
	}()
	const flags = "train --model mlp --data digits --profile mlp.json --batch 8 --micro-batch 4 --schedule 1f1b " +
		"--eval-rows 8 --steps 4000 --save-every 100 --out "
	code, out := started(t, p, "launch --hosts 127.0.0.2,127.0.0.4,127.0.0.3 --restarts 1 -- "+flags+"run", path,
		"GONE="+filepath.Join(p.Dir, "gone"))
	if err := <-killed; err != nil {
		t.Fatalf("%v, code %d\n%s", err, code, out)
	}
	for _, want := range []string{"launch: rank 2 is lost: the connection to host 127.0.0.3 ended",
		"; start 2 of at most 2", "going on without hosts that cannot be used: host 127.0.0.3 cannot be used",
		"step-00004000"} {
		if code != 0 || !strings.Contains(out, want) {
			t.Fatalf("code %d, no %q in\n%s", code, want, out)
		}
	}
	// A step has two micro-batches, and the sum of two gradients has the same bits in either order. So both runs end
	// with the same bits, even if one of them has replicas.
	if code, out := started(t, p, flags+"alone --workers 2"); code != 0 {
		t.Fatalf("code %d\n%s", code, out)
	}
	sameTensors(t, p, "run/checkpoints", "alone/checkpoints")
}
