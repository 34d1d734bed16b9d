package cluster

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/millrace-ml/millrace/internal/registry"
)

// placeDevices sets each device's type, and records how a node differs from the rest. A node is a group of the
// innermost level.
func (f *file) placeDevices(c *Cluster, count int) error {
	size := c.Levels[0].Size
	nodes, err := f.expandNodes(size, count)
	if err != nil {
		return err
	}
	for i := range count {
		t := f.Device
		if len(nodes) > 0 {
			t = nodes[i/size].typeOf(i%size, f.Device)
		}
		if t == "" {
			return fmt.Errorf("cluster: %s: device %d has no type; name one of device_types (%s) with the key device, or "+
				"in nodes", f.Name, i, strings.Join(slices.Sorted(maps.Keys(c.DeviceTypes)), ", "))
		}
		if _, ok := c.DeviceTypes[t]; !ok {
			return fmt.Errorf("cluster: %s: device %d is of type %q, which device_types does not have; %s",
				f.Name, i, t, registry.Instead(t, slices.Sorted(maps.Keys(c.DeviceTypes))))
		}
		c.Devices = append(c.Devices, t)
	}
	for i, n := range nodes {
		own, err := n.own()
		if err == nil && len(n.Devices) > 0 && len(n.Devices) != size {
			err = fmt.Errorf("it lists %d devices; its level %s has %d in a node", len(n.Devices), c.Levels[0].Name,
				size)
		}
		if err != nil {
			return fmt.Errorf("cluster: %s: node %d: %w", f.Name, i, err)
		}
		if own != (Node{}) && c.Nodes == nil {
			c.Nodes = make([]Node, len(nodes))
		}
		if c.Nodes != nil {
			c.Nodes[i] = own
		}
	}
	return nil
}

// expandNodes repeats each entry as often as its count says. If the file has entries, each of their nodes must have
// `size` devices, and all nodes together must have `count` devices.
func (f *file) expandNodes(size, count int) ([]fileNode, error) {
	all := 0
	for i, n := range f.Nodes {
		if n.Count < 0 || n.Count > MaxDevices {
			return nil, fmt.Errorf("cluster: %s: node entry %d: count is %d; it is 1 at least, or left out for 1",
				f.Name, i, n.Count)
		}
		if n.Device != "" && len(n.Devices) > 0 {
			return nil, fmt.Errorf("cluster: %s: node entry %d has both device and devices; choose one", f.Name, i)
		}
		all += max(1, n.Count)
	}
	if all > 0 && all*size != count {
		return nil, fmt.Errorf("cluster: %s: %d nodes of %d devices; its levels hold %d devices", f.Name, all, size,
			count)
	}
	var nodes []fileNode
	for _, n := range f.Nodes {
		for range max(1, n.Count) {
			nodes = append(nodes, n)
		}
	}
	return nodes, nil
}

// typeOf returns the type of the node's k-th device.
func (n *fileNode) typeOf(k int, common string) string {
	switch {
	case k < len(n.Devices) && n.Devices[k] != "":
		return n.Devices[k]
	case n.Device != "":
		return n.Device
	}
	return common
}

func (n *fileNode) own() (own Node, err error) {
	if n.Memory != "" {
		if own.MemoryBytes, err = memory(n.Memory); err != nil {
			return own, err
		}
	}
	if n.Bandwidth != "" {
		if own.BandwidthBytesPerSecond, err = positive(n.Bandwidth, "bandwidth", rateUnits); err != nil {
			return own, err
		}
	}
	if n.Latency != "" {
		if own.LatencyS, err = quantity(n.Latency, "latency", timeUnits); err != nil {
			return own, err
		}
	}
	if own.Cores = n.Cores; own.Cores < 0 {
		return own, fmt.Errorf("cores is %d; it must be 1 or more, or left out", own.Cores)
	}
	return own, nil
}
