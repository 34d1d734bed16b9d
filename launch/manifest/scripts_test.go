package manifest

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/millrace-ml/millrace/launch"
)

// srun, scontrol and mpirunFake are fakes of launchers, with the options that the scripts use. mpirunFake is used for
// mpirun and for mpiexec.hydra. srun and mpirunFake start tasks in parallel, each with its rank in the environment.
// srun returns the greatest exit code, mpirun the exit code of the first failure, and Hydra the bitwise OR of all.
const srun = `#!/bin/bash
arbitrary=
while [[ $1 == --* ]]; do
  case $1 in --cpus*) echo "$1" >>"$TOLD" ;; --distribution=arbitrary) arbitrary=1 ;; esac
  shift
done
hosts=(a b c); hosts=("${hosts[@]:0:$NODES}"); n=$TASKS
[ -n "$arbitrary" ] && { mapfile -t hosts <"$SLURM_HOSTFILE"; n=${#hosts[@]}; printf '%s\n' "${hosts[@]}" >>"$TOLD"; }
list=$(printf '%s\n' "${hosts[@]}" | sort -u | paste -sd,) # sorted, whatever the file says
export SLURM_STEP_NODELIST=$list SLURM_STEP_NUM_NODES=$NODES SLURM_STEP_NUM_TASKS=$n SLURM_STEP_ID=0
export SLURM_DISTRIBUTION=${arbitrary:+arbitrary}
pids=()
for ((r = 0; r < n; r++)); do SLURM_PROCID=$r "$@" & pids+=($!); done
code=0
for p in "${pids[@]}"; do
  wait "$p"; c=$?
  [ $c -gt $code ] && code=$c
done
exit $code
`

const scontrol = `#!/bin/bash
case $1 in
show) printf '%s\n' a b c ;;
*) echo "$@" >>"$TOLD" ;;
esac
`

const mpirunFake = `#!/bin/bash
printf '%s\n' "$*" | sed 's/ bash -c.*//;q' >>"$TOLD"
while [ "$1" != bash ]; do [ "$1" = -np -o "$1" = -n ] && n=$2; shift; done
[ -n "$BROKEN" ] && exit "$BROKEN"
[ -n "$DEAF" ] && { trap '' TERM; "$@"; exec sleep 60; }
set -m # each process leads a group, which is signalled
pids=()
trap 'kill -TERM -- "${pids[@]/#/-}"' TERM
for ((r = 0; r < n; r++)); do
  OMPI_COMM_WORLD_RANK=$r OMPI_COMM_WORLD_SIZE=$n "$@" &
  pids+=($!)
done
code=0
for p in "${pids[@]}"; do
  while wait "$p"; c=$?; kill -0 "$p" 2>/dev/null; do :; done
  CODE
done
exit $code
`

// fake returns a folder of fake launchers, and the file to which they write their arguments.
func fake(t testing.TB) (path, told string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"srun": srun, "scontrol": scontrol,
		"mpirun":        strings.Replace(mpirunFake, "CODE", "[ $code = 0 ] && code=$c", 1),
		"mpiexec.hydra": strings.Replace(mpirunFake, "CODE", "code=$((code | c))", 1)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir + ":" + os.Getenv("PATH"), filepath.Join(dir, "told")
}

// script returns a Spec whose tasks run a shell command.
func script(tasks int, command string) Spec {
	return Spec{Name: "run", Command: []string{"bash", "-c", command}, Hosts: []Host{{Processes: tasks}}, Restarts: 2,
		Grace: 5 * time.Second}
}

// execute runs the script of a kind. It returns the exit code, the output, and the launchers' arguments.
func execute(t testing.TB, kind string, s Spec, env ...string) (code int, out, said string) {
	t.Helper()
	text, err := Write(kind, s)
	if err != nil {
		t.Fatal(err)
	}
	path, told := fake(t)
	c := exec.Command("bash", "-c", text)
	c.Dir = t.TempDir()
	c.Env = append([]string{"PATH=" + path, "TOLD=" + told, fmt.Sprint("TASKS=", s.processes()),
		fmt.Sprint("NODES=", len(s.Hosts)), "SLURM_JOB_ID=7",
		"SLURM_JOB_NODELIST=x", "HOME=/root"}, env...)
	printed, err := c.CombinedOutput()
	if _, failed := err.(*exec.ExitError); err != nil && !failed {
		t.Fatal(err)
	}
	heard, _ := os.ReadFile(told)
	if left, err := os.ReadDir(c.Dir); err != nil || len(left) > 0 {
		t.Errorf("%s leaves %v (%v)", kind, left, err)
	}
	return c.ProcessState.ExitCode(), string(printed), string(heard)
}

