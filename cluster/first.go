package cluster

import (
	"fmt"
	"slices"
)

// First returns the cluster with only its first n devices. If the cluster has at most n devices, First returns it
// whole. Planners need groups of equal sizes. So the n devices must fill whole groups of the cluster's levels, or lie
// within one innermost group.
func (c *Cluster) First(n int) (*Cluster, error) {
	if n < 1 {
		return nil, fmt.Errorf("cluster: %d devices of %s; give 1 to %d", n, c.Name, len(c.Devices))
	}
	if n >= len(c.Devices) {
		return c, nil
	}
	inner, fewer, more := 1, 0, len(c.Devices)
	for i, l := range c.Levels {
		if n <= inner*l.Size {
			if n%inner != 0 {
				fewer, more = n/inner*inner, (n/inner+1)*inner
				break
			}
			first := *c
			first.Devices = slices.Clone(c.Devices[:n])
			first.Levels = slices.Clone(c.Levels[:i+1])
			first.Levels[i].Size = n / inner
			if c.Nodes != nil {
				size := first.Levels[0].Size
				first.Nodes = slices.Clone(c.Nodes[:n/size])
			}
			if c.PerHost != nil {
				first.PerHost = alike(FirstHosts(c.HostSizes(), n))
			}
			return &first, nil
		}
		inner *= l.Size
	}
	return nil, fmt.Errorf("cluster: the first %d devices of %s are no whole groups of its levels (%s); %d and %d are, "+
		"and fewer than %d are in one group", n, c.Name, c.shape(), fewer, more, c.Levels[0].Size)
}

// shape returns the sizes of the levels, outermost first as the papers write them ("4x8").
func (c *Cluster) shape() string {
	text := ""
	for i, l := range slices.Backward(c.Levels) {
		text += fmt.Sprintf("%d", l.Size)
		if i > 0 {
			text += "x"
		}
	}
	return text
}

// Limited returns the cluster with at most this much memory on every device; 0 means no limit.
func (c *Cluster) Limited(bytes int64) *Cluster {
	if bytes <= 0 {
		return c
	}
	return c.WithMemory(func(own int64) int64 {
		if own == 0 {
			return bytes
		}
		return min(own, bytes)
	})
}

// Unlimited returns the cluster without memory limits.
func (c *Cluster) Unlimited() *Cluster { return c.WithMemory(func(int64) int64 { return 0 }) }

// WithMemory returns the cluster with other memory sizes. The function `of` maps the memory of a device type or node to
// its new memory.
func (c *Cluster) WithMemory(of func(own int64) int64) *Cluster {
	other := *c
	other.DeviceTypes = map[string]DeviceType{}
	for name, t := range c.DeviceTypes {
		t.MemoryBytes = of(t.MemoryBytes)
		other.DeviceTypes[name] = t
	}
	other.Nodes = slices.Clone(c.Nodes)
	for i, n := range other.Nodes {
		if n.MemoryBytes > 0 {
			other.Nodes[i].MemoryBytes = of(n.MemoryBytes)
		}
	}
	return &other
}

// WithCores returns the cluster with `cores` cores shared by every `group` consecutive devices. The nodes' own numbers
// of cores are ignored. A group of 0 means the devices of a node.
func (c *Cluster) WithCores(cores, group int) *Cluster {
	other := *c
	other.Cores, other.CoreGroup, other.Nodes = cores, group, slices.Clone(c.Nodes)
	for i := range other.Nodes {
		other.Nodes[i].Cores = 0
	}
	return &other
}
