package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/millrace-ml/millrace/internal/crash"
	"github.com/millrace-ml/millrace/lab/slow"
	"github.com/millrace-ml/millrace/launch"
)

// gang is the processes of one start, each on a host of its own.
type gang struct {
	all    []*member
	unheed func() bool // has the end of the campaign kill nobody; nil before all have started
}

// member is one of them.
type member struct {
	rank  int
	c     *exec.Cmd
	said  saying
	ended chan struct{}
	when  time.Time // it has ended
}

// saying is what a process says.
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
	g := &gang{}
	for rank := range n {
		in := h.Inside(rank, append([]string{c.millrace}, args...)...)
		m := &member{rank: rank, c: exec.Command(in[0], in[1:]...), ended: make(chan struct{})}
		m.c.Dir, m.c.Stdout, m.c.Stderr, m.c.WaitDelay = t.folder(rank), &m.said, &m.said, time.Second
		m.c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		m.c.Env = append(os.Environ(), "MILLRACE_NATIVE="+c.native, "XDG_CACHE_HOME="+c.scratch)
		for name, value := range map[string]any{
			launch.RankVar: rank, launch.SizeVar: n, launch.NodeVar: rank, launch.NodesVar: n, launch.LocalRankVar: 0,
			launch.LocalSizeVar: 1, launch.HostVar: hostOf(rank), launch.MasterAddrVar: slow.Address(0),
			launch.MasterPortVar: 29400, launch.RunIDVar: run, launch.RestartVar: restart,
			launch.TokenVar: strings.Repeat(run, 4),
		} {
			m.c.Env = append(m.c.Env, fmt.Sprint(name, "=", value))
		}
		if err := m.c.Start(); err != nil {
			return nil, errors.Join(err, g.kill())
		}
		g.all = append(g.all, m)
		crash.Go(func() {
			_ = m.c.Wait() // its state says how it ended
			m.when = time.Now()
			close(m.ended)
		})
	}
	g.unheed = context.AfterFunc(ctx, crash.Caught(func() { _ = g.kill() }))
	return g, nil
}

func hostOf(rank int) string { return fmt.Sprintf("host%d", rank) }

func (m *member) pid() int { return m.c.Process.Pid }

// code is its exit code, as a shell has it; -1 while it runs.
func (m *member) code() int {
	select {
	case <-m.ended:
	default:
		return -1
	}
	if status := m.c.ProcessState.Sys().(syscall.WaitStatus); status.Signaled() {
		return 128 + int(status.Signal())
	}
	return m.c.ProcessState.ExitCode()
}

// errors is what it has said of its end: the lines of errors.
func (m *member) errors() string {
	var all []string
	for line := range strings.Lines(m.said.String()) {
		if text, is := strings.CutPrefix(line, "millrace: "); is {
			all = append(all, strings.TrimSpace(text))
		}
	}
	return strings.Join(all, "; ")
}

// await waits until members have ended, and returns the last one's time; false where that takes too long.
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

// kill ends whatever is left, and waits for it.
func (g *gang) kill() error {
	if g.unheed != nil {
		g.unheed() // the numbers of these processes may be others' soon
	}
	for _, m := range g.all {
		_ = syscall.Kill(-m.pid(), syscall.SIGKILL) // it may have ended
		<-m.ended
	}
	return nil
}

// left is the processes that are left of groups whose leaders have ended.
func (g *gang) left() []int {
	var all []int
	for _, m := range g.all {
		if syscall.Kill(-m.pid(), 0) == nil {
			all = append(all, m.rank)
		}
	}
	return all
}