// The exit codes of processes decide whether the run starts again, whatever the launcher's own code is.
func TestExitCodesDecideOnAnotherStart(t *testing.T) {
	rank := map[string]string{"slurm": "$SLURM_PROCID", "mpirun": "$OMPI_COMM_WORLD_RANK"}
	for _, c := range []struct {
		name, command string // RANK is replaced by the launcher's variable for the rank
		again         bool
		code          int
	}{
		{"all well", "exit 0", false, 0},
		{"our error", "[ RANK = 1 ] && exit 1; sleep 0.1; exit 3", false, 1},
		{"bad input", "[ RANK = 1 ] && exit 2; sleep 0.1; exit 3", false, 2},
		{"an error behind a lost peer", "[ RANK = 1 ] && sleep 0.1 && exit 1; exit 3", false, 1},
		{"a lost peer", "[ RANK = 1 ] && kill -9 $$; sleep 0.1; exit 3", true, -1},
		{"all lost", "exit 3", true, 3},
		{"a crash", "[ RANK = 0 ] && exit 139; sleep 0.1; exit 3", false, 139},
	} {
		for kind := range rank {
			t.Run(kind+" "+c.name, func(t *testing.T) {
				t.Parallel()
				s := script(3, "echo start; "+strings.ReplaceAll(c.command, "RANK", rank[kind]))
				code, out, said := execute(t, kind, s, "SLURM_RESTART_COUNT=1")
				starts := strings.Count(out, "start") / 3
				again := strings.Contains(said, "requeue 7") || starts > 1
				if again != c.again || c.code >= 0 && code != c.code || c.code < 0 && code == 0 ||
					kind == "mpirun" && again && starts != 3 {
					t.Errorf("code %d, %d starts, told %q; want another start: %v\n%s", code, starts, said, c.again, out)
				}
			})
		}
	}
}

// A run starts again as often as asked, within its time limit, but not if the launcher itself has failed.
func TestRunsStartAgainAsOftenAsAsked(t *testing.T) {
	limited := script(2, "trap 'exit 143' TERM; echo start; while :; do sleep 0.02; done")
	limited.Grace, limited.Limit = time.Second, 1500*time.Millisecond
	if code, out, _ := execute(t, "mpirun", limited); code != 143 || strings.Count(out, "start") != 2 {
		t.Errorf("a run whose time is over: code %d, %q", code, out)
	}
	broken := script(2, "true")
	broken.MPI = "mpich"
	if code, out, said := execute(t, "mpirun", broken, "BROKEN=5"); code != 5 || strings.Count(said, "-n 2") != 1 {
		t.Errorf("a launcher that fails itself: code %d, told %q\n%s", code, said, out)
	}
	for count, again := range map[string]bool{"": true, "1": true, "2": false, "3": false} {
		if _, _, said := execute(t, "slurm", script(2, "exit 3"), "SLURM_RESTART_COUNT="+count); strings.Contains(said,
			"requeue") != again {
			t.Errorf("after %q starts told %q", count, said)
		}
	}
	once := script(2, "exit 3")
	once.Restarts = 0
	if _, _, said := execute(t, "slurm", once); strings.Contains(said, "requeue") {
		t.Errorf("without restarts told %q", said)
	}
	for _, mpi := range []string{OpenMPI, MPICH} {
		s := script(2, "echo start $MILLRACE_RESTART; [ $OMPI_COMM_WORLD_RANK = 0 ] && exit 137; exit 3") // Hydra returns 139
		s.MPI = mpi
		if _, out, _ := execute(t, "mpirun", s); out != strings.Repeat("start 0\n", 2)+strings.Repeat("start 1\n",
			2)+strings.Repeat("start 2\n", 2) {
			t.Errorf("%s: %q", mpi, out)
		}
	}
}

// If one process has failed and another one hangs, Hydra is told to end.
func TestHydraIsToldToEnd(t *testing.T) {
	defer func(was time.Duration) { notice = was }(notice)
	notice = time.Second
	s := script(2, `echo start; [ $OMPI_COMM_WORLD_RANK = 0 ] && exit 3; `+
		`trap 'exit 143' TERM; while :; do sleep 0.02; done`)
	s.MPI, s.Grace, s.Restarts = MPICH, time.Second, 1
	if code, out, _ := execute(t, "mpirun", s); code != 3 || strings.Count(out, "start") != 4 {
		t.Errorf("code %d\n%s", code, out)
	}
}

// A run does not start again after its time limit, even if mpirun does not end by itself at that limit.
func TestMpirunIsKilledBehindItsTime(t *testing.T) {
	defer func(was time.Duration) { graceOfMPI = was }(graceOfMPI)
	graceOfMPI = 0
	s := script(1, "echo start; sleep 1; exit 3")
	s.Grace, s.Limit, s.Restarts = time.Second, 2*time.Second, 1
	if code, out, _ := execute(t, "mpirun", s, "DEAF=1"); code != 3 || strings.Count(out, "start") != 1 {
		t.Errorf("code %d\n%s", code, out)
	}
}

