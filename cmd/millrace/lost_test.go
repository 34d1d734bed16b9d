package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/cmd/internal/clitest"
	"github.com/millrace-ml/millrace/engine/torch"
	"github.com/millrace-ml/millrace/run/checkpoint"
)

// long is the command line of a training of three workers that lasts until it is disturbed. Its output folder is
// appended.
const long = "train --model mlp --data digits --profile mlp.json --batch 8 --micro-batch 4 --stages 3 " +
	"--eval-rows 8 --steps 1000000 --save-every 20 --keep 3 --out "

// native is the training of `long` with two replicas. Gloo sums their gradients. The function replicas writes their
// plan.
var native = strings.Replace(long, "--stages 3", "--plan replicas.json --collectives native", 1)

// needGloo skips a test if the native library was built without Gloo.
func needGloo(t *testing.T) {
	t.Helper()
	e, err := torch.Open()
	if err == nil {
		err = e.CanGloo()
	}
	if err != nil {
		t.Skip(err)
	}
}

// gang is a run in several processes that has been started.
type gang struct {
	t   *testing.T
	dir string
	c   *exec.Cmd
	out said
	end chan struct{} // closed when the launcher has ended
}

// said is the output of a run so far.
type said struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *said) Write(text []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(text)
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// trains starts a run with additional variables. The last word of its command is its folder.
func trains(t *testing.T, p *clitest.Program, line string, env ...string) *gang {
	t.Helper()
	words := strings.Fields(line)
	g := &gang{t: t, dir: filepath.Join(p.Dir, words[len(words)-1]), c: p.Command(t, words),
		end: make(chan struct{})}
	g.c.Stdout, g.c.Stderr, g.c.Env = &g.out, &g.out, append(g.c.Env, env...)
	g.c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // a test that times out ends without Cleanup
	begun := make(chan error)
	go func() {
		runtime.LockOSThread() // Pdeathsig is sent when the starting thread ends
		begun <- g.c.Start()
		_ = g.c.Wait() // the exit code is the result
		close(g.end)
	}()
	if err := <-begun; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // kills what a failed test has left
		for _, pid := range g.processes() {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		_ = g.c.Process.Kill() // the process may have ended
		<-g.end
	})
	return g
}

// state reports whether a process runs and is not a zombie. It also returns its parent and its start time.
func state(pid int) (runs bool, parent, since string) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)) // an ended process has no such file
	fields := strings.Fields(string(text))
	if len(fields) < 22 || fields[2] == "Z" {
		return false, "", ""
	}
	return true, fields[3], fields[21]
}

// childrenOf returns the running children of a process, each with its environment.
func childrenOf(process int) map[int]string {
	all := map[int]string{}
	paths, _ := filepath.Glob("/proc/[0-9]*") // the pattern is valid
	for _, path := range paths {
		pid, _ := strconv.Atoi(filepath.Base(path))
		if runs, parent, _ := state(pid); runs && parent == strconv.Itoa(process) {
			env, _ := os.ReadFile(filepath.Join(path, "environ"))
			all[pid] = string(env)
		}
	}
	return all
}

// processes returns the running processes, by rank.
func (g *gang) processes() map[int]int {
	all := map[int]int{}
	for pid, env := range childrenOf(g.c.Process.Pid) {
		for line := range strings.SplitSeq(env, "\x00") {
			var rank int
			if _, err := fmt.Sscanf(line, "MILLRACE_RANK=%d", &rank); err == nil {
				all[rank] = pid
			}
		}
	}
	return all
}

