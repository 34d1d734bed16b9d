package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/millrace-ml/millrace/internal/crash"
	"github.com/millrace-ml/millrace/lab/slow"
	"github.com/millrace-ml/millrace/launch"
)

// gang is the processes of one start: one on each host, or a launcher that starts them.
type gang struct {
	all    []*member
	hosts  *slow.Hosts
	unheed func() bool // prevents the end of the campaign from killing processes; nil before all have started
}

// member is one process of a gang.
type member struct {
	rank  int // -1: the launcher
	c     *exec.Cmd
	said  saying
	ended chan struct{}
	when  time.Time // when the process ended
}

type saying struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *saying) Write(text []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(text)
}

func (s *saying) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// start starts n processes of a run, each in its folder.
func (c *campaign) start(ctx context.Context, h *slow.Hosts, t *try, run string, restart, n int, args []string) (*gang,
	error) {
	var all []*member
	for rank := range n {
		var env []string
		if t.measures { // an empty cache makes the process measure; killed processes leave temporary files
			env = append(env, "XDG_CACHE_HOME="+t.dir, "TMPDIR="+t.dir)
		}
		for name, value := range map[string]any{
			launch.RankVar: rank, launch.SizeVar: n, launch.NodeVar: rank, launch.NodesVar: n, launch.LocalRankVar: 0,
			launch.LocalSizeVar: 1, launch.HostVar: t.host(rank), launch.MasterAddrVar: slow.Address(0),
			launch.MasterPortVar: 29400, launch.RunIDVar: run, launch.RestartVar: restart,
			launch.TokenVar: strings.Repeat(run, 4),
		} {
			env = append(env, fmt.Sprint(name, "=", value))
		}
		all = append(all, c.member(rank, t.folder(rank), env, h.Inside(rank, append([]string{c.millrace}, args...)...)))
	}
	return c.begun(ctx, h, all...)
}

// member returns a process that has not been started yet.
func (c *campaign) member(rank int, dir string, env, words []string) *member {
	m := &member{rank: rank, c: exec.Command(words[0], words[1:]...), ended: make(chan struct{})}
	m.c.Dir, m.c.Stdout, m.c.Stderr, m.c.WaitDelay = dir, &m.said, &m.said, time.Second
	m.c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	m.c.Env = append(c.env(), env...)
	return m
}

func (c *campaign) env() []string {
	return append(os.Environ(), "MILLRACE_NATIVE="+c.native, "XDG_CACHE_HOME="+c.scratch)
}

// begun starts processes, which are killed when ctx ends.
func (c *campaign) begun(ctx context.Context, h *slow.Hosts, all ...*member) (*gang, error) {
	g := &gang{hosts: h}
	for _, m := range all {
		if err := m.c.Start(); err != nil {
			return nil, errors.Join(err, g.kill())
		}
		g.all = append(g.all, m)
		crash.Go(func() {
			_ = m.c.Wait() // the process state says how it ended
			m.when = time.Now()
			close(m.ended)
		})
	}
	g.unheed = context.AfterFunc(ctx, crash.Caught(g.signal))
	return g, nil
}

func (m *member) pid() int { return m.c.Process.Pid }

func (m *member) runs() bool {
	select {
	case <-m.ended:
		return false
	default:
		return true
	}
}

// code returns the process's exit code, as in a shell; -1 while it runs.
func (m *member) code() int {
	if m.runs() {
		return -1
	}
	if status := m.c.ProcessState.Sys().(syscall.WaitStatus); status.Signaled() {
		return 128 + int(status.Signal())
	}
	return m.c.ProcessState.ExitCode()
}

// errors returns the error lines of the process's output.
func (m *member) errors() string {
	var all []string
	for line := range strings.Lines(m.said.String()) {
		if text, is := strings.CutPrefix(line, "millrace: "); is {
			all = append(all, strings.TrimSpace(text))
		}
	}
	return strings.Join(all, "; ")
}

// await waits until members have ended. It returns the time at which the last of them ended. If one of them still runs
// when `within` is over, it returns false.
func (g *gang) await(within time.Duration, members ...*member) (last time.Time, ended bool) {
	late := time.After(within)
	for _, m := range members {
		select {
		case <-m.ended:
			if m.when.After(last) {
				last = m.when
			}
		case <-late:
			return last, false
		}
	}
	return last, true
}

// signal kills the members that still run. The process id of an ended member may belong to another process.
func (g *gang) signal() {
	for _, m := range g.all {
		if m.runs() {
			_ = syscall.Kill(-m.pid(), syscall.SIGKILL)
		}
	}
}

// kill kills all remaining processes, and waits for them.
func (g *gang) kill() error {
	if g.unheed != nil {
		g.unheed()
	}
	g.signal()
	for _, m := range g.all {
		<-m.ended
	}
	for since := time.Now(); time.Since(since) < promptly; time.Sleep(10 * time.Millisecond) {
		left, err := g.running()
		if err != nil || len(left) == 0 {
			return err
		}
		for _, pid := range left {
			_ = syscall.Kill(pid, syscall.SIGKILL) // the process is on this try's host, so this program started it
		}
	}
	return fmt.Errorf("processes cannot be killed for %v", promptly)
}

// running lists all processes on the hosts.
func (g *gang) running() ([]int, error) {
	all, err := g.hosts.Running()
	return slices.Concat(all...), err
}

// leaving is how long an ended process may take to disappear.
const leaving = time.Second

// left returns the command lines of processes that are left on the hosts after all members have ended.
func (g *gang) left() ([]string, error) {
	for since := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		pids, err := g.running()
		if err != nil || len(pids) == 0 {
			return nil, err
		}
		if time.Since(since) < leaving {
			continue
		}
		var names []string
		for _, pid := range pids {
			text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)) // the process may end now
			names = append(names, fmt.Sprintf("%d (%.100s)", pid, strings.ReplaceAll(string(text), "\x00", " ")))
		}
		return names, nil
	}
}