// A signal reaches the command inside the shell, and the shell waits for its exit code.
func TestSignalsReachTheCommand(t *testing.T) {
	dir := t.TempDir()
	mark := filepath.Join(dir, "mark")
	c := exec.Command("bash", "-c", marked()+`exec bash -c "$marked" "$@"`, "sh", mark, "bash",
		"-c",
		`trap 'echo saving; sleep 0.2; echo saved; exit 1' TERM; echo ready; while :; do sleep 0.02; done`)
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	ready := make([]byte, 6)
	if _, err := out.Read(ready); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(-c.Process.Pid, syscall.SIGTERM); err != nil { // signals the whole group, as launchers do
		t.Fatal(err)
	}
	rest := make([]byte, 100)
	text := ""
	for {
		n, err := out.Read(rest)
		text += string(rest[:n])
		if err != nil {
			break
		}
	}
	_ = c.Wait()
	if _, err := os.Stat(mark + ".final"); err != nil || text != "saving\nsaved\n" || c.ProcessState.ExitCode() != 1 {
		t.Errorf("%q, code %d, mark %v", text, c.ProcessState.ExitCode(), err)
	}
}

// Stopping the mpirun script stops its processes, and there is no further start.
func TestTheScriptOfMpirunCanBeStopped(t *testing.T) {
	s := script(2, "trap 'echo saved; exit 143' TERM; echo ready; while :; do sleep 0.02; done")
	text, err := Write("mpirun", s)
	if err != nil {
		t.Fatal(err)
	}
	path, told := fake(t)
	c := exec.Command("bash", "-c", text)
	c.Dir, c.Env = t.TempDir(), []string{"PATH=" + path, "TOLD=" + told}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	seen := map[string]int{}
	for lines.Scan() {
		if seen[lines.Text()]++; lines.Text() == "ready" && seen["ready"] == 2 {
			if err := c.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
		}
	}
	_ = c.Wait()
	if code := c.ProcessState.ExitCode(); seen["ready"] != 2 || seen["saved"] != 2 || code != 143 {
		t.Errorf("code %d, lines %v", code, seen)
	}
}

// Slurm is given the host of each rank if it would otherwise sort hosts or divide processes differently. Every rank
// knows where rank 0 is.
func TestRanksAreWhereTheyShouldBe(t *testing.T) {
	for _, c := range []struct {
		hosts []Host
		want  string // content of the hostfile
		first string // the host of rank 0
	}{
		{[]Host{{Processes: 3}, {Processes: 1}, {Processes: 2}}, "a\na\na\nb\nc\nc\n", "a"}, // in scontrol's order
		{[]Host{{Name: "b", Processes: 3}, {Name: "a", Processes: 1}}, "b\nb\nb\na\n", "b"},
		{[]Host{{Name: "b", Processes: 1, Device: "fast"}, {Name: "a", Processes: 1, Device: "slow"}}, "b\na\n", "b"},
		{[]Host{{Processes: 2}, {Processes: 2}}, "", "a"},
	} {
		dir := t.TempDir()
		s := script(1, "env | grep ^[MS][A-Z]*_ >"+quoted(dir)+"/$SLURM_PROCID")
		s.Hosts, s.Cores = c.hosts, 2
		code, out, said := execute(t, "slurm", s)
		if code != 0 || said != "--cpus-per-task=2\n"+c.want {
			t.Errorf("%v: code %d, hosts %q\n%s", c.hosts, code, said, out)
		}
		for rank := range s.processes() {
			env, err := os.ReadFile(filepath.Join(dir, fmt.Sprint(rank)))
			if err != nil {
				t.Fatal(err)
			}
			w, err := launch.FromEnv(strings.Split(string(env), "\n"))
			if err != nil || w.Rank != rank || w.Size != s.processes() || w.Address != c.first {
				t.Errorf("%v: rank %d is %+v (%v)", c.hosts, rank, w, err)
			}
		}
	}
	s := script(1, "echo $MILLRACE_MASTER_ADDR")
	s.Hosts = []Host{{Name: "b", Processes: 1}, {Name: "a", Processes: 1}}
	if _, out, _ := execute(t, "slurm", s, "MILLRACE_MASTER_ADDR=b-fast"); out != "b-fast\nb-fast\n" {
		t.Errorf("a user's own address: %q", out)
	}
}

