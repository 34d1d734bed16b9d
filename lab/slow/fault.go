package slow

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// Inside is a command line that executes another on a host.
func (h *Hosts) Inside(host int, words ...string) []string { return h.all[host].inside(words...) }

// Across is a command line that executes another where all links end, on no host.
func (h *Hosts) Across(words ...string) []string { return h.bridge().inside(words...) }

// Unplug pulls the cable of a host, which sees that.
func (h *Hosts) Unplug(ctx context.Context, host int) error {
	return h.bridge().run(ctx, fmt.Sprintf("ip link set %s down", portOf(host)))
}

// Silence has all that a host sends and is sent disappear, which nobody sees.
func (h *Hosts) Silence(ctx context.Context, host int) error {
	return h.bridge().run(ctx, fmt.Sprintf("ip link set %s nomaster", portOf(host)))
}

// Linked is a shell's command for Across that fails where a host can be reached no more.
func Linked(host int) string {
	return fmt.Sprintf("ip -o link show up master bridge | grep -q ' %s@'", portOf(host))
}

// Running is the processes that run on each host, and behind those of the last one what runs Across.
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
			continue // it has ended meanwhile, or is closed to whoever made the hosts, and so not on them
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

// bridge is where the ports of all hosts are.
func (h *Hosts) bridge() *namespace { return h.all[len(h.all)-1] }

func portOf(host int) string { return fmt.Sprintf("host%d", host) }
