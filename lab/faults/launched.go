package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/millrace-ml/millrace/lab/slow"
	"github.com/millrace-ml/millrace/launch"
)

// launched has millrace launch start the training, loses a process, and checks that launch continues by itself.
func (c *campaign) launched(ctx context.Context, w way, t *try, draw *rand.Rand) (err error) {
	h, err := c.hosts(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.Close()) }()
	g, err := c.launch(ctx, h, t, c.args(w, 0, "out", c.profile()...))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.kill()) }()
	m := g.all[0]
	if err := t.await(ctx, draw, g); err != nil {
		return err
	}
	all, err := ranks(h)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := w.lose(ctx, h, t.victim, all[t.victim].Pid); err != nil {
		return err
	}
	var runs []*os.Process
	for rank, p := range all {
		if rank != t.victim || w.runs {
			runs = append(runs, p)
		}
	}
	t.took = gone(3*promptly, runs)
	if t.took > promptly {
		t.says("took %v to end", t.took.Round(time.Millisecond))
	}
	if w.stops {
		if err := t.continues(all[t.victim], promptly); err != nil {
			return err
		}
	}
	if _, ended := g.await(patience, m); !ended || m.code() != 0 {
		t.named = false
		t.says("launch ends with %d behind %v: %s", m.code(), time.Since(began).Round(time.Second), m.said.String())
		return nil
	}
	said := m.said.String()
	t.fewer = strings.Contains(said, "going on without hosts that cannot be used: host "+t.host(t.victim)+" ")
	t.again = "again by launch"
	if t.fewer {
		t.again = "on in fewer by launch"
	}
	if t.fewer != w.runs || strings.Count(said, "; start 2 of at most 2") != 1 {
		t.says("launch does not go on as it should: %s", said)
	}
	for rank := range processes {
		if rank != t.victim || w.runs {
			t.names(rank, errorsOf(said, rank))
		}
	}
	return t.judge(c, w, g)
}

// launch starts the training on all hosts with millrace launch, which may restart it once. millrace launch runs outside
// the hosts, and its ssh reaches only hosts whose links work.
func (c *campaign) launch(ctx context.Context, h *slow.Hosts, t *try, args []string) (*gang, error) {
	bin := filepath.Join(t.dir, "bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		return nil, err
	}
	ssh := "#!/bin/sh\nwhile [ \"$1\" != -- ]; do shift; done\nhost=$2\nshift 2\ncase $host in\n"
	var names []string
	for host := range processes {
		names = append(names, t.host(host))
		ssh += fmt.Sprintf("%s) %s && exec %s sh -c \"$*\";;\n", t.host(host), slow.Linked(host),
			strings.Join(h.Inside(host), " "))
	}
	ssh += "esac\necho \"ssh: connect to host $host: No route to host\" >&2\nexit 255\n"
	if err := os.WriteFile(filepath.Join(bin, "ssh"), []byte(ssh), 0o755); err != nil {
		return nil, err
	}
	words := slices.Concat([]string{c.millrace, "launch", "--hosts", strings.Join(names, ","), "--restarts", "1", "--"},
		args)
	env := []string{"PATH=" + bin + string(filepath.ListSeparator) + os.Getenv("PATH")}
	return c.begun(ctx, h, c.member(-1, t.dir, env, h.Across(words...)))
}

// ranks returns the process of each rank.
func ranks(h *slow.Hosts) ([]*os.Process, error) {
	running, err := h.Running()
	if err != nil {
		return nil, err
	}
	all := make([]*os.Process, processes)
	for rank := range processes {
		for _, pid := range running[rank] {
			environ, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid)) // the process may have ended
			if !bytes.Contains(environ, fmt.Appendf(nil, "\x00%s=%d\x00", launch.RankVar, rank)) {
				continue
			}
			if all[rank] != nil {
				return nil, fmt.Errorf("host %d has several processes of rank %d", rank, rank)
			}
			if all[rank], err = os.FindProcess(pid); err != nil {
				return nil, err
			}
		}
		if all[rank] == nil {
			return nil, fmt.Errorf("no process of rank %d is on its host", rank)
		}
	}
	return all, nil
}

// continues lets a stopped process go on, and checks that it ends within a time. millrace launch may have ended it
// already.
func (t *try) continues(p *os.Process, within time.Duration) error {
	if err := p.Signal(syscall.SIGCONT); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	if gone(within, []*os.Process{p}) >= within {
		t.says("rank %d goes on for over %v behind its stop", t.victim, within)
	}
	return nil
}

// gone returns how long it takes until processes have ended. It waits at most as long as `within`.
func gone(within time.Duration, all []*os.Process) time.Duration {
	since := time.Now()
	for time.Since(since) < within && slices.ContainsFunc(all, func(p *os.Process) bool {
		return p.Signal(syscall.Signal(0)) == nil
	}) {
		time.Sleep(2 * time.Millisecond)
	}
	return time.Since(since)
}

// errorsOf returns the error lines of a rank in launch's output.
func errorsOf(said string, rank int) string {
	var all []string
	for line := range strings.Lines(said) {
		if who, text, found := strings.Cut(line, "] millrace: "); found && strings.HasPrefix(who, fmt.Sprintf("[%d ", rank)) {
			all = append(all, strings.TrimSpace(text))
		}
	}
	return strings.Join(all, "; ")
}
