package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/cmd/internal/clitest"
	"github.com/millrace-ml/millrace/run/checkpoint"
)

// soaking skips a test unless MILLRACE_SOAK is set, the user is root, and these programs are installed. Such a test
// takes minutes, or changes the services of a machine.
func soaking(t *testing.T, programs ...string) {
	t.Helper()
	if os.Getenv("MILLRACE_SOAK") == "" {
		t.Skip("MILLRACE_SOAK is not set")
	}
	if os.Getuid() != 0 {
		t.Skip("it needs root")
	}
	for _, name := range programs {
		if _, err := exec.LookPath(name); err != nil {
			t.Skip("not installed: ", name)
		}
	}
}

// slurm starts Slurm with two nodes on this machine, and returns the environment to use it.
func slurm(t *testing.T) (env []string) {
	t.Helper()
	soaking(t, "slurmctld", "slurmd", "srun", "munged")
	dir := t.TempDir()
	script, err := filepath.Abs("../../scripts/slurm.sh")
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(script, "up", dir).Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command(script, "down", dir).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	// The names of Slurm's nodes are not host names, because both nodes are this machine.
	return append(strings.Fields(string(out)), "MILLRACE_MASTER_ADDR=127.0.0.1")
}

// Here srun starts the training's processes, directly or in a script of millrace that sbatch runs. They end with the
// same weights as a training in a single process.
func TestSlurmLeavesTheSameWeights(t *testing.T) {
	env := slurm(t)
	p := profiled(t)
	replicas(t, p, "--batch", "16", "--micro-batches", "4")
	for i, r := range launchedRuns {
		flags := strings.Fields(launchedFlags + r.flags)
		n, workers, each := fmt.Sprint(r.processes), fmt.Sprint(r.processes*r.each), fmt.Sprint(r.each)
		alone, over, batch := fmt.Sprint("alone", i), fmt.Sprint("srun", i), fmt.Sprint("sbatch", i)
		threads := append(flags, "--workers", workers, "--out", alone)
		if code, out := by(t, p, threads, nil, "SELF"); code != 0 {
			t.Fatalf("%s: code %d\n%s", r.name, code, out)
		}
		want := left(t, filepath.Join(p.Dir, alone))
		tasks := append(flags, "--workers-per-process", each, "--out", over)
		nodes := "-N2"
		if r.processes%2 != 0 {
			nodes = "-N1" // an odd number on two hosts would make two host types, and the profile has only one
		}
		code, out := by(t, p, tasks, append(env[:len(env):len(env)], r.env...), "srun", nodes, "-n", n, "SELF")
		if code != 0 || left(t, filepath.Join(p.Dir, over)) != want {
			t.Errorf("srun, %s: code %d, or other weights\n%s", r.name, code, out)
		}
		script := append([]string{"manifest", "slurm"}, flags[1:]...)
		script = append(script, "--workers", workers, "--workers-per-process", each, "--out", batch,
			"--executable", os.Args[0], "-o", batch+".sh")
		if text := p.Run(t, script, false); text != "" {
			t.Fatal(text)
		}
		c := []string{"sbatch", "--wait", "-o", filepath.Join(p.Dir, batch+".log"), batch + ".sh"}
		code, out = by(t, p, nil, append(env[:len(env):len(env)], r.env...), c...)
		said, _ := os.ReadFile(filepath.Join(p.Dir, batch+".log"))
		if code != 0 || left(t, filepath.Join(p.Dir, batch)) != want {
			t.Errorf("sbatch, %s: code %d, or other weights\n%s%s", r.name, code, out, said)
		}
	}
}

// The script for mpirun runs with both MPI implementations.
func TestTheScriptOfMpirunLeavesTheSameWeights(t *testing.T) {
	soaking(t, "mpirun.openmpi", "mpiexec.hydra")
	p := profiled(t)
	r := launchedRuns[0]
	flags := strings.Fields(launchedFlags + r.flags)
	n := fmt.Sprint(r.processes)
	if code, out := by(t, p, append(flags, "--workers", n, "--out", "alone"), nil, "SELF"); code != 0 {
		t.Fatalf("code %d\n%s", code, out)
	}
	want := left(t, filepath.Join(p.Dir, "alone"))
	env := []string{"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"}
	for _, mpi := range []string{"openmpi", "mpich"} {
		script := append([]string{"manifest", "mpirun", "--mpi", mpi}, flags[1:]...)
		script = append(script, "--workers", n, "--out", mpi, "--executable", os.Args[0], "-o", mpi+".sh")
		if text := p.Run(t, script, false); text != "" {
			t.Fatal(text)
		}
		if code, out := by(t, p, nil, env, "bash", mpi+".sh"); code != 0 || left(t, filepath.Join(p.Dir, mpi)) != want {
			t.Errorf("%s: code %d, or other weights\n%s", mpi, code, out)
		}
	}
}

