package start

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	ossignal "os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/millrace-ml/millrace/launch"
)

// asLauncher is an environment variable with a script that the test binary starts in two processes.
const asLauncher = "MILLRACE_TEST_LAUNCHES"

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == asAgent {
		ossignal.Ignore(syscall.SIGPIPE)
		if err := Serve(context.Background(), os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if len(os.Args) > 1 && os.Args[1] == "-script" { // run as the program on another host
		err := syscall.Exec("/bin/sh", append([]string{"/bin/sh"}, os.Args[2:]...), os.Environ())
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if script := os.Getenv(asLauncher); script != "" {
		_, _ = Run(context.Background(), Spec{Program: "/bin/sh", Args: []string{"-c", script}, Hosts: []Host{{Processes: 2}},
			Stdout: os.Stdout})
		return
	}
	goleak.VerifyTestMain(m)
}

// If the launcher itself is killed, its processes are told to stop.
func TestAKilledLauncherLeavesNothing(t *testing.T) {
	c := exec.Command(os.Args[0])
	c.Env = []string{"PATH=" + os.Getenv("PATH"), asLauncher + "=echo $$; while :; do sleep 0.02; done"}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	var pids []int
	for lines := bufio.NewScanner(out); len(pids) < 2 && lines.Scan(); {
		_, number, _ := strings.Cut(lines.Text(), " ")
		pid, err := strconv.Atoi(number)
		if err != nil {
			t.Fatalf("%q: %v", lines.Text(), err)
		}
		pids = append(pids, pid)
	}
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = c.Wait()
	for _, pid := range pids {
		if !soon(func() bool { return dead(pid) }) {
			t.Errorf("process %d goes on without its launcher", pid)
		}
	}
	if len(pids) != 2 {
		t.Errorf("processes %v", pids)
	}
}

// soon waits a short time for a condition.
func soon(so func() bool) bool {
	for range 200 {
		if so() {
			return true
		}
		time.Sleep(10 * time.Millisecond)
	}
	return false
}

// shell returns a Spec for a script in n processes; their output goes to `out`.
func shell(t *testing.T, n int, script string) (s Spec, out *bytes.Buffer) {
	t.Helper()
	out = new(bytes.Buffer)
	return Spec{Program: "/bin/sh", Args: []string{"-c", script}, Hosts: []Host{{Processes: n}}, Env: []string{"PATH=" +
		os.Getenv("PATH"), "HOME=/root"},
		Notice: 5 * time.Second, Grace: 5 * time.Second, Stdout: out, Stderr: out}, out
}

// A process's environment contains its place in the run.
func TestEveryProcessKnowsItsPlace(t *testing.T) {
	s, out := shell(t, 3, `env | grep ^MILLRACE_ | sed "s/^/$MILLRACE_RANK:/"`)
	s.Env = append(s.Env, "MILLRACE_NATIVE=/n.so", "SLURM_JOB_ID=7", "MILLRACE_RUN_ID=old")
	o, err := Run(t.Context(), s)
	if err != nil || o.Code != 0 {
		t.Fatal(o, err)
	}
	env := map[string][]string{}
	for line := range strings.Lines(out.String()) {
		prefix, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		rank, variable, _ := strings.Cut(rest, ":")
		if prefix != "["+rank+"]" {
			t.Errorf("%q is not behind its rank", line)
		}
		env[rank] = append(env[rank], variable)
	}
	ids := map[string]bool{}
	for rank := range 3 {
		lines := env[fmt.Sprint(rank)]
		w, err := launch.FromEnv(append(lines, "SLURM_JOB_ID=7"))
		if err != nil {
			t.Fatal(err)
		}
		ids[fmt.Sprint(w.RunID, w.Meet())] = true
		if w.Rank != rank || w.Size != 3 || w.LocalRank != rank || w.LocalSize != 3 || !w.OnOneHost() || w.Restart != 0 ||
			w.Address != "127.0.0.1" || w.Port == 0 || w.Launcher != launch.Millrace || w.Token.Variable != launch.TokenVar {
			t.Errorf("rank %d is in %+v", rank, w)
		}
		if token, err := w.Token.Read(lines); err != nil || len(token) != 64 {
			t.Errorf("a token of %d bytes (%v)", len(token), err)
		}
		if !slices.Contains(lines, "MILLRACE_NATIVE=/n.so") || slices.Contains(lines, "MILLRACE_RUN_ID=old") {
			t.Errorf("rank %d has %q", rank, lines)
		}
	}
	if len(ids) != 1 {
		t.Errorf("the ranks are in runs %v", ids)
	}
}

func TestTheTokenIsNoArgument(t *testing.T) {
	s, out := shell(t, 1, `args=$(tr '\0' ' ' </proc/$$/cmdline)
case $args in *"$MILLRACE_TOKEN"*) exit 5;; esac`)
	if o, err := Run(t.Context(), s); err != nil || o.Code != 0 {
		t.Errorf("%+v, %v: %s", o, err, out)
	}
}

// The run's code is that of the first cause, whatever codes other processes end with.
func TestTheFirstCauseCounts(t *testing.T) {
	for _, c := range []struct {
		name, script string
		code, rank   int
		how          string
	}{
		{"all well", `exit 0`, 0, 0, ""},
		{"an error", `[ $MILLRACE_RANK = 2 ] && exit 1; sleep 0.2; exit 3`, 1, 2, "rank 2 ended with exit code 1"},
		{"lost before it failed", `[ $MILLRACE_RANK = 2 ] && sleep 0.2 && exit 2; exit 3`, 2, 2,
			"rank 2 ended with exit code 2"},
		{"killed", `[ $MILLRACE_RANK = 1 ] && kill -9 $$; sleep 0.2; exit 3`, 137, 1,
			"rank 1 was ended by signal 9 (killed)"},
		{"stopped before it failed", `[ $MILLRACE_RANK = 2 ] && sleep 0.2 && exit 1; exit 143`, 1, 2,
			"rank 2 ended with exit code 1"},
		{"stopped as others are lost", `[ $MILLRACE_RANK = 2 ] && sleep 0.2 && exit 3; exit 143`, 3, 2,
			"rank 2 ended with exit code 3"},
		{"lost alone", `[ $MILLRACE_RANK = 0 ] && exit 3; exit 0`, 3, 0, "rank 0 ended with exit code 3"},
	} {
		s, out := shell(t, 3, c.script)
		o, err := Run(t.Context(), s)
		if err != nil || o.Code != c.code || c.code != 0 && o.Rank != c.rank || o.How != c.how {
			t.Errorf("%s: %+v, %v; want code %d of rank %d, %q\n%s", c.name, o, err, c.code, c.rank, c.how, out)
		}
	}
}

// Nothing is left running, neither a process that ignores signals nor its children.
func TestNothingIsLeftRunning(t *testing.T) {
	dir := t.TempDir()
	s, out := shell(t, 3, fmt.Sprintf(`cd %s; r=$MILLRACE_RANK
[ $r = 1 ] && { while [ ! -e 0 ] || [ ! -e 2 ]; do sleep 0.01; done; exit 1; }
trap '' TERM; sleep 1000 & echo $! >tmp$r; mv tmp$r $r; while :; do sleep 1; done`, dir))
	s.Notice, s.Grace = 50*time.Millisecond, 100*time.Millisecond
	o, err := Run(t.Context(), s)
	if err != nil || o.Code != 1 || o.Rank != 1 {
		t.Errorf("%+v, %v: %s", o, err, out)
	}
	for _, rank := range []string{"0", "2"} {
		text, err := os.ReadFile(filepath.Join(dir, rank))
		if err != nil {
			t.Fatal(err)
		}
		pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			t.Fatal(err)
		}
		if !soon(func() bool { return dead(pid) }) {
			t.Errorf("what rank %s has started is still there", rank)
		}
	}
}

func TestAStoppedProcessIsEnded(t *testing.T) {
	s, out := shell(t, 2, `[ $MILLRACE_RANK = 1 ] && kill -STOP $$; exit 3`)
	s.Notice, s.Grace = 100*time.Millisecond, time.Minute
	began := time.Now()
	o, err := Run(t.Context(), s)
	if took := time.Since(began); err != nil || o.Code != 3 || o.Rank != 0 || took > 10*time.Second {
		t.Errorf("%+v, %v, behind %v: %s", o, err, took, out)
	}
}

// dead says whether a process has ended, even if nobody has waited for it yet.
func dead(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	_, behind, _ := strings.Cut(string(text), ") ")
	return strings.HasPrefix(behind, "Z") || strings.HasPrefix(behind, "X")
}

// A signal reaches all processes. Even if they end with code 0, the run's code says that the run was stopped.
func TestASignalStopsAll(t *testing.T) {
	for signal, code := range map[syscall.Signal]int{syscall.SIGTERM: 143, syscall.SIGINT: 130, syscall.SIGHUP: 129} {
		if ossignal.Ignored(signal) {
			continue // as under nohup: a shell cannot trap a signal that was ignored when it started
		}
		s, out := shell(t, 2, `trap 'echo saved; exit 0' TERM INT HUP; echo ready; while :; do sleep 0.02; done`)
		ctx, cancel := context.WithCancelCause(t.Context())
		s.Stdout = writer(func(text []byte) (int, error) {
			n, err := out.Write(text)
			if strings.Count(out.String(), "ready") == 2 {
				cancel(bySignal(signal))
			}
			return n, err
		})
		s.Restarts = 3
		s.Again = func(int, Outcome) { t.Error("it was started again") }
		o, err := Run(ctx, s)
		if err != nil || o.Code != code || strings.Count(out.String(), "saved") != 2 {
			t.Errorf("%v: %+v, %v: %s", signal, o, err, out)
		}
		cancel(nil)
	}
}

// If a process fails while all are told to stop, its error is the outcome.
func TestAnErrorWhileStoppingCounts(t *testing.T) {
	s, out := shell(t, 2, `trap 'exit 1' TERM; echo ready; while :; do sleep 0.02; done`)
	ctx, cancel := context.WithCancel(t.Context())
	s.Stdout = writer(func(text []byte) (int, error) {
		n, err := out.Write(text)
		if strings.Count(out.String(), "ready") == 2 {
			cancel()
		}
		return n, err
	})
	if o, err := Run(ctx, s); err != nil || o.Code != 1 {
		t.Errorf("%+v, %v: %s", o, err, out)
	}
}

// bySignal is the cause of a context that was ended by a signal.
type bySignal syscall.Signal

func (s bySignal) Error() string          { return "stopped" }
func (s bySignal) Signal() syscall.Signal { return syscall.Signal(s) }

type writer func([]byte) (int, error)

func (w writer) Write(text []byte) (int, error) { return w(text) }

// Runs start again after a lost peer, but not after an error, and not more often than asked.
func TestRestarts(t *testing.T) {
	for _, c := range []struct {
		name, script string
		restarts     int
		starts, code int
	}{
		{"until it goes", `[ $MILLRACE_RESTART = 2 ] && exit 0; kill -9 $$`, 5, 3, 0},
		{"as often as asked", `exit 3`, 2, 3, 3},
		{"not after an error", `exit 1`, 5, 1, 1},
		{"not after bad input", `exit 2`, 5, 1, 2},
		{"a crash is an error", `kill -SEGV $$`, 5, 1, 139},
		{"another error later", `[ $MILLRACE_RESTART = 1 ] && exit 1; exit 3`, 5, 2, 1},
	} {
		s, out := shell(t, 2, `echo start; `+c.script)
		s.Restarts = c.restarts
		told := 0
		s.Again = func(start int, after Outcome) {
			if told++; start != told || !launch.Retry(after.Code) {
				t.Errorf("%s: start %d after %+v", c.name, start, after)
			}
		}
		o, err := Run(t.Context(), s)
		if starts := strings.Count(out.String(), "start") / 2; err != nil || o.Code != c.code || starts != c.starts ||
			told != c.starts-1 {
			t.Errorf("%s: %d starts, %d told, %+v, %v; want %d and code %d", c.name, starts, told, o, err, c.starts, c.code)
		}
	}
}

func TestWhatCannotBeStarted(t *testing.T) {
	for want, s := range map[string]Spec{
		"0 processes of program": {Program: "/bin/true"},
		`of program ""`:          {Hosts: []Host{{Processes: 2}}},
		"5000 processes":         {Program: "/bin/true", Hosts: []Host{{Processes: 5000}}},
		"no/such/program":        {Program: "/no/such/program", Hosts: []Host{{Processes: 2}}},
		"start 8 there instead": {Program: "/bin/true", Hosts: []Host{{Processes: 2}}, Env: []string{"RANK=0", "WORLD_SIZE=4",
			"MASTER_ADDR=a"}},
		"RANK=x; it is a whole nu": {Program: "/bin/true", Hosts: []Host{{Processes: 2}},
			Env: []string{"RANK=x", "WORLD_SIZE=4"}},
	} {
		if _, err := Run(t.Context(), s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want it to say %q", err, want)
		}
	}
}

// Lines of different processes do not mix, and lines that are too long are divided. A complete line of JSON is passed
// on without the process's prefix.
func TestLinesAreWhole(t *testing.T) {
	s, out := shell(t, 4, `for i in 1 2 3 4 5 6 7 8 9; do printf a; printf 'b\n'; done; printf end`)
	if o, err := Run(t.Context(), s); err != nil || o.Code != 0 {
		t.Fatal(o, err)
	}
	counts := map[string]int{}
	for line := range strings.Lines(out.String()) {
		counts[line]++
	}
	for rank := range 4 {
		if counts[fmt.Sprintf("[%d] ab\n", rank)] != 9 || counts[fmt.Sprintf("[%d] end\n", rank)] != 1 {
			t.Fatalf("%v", counts)
		}
	}
	s, out = shell(t, 2, `echo '{"rank": 0}'; echo '{"cut'`)
	if o, err := Run(t.Context(), s); err != nil || o.Code != 0 || strings.Count(out.String(), `{"rank": 0}`) != 2 ||
		strings.Contains(out.String(), `] {"rank"`) || !strings.Contains(out.String(), `[1] {"cut`) {
		t.Errorf("%+v, %v: %s", o, err, out)
	}
	s, out = shell(t, 1, `head -c 200000 /dev/zero | tr '\0' x`)
	if o, err := Run(t.Context(), s); err != nil || o.Code != 0 {
		t.Fatal(o, err)
	}
	if got := strings.Count(out.String(), "x"); got != 200_000 || strings.Count(out.String(), "\n") != 4 {
		t.Errorf("%d bytes in %d lines", got, strings.Count(out.String(), "\n"))
	}
}

// The last lines of processes are passed on, however slowly they are read.
func TestTheLastOutputIsPrinted(t *testing.T) {
	const script = `head -c 60000 /dev/zero | tr '\0' x; echo; echo end`
	slowly := func(s *Spec) *strings.Builder {
		var out strings.Builder
		slow := time.Second
		s.Stdout = writer(func(text []byte) (int, error) {
			time.Sleep(slow)
			slow = 0
			return out.Write(text)
		})
		return &out
	}
	s, _ := shell(t, 1, script)
	out := slowly(&s)
	if o, err := Run(t.Context(), s); err != nil || o.Code != 0 || !strings.HasSuffix(out.String(), "x\nend\n") {
		t.Errorf("here: %+v, %v, %d bytes", o, err, out.Len())
	}
	s, _, _ = overSSH(t, "a", script)
	out = slowly(&s)
	if o, err := runOver(t.Context(), t, s); err != nil || o.Code != 0 || !strings.HasSuffix(out.String(), "x\nend\n") {
		t.Errorf("on another host: %+v, %v, %d bytes", o, err, out.Len())
	}
}

// Run does not wait for processes that a rank leaves behind, whether they print or not. It stops waiting when the rank
// itself ends.
func TestNobodyWaitsForWhatIsLeftBehind(t *testing.T) {
	for _, leaves := range []string{"exec sleep 20", "while echo on; do sleep 0.05; done"} {
		there := filepath.Join(t.TempDir(), "there")
		s, out := shell(t, 2, `[ $MILLRACE_RANK = 1 ] || exec sleep 60
setsid sh -c 'touch `+there+`; `+leaves+`' & until [ -e `+there+` ]; do sleep 0.01; done; echo end; exit 1`)
		s.Notice, s.Grace = 100*time.Millisecond, 10*time.Second
		began := time.Now()
		if o, err := Run(t.Context(), s); err != nil || o.Code != 1 || o.Rank != 1 ||
			!strings.Contains(out.String(), "end\n") || time.Since(began) > 15*time.Second {
			t.Errorf("%s: %+v, %v, behind %v: %s", leaves, o, err, time.Since(began), out)
		}
	}
}
