package main

import (
	"context"
	"fmt"
	"strings"
	"syscall"

	"github.com/millrace-ml/millrace/lab/slow"
)

type way struct {
	name, what string
	victims    []int // ranks that may be lost
	// lose kills, stops or cuts off the process of a rank; pid is its process id.
	lose   func(ctx context.Context, h *slow.Hosts, victim, pid int) error
	runs   bool // the process can still run, and must end as well
	stops  bool // the process is paused, and continues when the others have ended
	native bool // every process has a replica, and Gloo sums gradients
}

func signalled(s syscall.Signal) func(context.Context, *slow.Hosts, int, int) error {
	return func(_ context.Context, _ *slow.Hosts, _, pid int) error { return syscall.Kill(pid, s) }
}

var ways = []way{
	{name: "killed", what: "a follower is killed", victims: []int{1, 2}, lose: signalled(syscall.SIGKILL)},
	{name: "stopped", what: "a follower is stopped", victims: []int{1, 2}, lose: signalled(syscall.SIGSTOP), stops: true},
	{name: "cut", what: "the link of a host is pulled", victims: []int{0, 1, 2}, runs: true,
		lose: func(ctx context.Context, h *slow.Hosts, victim, _ int) error { return h.Unplug(ctx, victim) }},
	{name: "half-open", what: "all that a host sends and is sent disappears", victims: []int{0, 1, 2}, runs: true,
		lose: func(ctx context.Context, h *slow.Hosts, victim, _ int) error { return h.Silence(ctx, victim) }},
	{name: "leader", what: "rank 0 is killed", victims: []int{0}, lose: signalled(syscall.SIGKILL)},
	{name: "leader-stopped", what: "rank 0 is stopped", victims: []int{0}, lose: signalled(syscall.SIGSTOP), stops: true},
	{name: "native", what: "a replica is killed while Gloo sums gradients", victims: []int{0, 1, 2},
		lose: signalled(syscall.SIGKILL), native: true},
}

func names() []string {
	var all []string
	for _, w := range ways {
		all = append(all, w.name)
	}
	return all
}

// choose returns the ways with these names; all if no name is given.
func choose(only string) ([]way, error) {
	if only == "" {
		return ways, nil
	}
	var chosen []way
	for name := range strings.SplitSeq(only, ",") {
		n := len(chosen)
		for _, w := range ways {
			if w.name == name {
				chosen = append(chosen, w)
			}
		}
		if len(chosen) == n {
			return nil, fmt.Errorf("faults: there is no way %q; there are %s", name, strings.Join(names(), ", "))
		}
	}
	return chosen, nil
}
