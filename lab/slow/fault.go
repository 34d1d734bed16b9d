package slow

import (
	"context"
	"fmt"
)

// Inside is a command line that executes another on a host.
func (h *Hosts) Inside(host int, words ...string) []string { return h.all[host].inside(words...) }

// Unplug pulls the cable of a host, which sees that.
func (h *Hosts) Unplug(ctx context.Context, host int) error {
	return h.bridge().run(ctx, fmt.Sprintf("ip link set %s down", portOf(host)))
}

// Silence has all that a host sends and is sent disappear, which nobody sees.
func (h *Hosts) Silence(ctx context.Context, host int) error {
	return h.bridge().run(ctx, fmt.Sprintf("ip link set %s nomaster", portOf(host)))
}

// bridge is where the ports of all hosts are.
func (h *Hosts) bridge() *namespace { return h.all[len(h.all)-1] }

func portOf(host int) string { return fmt.Sprintf("host%d", host) }
