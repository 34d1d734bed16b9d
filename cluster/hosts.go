package cluster

import (
	"fmt"
	"slices"
)

// Member is a process of a run, as hardware: some workers on a host, which share cores.
type Member struct {
	Host    string
	Type    string // of device
	Workers int
	Cores   int // that its workers share
}

// Link is what was measured between two workers.
type Link struct {
	LatencyS                float64 `json:"latency_s"`
	BandwidthBytesPerSecond float64 `json:"bandwidth_bytes_per_s"`
	// CollectiveBytesPerSecond is what all-reduces reach; 0: as BandwidthBytesPerSecond.
	CollectiveBytesPerSecond float64 `json:"collective_bytes_per_s,omitempty"`
}

// Hosts are the members of a run and the links between them: inside a process, between those of one host, and
// between hosts.
type Hosts struct {
	Members                []Member // those of one host in a row
	Process, Host, Network Link
	Types                  map[string]DeviceType
}

// Cluster is the hosts as a cluster: a device for each worker, in the members' order. Levels that join nothing are
// left out. Hosts of unequal numbers of processes are one level, of the links between hosts; where each ends,
// PerHost says.
func (h *Hosts) Cluster(name string) (*Cluster, error) {
	if len(h.Members) == 0 {
		return nil, fmt.Errorf("cluster: %s has no members", name)
	}
	each := h.Members[0].Workers
	c := &Cluster{Name: name, DeviceTypes: h.Types}
	for i, m := range h.Members {
		switch {
		case m.Workers != each || each < 1:
			return nil, fmt.Errorf("cluster: process %d has %d workers, process 0 %d; all have as many, 1 at least", i,
				m.Workers, each)
		case !h.has(m.Type):
			return nil, fmt.Errorf("cluster: process %d is of device type %q, which is not described", i, m.Type)
		}
		c.Devices = append(c.Devices, slices.Repeat([]string{m.Type}, each)...)
	}
	members := h.members()
	on := members[0]
	if len(members) > 1 {
		on = 0
	}
	for _, n := range members {
		c.PerHost = append(c.PerHost, n*each)
	}
	if each > 1 {
		c.level("process", each, h.Process).OneMemory = true
		h.share(c)
	}
	hosts := len(h.Members) / max(on, 1)
	if on > 1 {
		c.level("host", on, h.Host)
	}
	if on == 0 {
		c.level("network", len(h.Members), h.Network)
	} else if hosts > 1 || len(c.Levels) == 0 {
		between := h.Network
		if hosts == 1 {
			between = h.Process
		}
		c.level("network", hosts, between).Uplinks = on*each > 1 && hosts > 1
	}
	return c, nil
}

func (h *Hosts) has(name string) bool { _, known := h.Types[name]; return known }

// members is how many there are on each host; one number where that is the same on all.
func (h *Hosts) members() []int {
	var all []int
	for i, m := range h.Members {
		if i == 0 || m.Host != h.Members[i-1].Host {
			all = append(all, 0)
		}
		all[len(all)-1]++
	}
	return alike(all)
}

// share has the workers of each process share its cores.
func (h *Hosts) share(c *Cluster) {
	c.Cores = h.Members[0].Cores
	for i, m := range h.Members {
		if m.Cores != c.Cores && c.Nodes == nil {
			c.Nodes = make([]Node, len(h.Members))
		}
		if m.Cores != c.Cores {
			c.Nodes[i].Cores = m.Cores
		}
	}
}

// level adds a level outside of those that there are.
func (c *Cluster) level(name string, size int, l Link) *Level {
	c.Levels = append(c.Levels, Level{Name: name, Size: size, LatencyS: l.LatencyS, FullDuplex: true,
		BandwidthBytesPerSecond: l.BandwidthBytesPerSecond, CollectiveBandwidthBytesPerSecond: l.CollectiveBytesPerSecond})
	return &c.Levels[len(c.Levels)-1]
}

// HostSizes is how many devices each host has, in the devices' order.
func (c *Cluster) HostSizes() []int {
	each := c.Levels[0].Size
	switch len(c.PerHost) {
	case 0:
	case 1:
		each = c.PerHost[0]
	default:
		return c.PerHost
	}
	return slices.Repeat([]int{each}, len(c.Devices)/each)
}

// FirstHosts is the sizes of hosts as far as their first n devices go.
func FirstHosts(sizes []int, n int) []int {
	var first []int
	for i := 0; n > 0; i++ {
		first = append(first, min(sizes[i], n))
		n -= sizes[i]
	}
	return first
}

// alike is one number where all are the same.
func alike(all []int) []int {
	if slices.ContainsFunc(all, func(n int) bool { return n != all[0] }) {
		return all
	}
	return all[:1]
}

// checkHosts refuses hosts that are not all the devices, or end within a process.
func (c *Cluster) checkHosts() error {
	all := 0
	for i, n := range c.PerHost {
		if n < 1 || n > len(c.Devices) {
			return fmt.Errorf("cluster: %s: devices_per_host: host %d has %d devices; it must be 1 at least, and %d at most",
				c.Name, i, n, len(c.Devices))
		}
		all += n
	}
	if n := len(c.Devices); len(c.PerHost) == 1 && n%all != 0 || len(c.PerHost) > 1 && all != n {
		return fmt.Errorf("cluster: %s: devices_per_host is %v, for %d devices; give one number that divides them, for all "+
			"hosts, or one for each host", c.Name, c.PerHost, n)
	}
	at := 0
	for i, n := range c.HostSizes() {
		if first, last := at, at+n-1; last+1 < len(c.Devices) && c.InOneMemory(last, last+1) {
			return fmt.Errorf("cluster: %s: devices %d to %d are host %d, and device %d is in one process with %d; a process "+
				"is on one host: see devices_per_host", c.Name, first, last, i, last+1, last)
		}
		at += n
	}
	return nil
}