// until waits until the function `so` returns true.
func (g *gang) until(what string, so func() bool) {
	g.t.Helper()
	late := time.After(time.Minute)
	for !so() {
		select {
		case <-late:
			g.t.Fatalf("it takes too long until %s:\n%s", what, &g.out)
		case <-g.end:
			if !so() {
				g.t.Fatalf("the run has ended before %s:\n%s", what, &g.out)
			}
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// saved waits until the run has saved after this many steps, or more.
func (g *gang) saved(steps int) {
	g.t.Helper()
	g.until(fmt.Sprintf("%d steps are saved", steps), func() bool {
		later, err := checkpoint.Later(filepath.Join(g.dir, "checkpoints"), steps-1)
		return err == nil && len(later) > 0
	})
}

// hit sends a signal to a process and waits until the other processes have ended. Then it lets a paused process
// continue.
func (g *gang) hit(rank int, signal syscall.Signal) (took time.Duration) {
	g.t.Helper()
	pid := g.pid(rank)
	began := time.Now()
	if err := syscall.Kill(pid, signal); err != nil {
		g.t.Fatalf("process %d: %v", rank, err)
	}
	g.until("the others have ended", func() bool {
		left := g.processes()
		delete(left, rank)
		return len(left) == 0
	})
	took = time.Since(began)
	_ = syscall.Kill(pid, syscall.SIGCONT) // the process may have ended
	return took
}

// pid returns the process of a rank. All three must run: a signal to process 0 would go to the tests themselves.
func (g *gang) pid(rank int) int {
	g.t.Helper()
	all := g.processes()
	if len(all) != 3 || all[rank] <= 1 {
		g.t.Fatalf("process %d of %v", rank, all)
	}
	return all[rank]
}

// ended waits for the end of the run, and returns its exit code and output.
func (g *gang) ended() (code int, said string) {
	g.t.Helper()
	<-g.end
	return g.c.ProcessState.ExitCode(), g.out.String()
}

// errorsOf returns the error lines of processes, by rank.
func errorsOf(said string) map[int]string {
	all := map[int]string{}
	for line := range strings.Lines(said) {
		var rank int
		if _, err := fmt.Sscanf(line, "[%d] millrace: ", &rank); err == nil {
			all[rank] = line
		}
	}
	return all
}

// If a process is killed or paused, all other processes end within ten seconds and name it. The run's folder names it
// too, and the saved checkpoints are whole.
func TestALostProcessEndsTheRun(t *testing.T) {
	p := profiled(t)
	replicas(t, p, "--batch", "8", "--micro-batch", "4")
	for _, c := range []struct {
		name   string
		rank   int
		signal syscall.Signal
		code   int
		line   string
	}{
		{"follower-killed", 1, syscall.SIGKILL, 137, long}, {"follower-stopped", 2, syscall.SIGSTOP, 3, long},
		{"leader-killed", 0, syscall.SIGKILL, 137, long}, {"leader-stopped", 0, syscall.SIGSTOP, 3, long},
		{"replica-killed", 1, syscall.SIGKILL, 137, native}, {"first-replica-killed", 0, syscall.SIGKILL, 137, native},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if c.line == native {
				needGloo(t)
			}
			g := trains(t, p, "launch -n 3 -- "+c.line+c.name)
			g.saved(40)
			if took := g.hit(c.rank, c.signal); took > 10*time.Second {
				t.Errorf("the others took %v to end", took)
			}
			code, said := g.ended()
			if code != c.code {
				t.Errorf("the run ended with %d; want %d", code, c.code)
			}
			names := fmt.Sprintf("rank %d on host ", c.rank)
			for rank := range 3 {
				if line := errorsOf(said)[rank]; rank != c.rank && !strings.Contains(line, names) {
					t.Errorf("process %d says %q; want something about %q", rank, line, names)
				}
			}
			var left struct {
				Rank     int
				ExitCode int `json:"exit_code"`
				Retry    bool
				Lost     struct {
					Rank int
					Name string
				}
				Checkpoint string
			}
			text, err := os.ReadFile(filepath.Join(g.dir, "error.json"))
			if err == nil {
				err = json.Unmarshal(text, &left)
			}
			if err != nil || left.Lost.Rank != c.rank || !strings.Contains(left.Lost.Name, strings.TrimSpace(names)) ||
				left.ExitCode != 3 || !left.Retry || c.rank != 0 && left.Rank != 0 || c.rank == 0 && left.Rank == 0 {
				t.Errorf("error.json says %s (%v)", text, err)
			}
			whole, err := checkpoint.Open(filepath.Join(g.dir, "checkpoints"))
			if err != nil {
				t.Fatal(err)
			}
			defer whole.Close()
			if filepath.Base(left.Checkpoint) != filepath.Base(whole.Path) {
				t.Errorf("the last checkpoint is %s; error.json says %s", whole.Path, left.Checkpoint)
			}
			if t.Failed() {
				t.Log(said)
			}
		})
	}
}

// A run that is started again resumes from its last whole checkpoint, even with fewer processes and another plan. It
// ends with the same weights as an undisturbed run.
func TestARunGoesOnWithoutALostProcess(t *testing.T) {
	p := profiled(t)
	short := strings.Replace(long, "1000000", "200", 1)
	if code, said := started(t, p, strings.Replace(short, "--stages 3", "--stages 3 --workers 3", 1)+"whole"); code != 0 {
		t.Fatal(said)
	}
	t.Run("again", func(t *testing.T) {
		t.Parallel()
		g := trains(t, p, "launch -n 3 --restarts 2 -- "+short+"again")
		for start := range 2 {
			g.until("all have started", func() bool { return len(g.processes()) == 3 })
			g.saved(20 + 60*start)
			if err := syscall.Kill(g.pid(start), syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			g.until("they have started again", func() bool {
				return strings.Contains(g.out.String(), fmt.Sprintf("start %d of at most 3", start+2))
			})
		}
		code, said := g.ended()
		if _, err := os.Stat(filepath.Join(g.dir, "error.json")); code != 0 || err == nil ||
			!strings.Contains(said, "goes on from again/checkpoints/step-") {
			t.Errorf("code %d, error.json: %v\n%s", code, err, said)
		}
		sameTensors(t, p, "whole/checkpoints", "again/checkpoints")
	})
	t.Run("fewer", func(t *testing.T) {
		t.Parallel()
		g := trains(t, p, "launch -n 3 -- "+short+"fewer")
		g.saved(20)
		g.hit(2, syscall.SIGKILL)
		if code, said := g.ended(); code != 137 {
			t.Errorf("code %d\n%s", code, said)
		}
		g = trains(t, p, "launch -n 2 -- "+strings.Replace(short, "--stages 3", "--stages 2 --resume fewer/checkpoints", 1)+
			"fewer")
		if code, said := g.ended(); code != 0 {
			t.Errorf("code %d\n%s", code, said)
		}
		sameTensors(t, p, "whole/checkpoints", "fewer/checkpoints")
	})
}

// An error of the run itself is also written to the run's folder. It is marked as an error after which a restart does
// not help. The file is removed when a run begins, and a successful run leaves none.
func TestAnErrorIsInTheRunsFolder(t *testing.T) {
	t.Parallel()
	p := profiled(t)
	line := "train --model mlp --data digits --profile mlp.json --batch 8 --micro-batch 4 --stages 2 --workers 2 " +
		"--eval-rows 8 --steps 6 --save-every 2 --overwrite --out out"
	code, said := started(t, p, line+" --optimizer sgd --lr 1e20")
	var left struct {
		Cause    string
		ExitCode int `json:"exit_code"`
		Retry    *bool
		Steps    *int
	}
	path := filepath.Join(p.Dir, "out", "error.json")
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, &left)
	}
	if err != nil || code != 1 || left.ExitCode != 1 || left.Retry == nil || *left.Retry || left.Steps == nil ||
		!strings.Contains(left.Cause, "is not finite") && !strings.Contains(left.Cause, "NaN") &&
			!strings.Contains(left.Cause, "Inf") {
		t.Errorf("code %d; error.json says %s (%v)\n%s", code, text, err, said)
	}
	reason, err := os.Stat(path)
	page, errPage := os.Stat(filepath.Join(p.Dir, "out", "report.html"))
	if err != nil || errPage != nil || reason.ModTime().After(page.ModTime()) {
		t.Errorf("the reason waits for the report: %v, %v", err, errPage)
	}
	// A start of several processes that is refused before its run begins does not change the folder.
	code, said = started(t, p, "launch -n 2 -- "+strings.Replace(line, "--workers 2", "--memory-limit 1KiB", 1))
	if after, err := os.ReadFile(path); code != 2 || !bytes.Equal(after, text) {
		t.Errorf("code %d; error.json says %s (%v)\n%s", code, after, err, said)
	}
	if code, said = started(t, p, line); code != 0 {
		t.Fatal(said)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("a run that has ended well leaves error.json")
	}
}
