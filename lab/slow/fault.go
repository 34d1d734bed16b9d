package slow

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// Inside returns a command line that runs another command line on a host.
func (h *Hosts) Inside(host int, words ...string) []string { return h.all[host].inside(words...) }

// Across returns a command line that runs another command line in the bridge's namespace. All links end in this
// namespace, which is no host.
func (h *Hosts) Across(words ...string) []string { return h.bridge().inside(words...) }

// Unplug cuts a host's link. The host can see that the link is down.
func (h *Hosts) Unplug(ctx context.Context, host int) error {
	return h.bridge().run(ctx, fmt.Sprintf("ip link set %s down", portOf(host)))
}

// Silence drops everything that is sent by a host or to it. Neither the host nor the others can see this at their
// links.
func (h *Hosts) Silence(ctx context.Context, host int) error {
	return h.bridge().run(ctx, fmt.Sprintf("ip link set %s nomaster", portOf(host)))
}

// Linked returns a shell command that fails if a host can no longer be reached. It must run in the bridge's namespace
// (Across).
func Linked(host int) string {
	return fmt.Sprintf("ip -o link show up master bridge | grep -q ' %s@'", portOf(host))
}

// Running returns the processes on each host. The last element has the processes in the bridge's namespace.
func (h *Hosts) Running() ([][]int, error) {
	running, of := make([][]int, len(h.all)), map[string]int{}
	for i, n := range h.all {
		name, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", n.holder.Process.Pid))
		if err != nil {
			return nil, fmt.Errorf("slow: %w", err)
		}
		of[name] = i
	}
	paths, err := filepath.Glob("/proc/[0-9]*/ns/net")
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		name, err := os.Readlink(path)
		if err != nil {
			continue // the process has ended, or may not be read, so it does not run on a host
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path))))
		if err != nil {
			return nil, err
		}
		if i, here := of[name]; here && pid != h.all[i].holder.Process.Pid {
			running[i] = append(running[i], pid)
		}
	}
	return running, nil
}

// bridge returns the namespace with the ports of all hosts.
func (h *Hosts) bridge() *namespace { return h.all[len(h.all)-1] }

func portOf(host int) string { return fmt.Sprintf("host%d", host) }
