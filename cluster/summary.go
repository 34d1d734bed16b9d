package cluster

import (
	"fmt"
	"slices"
	"strings"

	"github.com/millrace-ml/millrace/internal/terminal"
)

// Summary describes the cluster in one line: "16 x v100, 16.0 GiB each: rack of 2, server of 8".
func (c *Cluster) Summary() string {
	var parts []string
	for _, name := range c.Types() {
		n, least, most := 0, int64(0), int64(0)
		for d, of := range c.Devices {
			if of != name {
				continue
			}
			bytes := c.MemoryBytes(d)
			if n++; n == 1 {
				least, most = bytes, bytes
			}
			least, most = min(least, bytes), max(most, bytes)
		}
		part := fmt.Sprintf("%d x %s", n, name)
		switch {
		case most == 0:
		case least == most:
			part += fmt.Sprintf(", %s each", terminal.Bytes(most))
		default:
			part += fmt.Sprintf(", %s to %s each", terminal.Bytes(least), terminal.Bytes(most))
		}
		parts = append(parts, part)
	}
	var levels []string
	for _, l := range slices.Backward(c.Levels) {
		levels = append(levels, fmt.Sprintf("%s of %d", l.Name, l.Size))
	}
	return strings.Join(parts, "; ") + ": " + strings.Join(levels, ", ")
}

// Types lists the device types, in the order in which they first appear among the devices.
func (c *Cluster) Types() []string {
	var types []string
	for _, name := range c.Devices {
		if !slices.Contains(types, name) {
			types = append(types, name)
		}
	}
	return types
}
