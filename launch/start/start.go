// Package start starts the processes of a run on this host, watches them, and starts them again.
//
// In: a command line, how many processes, and an environment. Out: what the processes print, each line behind
// its rank, and an Outcome: the exit code of the first cause, and whose it was. Each process is given its
// place in the environment (package launch), where rank 0 is met, on the loopback, and the token, which is
// made where the environment has none. Refused: no program, no processes, an environment that is in a world
// of several already.
//
// # The first cause
//
// Where a process ends with another code than 0, the rest have a while to notice by themselves. Then they are
// told to stop, and at last killed. The first cause is the first process that failed; one that says that it
// lost a peer comes behind one that says anything else at about the same time, and what ended because it was
// told to is none.
//
// # Signals
//
// The end of the context tells every process to stop, by the Signal of its cause or else by SIGTERM, and kills
// what has not ended in Spec.Grace. Processes lead groups of their own, so that a signal to the caller's
// group comes by way of the caller alone; what a process starts ends with it. Where the caller dies, its
// processes are told.
//
// # What whoever uses it must do
//
// End the context where the caller is told to stop; print Outcome where its Code is not 0.
package start

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/millrace-ml/millrace/internal/crash"
	"github.com/millrace-ml/millrace/launch"
)

// Spec is what to start.
type Spec struct {
	Program   string
	Args      []string
	Processes int
	Env       []string // what every process has, as os.Environ gives it
	Restarts  int      // most times that the run starts again
	// Notice is how long the rest have to end by themselves after the first failure; 0: 15 seconds.
	Notice time.Duration
	// Grace is how long they have after they are told to stop; 0: a minute.
	Grace time.Duration
	// Stdout and Stderr take what the processes print, whole lines at a time; nil takes nothing.
	Stdout, Stderr io.Writer
	// Again is told of every start but the first; nil: nobody is.
	Again func(start int, after Outcome)
}

// Outcome is how a run ended.
type Outcome struct {
	Code int    // exit code of the first cause
	Rank int    // whose it is, where Code is not 0
	How  string // in words
}

// signalled is the cause of a context that a signal has ended, which the processes are told to stop by.
type signalled interface {
	error
	Signal() syscall.Signal
}

// Times of a run.
const (
	defaultNotice = 15 * time.Second
	defaultGrace  = time.Minute
	together      = 500 * time.Millisecond // in which processes fail at about the same time
)

// maxProcesses is the most on one host.
const maxProcesses = 4096

// Run starts the processes, and again where their exit code says that it may help.
func Run(ctx context.Context, s Spec) (Outcome, error) {
	if err := s.complete(); err != nil {
		return Outcome{}, fmt.Errorf("start: %w", err)
	}
	for start := 0; ; start++ {
		o, err := s.once(ctx, start)
		if err != nil {
			return o, fmt.Errorf("start: %w", err)
		}
		if o.Code == 0 || start == s.Restarts || !launch.Retry(o.Code) || ctx.Err() != nil {
			return o, nil
		}
		if s.Again != nil {
			s.Again(start+1, o)
		}
	}
}

// complete fills in what was left out, and refuses what cannot be started.
func (s *Spec) complete() error {
	if s.Program == "" || s.Processes < 1 || s.Processes > maxProcesses {
		return fmt.Errorf("%d processes of program %q; give a program and 1 to %d processes", s.Processes, s.Program,
			maxProcesses)
	}
	w, err := launch.FromEnv(s.Env)
	if err != nil {
		return err
	}
	if w.Size > 1 {
		return fmt.Errorf("this process is %v, and would start %d in each of those; start %d there instead", w, s.Processes,
			w.Size*s.Processes)
	}
	if s.Notice <= 0 {
		s.Notice = defaultNotice
	}
	if s.Grace <= 0 {
		s.Grace = defaultGrace
	}
	if s.Stdout == nil {
		s.Stdout = io.Discard
	}
	if s.Stderr == nil {
		s.Stderr = io.Discard
	}
	return nil
}

