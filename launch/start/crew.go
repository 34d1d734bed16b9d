package start

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/millrace-ml/millrace/internal/crash"
	"github.com/millrace-ml/millrace/launch"
)

// crew runs the processes of one host.
type crew interface {
	// start starts the processes. If it fails, the processes that it has already started go on until they get a signal.
	start(o order) error
	// signal sends a signal to every process that has not ended, and to its children.
	signal(syscall.Signal)
	// leave is called when the processes have ended. It returns when everything else that belongs to the crew has ended
	// too.
	leave() error
}

// order says what a crew must start.
type order struct {
	Program string
	Args    []string
	Dir     string   // "": the current folder
	Env     []string // lines NAME=value
	Host    string   // its name in messages; "" if there is only one host
	Ranks   []int
}

// end describes how a process ended.
type end struct {
	Rank, Code int    // Code is the exit code as a shell reports it
	How        string // in words
	Lost       bool   `json:",omitempty"` // the host was lost, and the process with it
}

// heard receives what processes print and how they end. Calls of `says` may overlap, even for one rank. The call of
// `ended` is the last call for a rank.
type heard interface {
	says(rank int, errs bool, line []byte) error
	ended(end)
}

// local runs the processes of this host.
type local struct {
	to      heard
	running sync.WaitGroup

	mu  sync.Mutex
	all map[int]*exec.Cmd // by rank: processes that have not ended
}

func newLocal(to heard) *local { return &local{to: to, all: map[int]*exec.Cmd{}} }

func (l *local) start(o order) error {
	if info, err := os.Stat(cmp.Or(o.Dir, ".")); err != nil || !info.IsDir() {
		return fmt.Errorf("there is no folder %s to work in (%v); the same one must be on all hosts", o.Dir, err)
	}
	for i, rank := range o.Ranks {
		if err := l.startOne(&o, i, rank); err != nil {
			return fmt.Errorf("%s: %w", who(rank, o.Host), err)
		}
	}
	return nil
}

// startOne starts process i of the host.
func (l *local) startOne(o *order, i, rank int) error {
	c := exec.Command(o.Program, o.Args...)
	c.Dir = o.Dir
	c.Env = append(o.Env[:len(o.Env):len(o.Env)], fmt.Sprint(launch.RankVar, "=", rank),
		fmt.Sprint(launch.LocalRankVar, "=", i))
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	out := &lines{most: maxLine, print: func(line []byte) error { return l.to.says(rank, false, line) }}
	errs := &lines{most: maxLine, print: func(line []byte) error { return l.to.says(rank, true, line) }}
	started := make(chan error)
	l.running.Go(crash.Caught(func() {
		runtime.LockOSThread() // the process gets Pdeathsig when this thread ends
		l.mu.Lock()
		printed, err := begin(c, out, errs)
		if err == nil {
			l.all[rank] = c
		}
		l.mu.Unlock()
		started <- err
		if err != nil {
			return
		}
		_ = untilEnded(c.Process.Pid) // Wait will report the same error
		l.mu.Lock()
		delete(l.all, rank)
		l.mu.Unlock()
		killGroup(c.Process.Pid)
		_ = c.Wait() // ProcessState says how it ended
		printed.rest()
		out.flush()
		errs.flush()
		l.to.ended(endOf(c, rank, o.Host))
	}))
	return <-started
}

// untilEnded returns when a process has ended. Until the caller calls Wait, no other process can get its number, or the
// number of its group.
func untilEnded(pid int) error {
	for {
		if err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// killGroup kills a process that has not been waited for, and its children.
var killGroup = func(pid int) { _ = syscall.Kill(-pid, syscall.SIGKILL) }

func (l *local) signal(s syscall.Signal) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.all {
		_ = syscall.Kill(-c.Process.Pid, s)
		_ = syscall.Kill(-c.Process.Pid, syscall.SIGCONT) // a stopped process would not react
	}
}

func (l *local) leave() error {
	l.running.Wait()
	return nil
}

// who returns a rank in words.
func who(rank int, host string) string {
	if host == "" {
		return fmt.Sprintf("rank %d", rank)
	}
	return fmt.Sprintf("rank %d on %s", rank, host)
}

// endOf describes how a process ended.
func endOf(c *exec.Cmd, rank int, host string) end {
	state := c.ProcessState
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return end{Rank: rank, Code: 128 + int(status.Signal()), How: fmt.Sprintf("%s was ended by signal %d (%v)",
			who(rank, host), int(status.Signal()), status.Signal())}
	}
	return end{Rank: rank, Code: state.ExitCode(), How: fmt.Sprintf("%s ended with exit code %d", who(rank, host),
		state.ExitCode())}
}

// exitOf returns the error of an ended command in words.
func exitOf(err error) string {
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.String()
	}
	return fmt.Sprint(err)
}