// Slurm sorts the hosts of a job. The script still puts the ranks on the hosts in the given order.
func TestSlurmHasRanksOnTheHostsThatWereNamed(t *testing.T) {
	env := slurm(t)
	p := profiled(t)
	const levels = "name: two\ndevice_types: {cpu: {peak: 1TFLOPS}}\ndevice: cpu\nlevels:\n" +
		"  - {name: server, size: 1, bandwidth: 10GB/s, latency: 5us}\n  - {name: rack, size: 2, bandwidth: 1GB/s, " +
		"latency: 30us}\n"
	if err := os.WriteFile(filepath.Join(p.Dir, "two.yaml"), []byte(levels), 0o644); err != nil {
		t.Fatal(err)
	}
	if text := p.Run(t, strings.Fields("manifest slurm --model mlp --data digits --batch 8 --micro-batch 4 --steps 2 "+
		"--eval-rows 8 --cluster two.yaml --hosts node2,node1 --out run -o run.sh --executable "+os.Args[0]),
		false); text != "" {
		t.Fatal(text)
	}
	code, out := by(t, p, nil, env, "sbatch", "--wait", "-o", filepath.Join(p.Dir, "log"), "run.sh")
	said, _ := os.ReadFile(filepath.Join(p.Dir, "log"))
	if code != 0 || !strings.Contains(string(said), "hosts node2, node1: 2 workers in all") {
		t.Errorf("code %d\n%s%s", code, out, said)
	}
}

// A script starts a run, and one of the run's processes is killed or hangs. The run starts again, resumes from its last
// checkpoint, and ends with the same weights as an undisturbed run.
func TestScriptsStartAgainAfterALostProcess(t *testing.T) {
	env := slurm(t)
	soaking(t, "mpirun.openmpi", "mpiexec.hydra")
	p := profiled(t)
	const flags = "--model mlp --data digits --profile mlp.json --batch 8 --micro-batch 4 --stages 2 --eval-rows 8 " +
		"--steps 6000 --save-every 200 --workers 2 --out "
	if code, out := started(t, p, "train "+flags+"alone"); code != 0 {
		t.Fatalf("code %d\n%s", code, out)
	}
	root := []string{"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"}
	for _, c := range []struct {
		name, manifest, rank string
		signal               syscall.Signal
		env, start           []string
	}{
		{"slurm", "slurm", "SLURM_PROCID", syscall.SIGKILL, env,
			[]string{"sbatch", "--wait", "-o", filepath.Join(p.Dir, "slurm.log")}},
		{"openmpi", "mpirun", "OMPI_COMM_WORLD_RANK", syscall.SIGKILL, root, []string{"bash"}},
		{"mpich", "mpirun --mpi mpich", "PMI_RANK", syscall.SIGKILL, nil, []string{"bash"}},
		{"openmpi-hangs", "mpirun --grace 5s", "OMPI_COMM_WORLD_RANK", syscall.SIGSTOP, root, []string{"bash"}},
		{"mpich-hangs", "mpirun --mpi mpich --grace 5s", "PMI_RANK", syscall.SIGSTOP, nil, []string{"bash"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if out := p.Run(t, strings.Fields("manifest "+c.manifest+" "+flags+c.name+" --restarts 1 -o "+c.name+".sh "+
				"--executable "+os.Args[0]), false); out != "" {
				t.Fatal(out)
			}
			killed := make(chan error)
			go func() { killed <- signalOne(filepath.Join(p.Dir, c.name), c.name, c.rank+"=1", c.signal) }()
			code, out := by(t, p, nil, c.env, append(c.start, c.name+".sh")...)
			if err := <-killed; err != nil {
				t.Fatalf("%v, code %d\n%s", err, code, out)
			}
			said, _ := os.ReadFile(filepath.Join(p.Dir, "slurm.log")) // only Slurm writes it
			if code != 0 {
				t.Fatalf("code %d\n%s%s", code, out, said)
			}
			sameTensors(t, p, c.name+"/checkpoints", "alone/checkpoints")
		})
	}
}

// killOne kills the process that signalOne finds.
func killOne(dir, argument, variable string) error {
	return signalOne(dir, argument, variable, syscall.SIGKILL)
}