// A run that its user stops, or whose time limit is over, is not started again. If only one process is stopped, and
// another process fails because it has lost the stopped one, the run is started again.
func TestARunThatIsStoppedIsNotStartedAgain(t *testing.T) {
	rank := map[string]string{"slurm": "$SLURM_PROCID", "mpirun": "$OMPI_COMM_WORLD_RANK"}
	for command, c := range map[string]struct {
		again bool
		code  int
	}{
		"exit 143": {false, 143},
		"exit 130": {false, 130},
		"[ RANK = 0 ] && exit 143; sleep 0.1; exit 3": {true, 3},
	} {
		for kind := range rank {
			s := script(2, "echo start; "+strings.ReplaceAll(command, "RANK", rank[kind]))
			code, out, said := execute(t, kind, s)
			if again := strings.Contains(said, "requeue 7") || strings.Count(out, "start") > 2; again != c.again ||
				code != c.code {
				t.Errorf("%s, %s: code %d, another start: %v, told %q\n%s", kind, command, code, again, said, out)
			}
		}
	}
}

// The command that a script starts gets its arguments through the shells unchanged.
func TestCommandsAreQuoted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		args := rapid.SliceOfN(rapid.StringMatching(`[ -~é]{0,12}`), 1, 5).Draw(t, "args")
		s := Spec{Command: append([]string{"printf", `%s\n`}, args...)}
		out, err := exec.Command("bash", "-c", s.commandLine()).CombinedOutput()
		if want := strings.Join(args, "\n") + "\n"; err != nil || string(out) != want {
			t.Errorf("%q came as %q (%v)", args, out, err)
		}
	})
	odd := []string{`a'b`, `"$HOME"`, "`id`", `\`, "", "*", "a b", "é", "$(id)", "%", "!x"}
	for _, kind := range []string{"slurm", "mpirun"} {
		s := Spec{Name: "run", Command: append([]string{"printf", `<%s>\n`}, odd...), Hosts: []Host{{Processes: 1}}}
		if _, out, _ := execute(t, kind, s); out != "<"+strings.Join(odd, ">\n<")+">\n" {
			t.Errorf("%s: %q", kind, out)
		}
	}
}

// If hosts have unequal numbers of processes, the script requests whole hosts. Each of them must have cores for the
// largest number of processes.
func TestAnyHostHasCoresForTheMostProcesses(t *testing.T) {
	for cores, want := range map[int]string{0: "3", 4: "12"} {
		s := script(1, "true")
		s.Hosts, s.Cores = []Host{{Processes: 3}, {Processes: 1}}, cores
		text, err := Write("slurm", s)
		if err != nil || !strings.Contains(text, "\n#SBATCH --exclusive\n#SBATCH --mincpus="+want+"\n") {
			t.Errorf("%d cores each: %v\n%s", cores, err, text)
		}
	}
}

// TestOptions checks the options that the scripts give to launchers.
func TestOptions(t *testing.T) {
	s := script(4, "true")
	s.Hosts = []Host{{Name: "a", Processes: 4}, {Name: "b", Processes: 4}}
	s.Cores, s.MemoryBytes, s.Limit, s.Grace, s.TokenFile = 2, 3<<30+1, 26*time.Hour+30*time.Second, 2*time.Minute,
		"/home/u/a token"
	text, err := Write("slurm", s)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"--job-name=run", "--nodes=2", "--ntasks=8", "--ntasks-per-node=4", "--nodelist=a,b",
		"--cpus-per-task=2",
		"--mem=12292M", "--time=1-02:00:30", "--signal=TERM@120", "--requeue", "--open-mode=append"} {
		if !strings.Contains(text, "\n#SBATCH "+want+"\n") {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	if !strings.Contains(text, "\nexport MILLRACE_TOKEN_FILE='/home/u/a token'\n") ||
		!strings.Contains(text, " --wait=420 ") {
		t.Errorf("no token, or no wait, in\n%s", text)
	}
	s.Cores, s.MemoryBytes, s.Limit, s.TokenFile = 0, 0, 0, "/t"
	for mpi, want := range map[string]string{
		"": "-np 8 --bind-to none --host a:4,b:4 -x MILLRACE_MASTER_ADDR -x MILLRACE_RESTART -x MILLRACE_RUN_ID " +
			"-x MILLRACE_TLS -x MILLRACE_TLS_CERT -x MILLRACE_TOKEN_FILE\n",
		MPICH: "-n 8 -hosts a:4,b:4\n",
	} {
		s.MPI, s.TLS = mpi, true
		s.Command = []string{"bash", "-c", "echo $MILLRACE_MASTER_ADDR $MILLRACE_TOKEN_FILE"}
		_, out, said := execute(t, "mpirun", s, "MILLRACE_TLS_CERT=/c")
		if said != want || out != strings.Repeat("a /t\n", 8) {
			t.Errorf("%q is told %q; want %q\n%s", mpi, said, want, out)
		}
	}
}