// own are the variables that a run sets; what is there of them is not handed on.
var own = []string{launch.RankVar, launch.SizeVar, launch.LocalRankVar, launch.LocalSizeVar, launch.NodeVar,
	launch.NodesVar, launch.MasterAddrVar, launch.MasterPortVar,
	launch.RunIDVar, launch.RestartVar, launch.LauncherVar}

// environment is what each process has, its rank apart.
func (s *Spec) environment(start int) ([]string, error) {
	port, err := freePort()
	if err != nil {
		return nil, fmt.Errorf("no port is free on the loopback: %w", err)
	}
	token := false
	var env []string
	for _, line := range s.Env {
		name, value, _ := strings.Cut(line, "=")
		token = token || (name == launch.TokenVar || name == launch.TokenFileVar) && value != ""
		if !slices.Contains(own, name) {
			env = append(env, line)
		}
	}
	if !token {
		env = append(env, launch.TokenVar+"="+random(32))
	}
	set := func(name string, value any) { env = append(env, fmt.Sprint(name, "=", value)) }
	set(launch.SizeVar, s.Processes)
	set(launch.LocalSizeVar, s.Processes)
	set(launch.NodeVar, 0)
	set(launch.NodesVar, 1)
	set(launch.MasterAddrVar, "127.0.0.1")
	set(launch.MasterPortVar, port)
	set(launch.RunIDVar, random(8))
	set(launch.RestartVar, start)
	set(launch.LauncherVar, launch.Millrace)
	return env, nil
}

// random is so many random bytes as text.
func random(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // it never fails
	return hex.EncodeToString(b)
}

// freePort is a port of the loopback that nobody listens on now.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err = errors.Join(err, l.Close()); err != nil {
		return 0, err
	}
	return strconv.Atoi(port)
}

// process is one of a run.
type process struct {
	rank  int
	cmd   *exec.Cmd
	ended chan struct{}
}

// once starts the processes and waits until all have ended.
func (s *Spec) once(ctx context.Context, start int) (Outcome, error) {
	env, err := s.environment(start)
	if err != nil {
		return Outcome{}, err
	}
	g := &gang{Spec: s, ends: make(chan *process, s.Processes)}
	var printing sync.Mutex
	for rank := range s.Processes {
		p := &process{rank: rank, cmd: exec.Command(s.Program, s.Args...), ended: make(chan struct{})}
		p.cmd.Env = append(env[:len(env):len(env)], fmt.Sprint(launch.RankVar, "=", rank),
			fmt.Sprint(launch.LocalRankVar, "=", rank))
		p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
		p.cmd.WaitDelay = together // what left the group may hold a pipe open
		out, errs := g.lines(s.Stdout, rank, &printing), g.lines(s.Stderr, rank, &printing)
		p.cmd.Stdout, p.cmd.Stderr = out, errs
		started := make(chan error)
		crash.Go(func() {
			runtime.LockOSThread() // the thread's end is what Pdeathsig goes by
			err := p.cmd.Start()
			started <- err
			if err != nil {
				return
			}
			_ = p.cmd.Wait() // its state says how it ended
			out.flush()
			errs.flush()
			close(p.ended)
			g.ends <- p
		})
		if err := <-started; err != nil {
			g.kill(syscall.SIGKILL)
			g.rest()
			return Outcome{}, fmt.Errorf("rank %d: %w", rank, err)
		}
		g.all = append(g.all, p)
	}
	return g.watch(ctx), nil
}

// code is a process's exit code, as a shell has it.
func (p *process) code() int {
	state := p.cmd.ProcessState
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return state.ExitCode()
}

// how says in words how a process ended.
func (p *process) how() string {
	state := p.cmd.ProcessState
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return fmt.Sprintf("rank %d was ended by signal %d (%v)", p.rank, int(status.Signal()), status.Signal())
	}
	return fmt.Sprintf("rank %d ended with exit code %d", p.rank, state.ExitCode())
}