// signalOne sends a signal to a process of this program, once the run in the folder `dir` has saved. The process has an
// argument that ends in `argument`, and an environment variable that is `variable`, such as A=1.
func signalOne(dir, argument, variable string, signal syscall.Signal) error {
	for late := time.Now().Add(2 * time.Minute); time.Now().Before(late); time.Sleep(5 * time.Millisecond) {
		if later, err := checkpoint.Later(filepath.Join(dir, "checkpoints"), 0); err != nil || len(later) == 0 {
			continue
		}
		paths, _ := filepath.Glob("/proc/[0-9]*") // the pattern is valid
		for _, path := range paths {
			var pid int
			environ, _ := os.ReadFile(filepath.Join(path, "environ")) // fails for a process that has ended
			cmdline, _ := os.ReadFile(filepath.Join(path, "cmdline"))
			words := strings.Split(string(cmdline), "\x00")
			if _, err := fmt.Sscanf(path, "/proc/%d", &pid); err != nil || words[0] != os.Args[0] ||
				!slices.ContainsFunc(words, func(word string) bool { return strings.HasSuffix(word, argument) }) ||
				!slices.Contains(strings.Split(string(environ), "\x00"), variable) {
				continue
			}
			return syscall.Kill(pid, signal)
		}
	}
	return errors.New("nothing is there to be killed")
}

// sshd starts an ssh server on the loopback, and returns the path of an ssh that reaches it as several hosts.
func sshd(t *testing.T) (path string) {
	t.Helper()
	soaking(t, "/usr/sbin/sshd", "ssh", "ssh-keygen")
	dir, port := t.TempDir(), aPort(t)
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"host", "user"} {
		if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f",
			filepath.Join(dir, key)).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	files := map[string]string{
		"sshd_config": fmt.Sprintf(`ListenAddress 127.0.0.2:%s
ListenAddress 127.0.0.3:%[1]s
HostKey %[2]s/host
AuthorizedKeysFile %[2]s/user.pub
PasswordAuthentication no
StrictModes no
PermitRootLogin yes
UsePAM no
PidFile %[2]s/pid
`, port, dir),
		"ssh_config": fmt.Sprintf(`Host *
  Port %s
  User %s
  IdentityFile %s/user
  UserKnownHostsFile %[3]s/known
  StrictHostKeyChecking accept-new
`, port, me.Username, dir),
		"ssh": "#!/bin/sh\nexec /usr/bin/ssh -F '" + dir + "/ssh_config' \"$@\"\n",
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll("/run/sshd", 0o755); err != nil { // sshd needs it
		t.Fatal(err)
	}
	c := exec.Command("/usr/sbin/sshd", "-D", "-e", "-f", filepath.Join(dir, "sshd_config"))
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	return "PATH=" + dir + ":" + os.Getenv("PATH")
}

// A real ssh passes on everything that the processes need. They have only the variables that came through ssh.
func TestLaunchOverSSHLeavesTheSameWeights(t *testing.T) {
	path := sshd(t)
	p := profiled(t)
	binary := filepath.Join(p.Dir, "millrace")
	if out, err := exec.Command("go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	env := []string{path, "MILLRACE_EXECUTABLE=" + binary, clitest.AsProgram + "=1"}
	r := launchedRuns[0]
	flags := strings.Fields(launchedFlags + r.flags)
	if code, out := by(t, p, append(flags, "--workers", "2", "--out", "alone"), nil, "SELF"); code != 0 {
		t.Fatalf("code %d\n%s", code, out)
	}
	code, out := by(t, p, append(flags, "--out", "over"), env, "SELF", "launch", "--hosts", "127.0.0.2,127.0.0.3", "--")
	if code != 0 || left(t, filepath.Join(p.Dir, "over")) != left(t, filepath.Join(p.Dir, "alone")) {
		t.Errorf("code %d, or other weights\n%s", code, out)
	}
	code, out = by(t, p, []string{"doctor"}, append(env, "MILLRACE_EXECUTABLE=/no/millrace"), "SELF", "launch", "--hosts",
		"127.0.0.2", "--")
	if code != 2 || !strings.Contains(out, "host 127.0.0.2 cannot be used: ssh: exit status 127: ") {
		t.Errorf("code %d\n%s", code, out)
	}
	code, out = by(t, p, nil, append(env, "PATH=/usr/bin:/bin"), "SELF", "launch", "--hosts", "127.0.0.9", "--",
		"doctor")
	if code != 2 || !strings.Contains(out, "host 127.0.0.9 cannot be used: ssh: exit status 255: ssh: connect to host") {
		t.Errorf("code %d\n%s", code, out)
	}
}
