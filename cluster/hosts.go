package cluster

import (
	"fmt"
	"slices"
)

// Member describes the hardware of one process of a run: some workers on a host, which share cores.
type Member struct {
	Host    string
	Type    string // device type
	Workers int
	Cores   int // cores shared by its workers
}

// Link holds the measured values of a link between two workers.
type Link struct {
	LatencyS                float64 `json:"latency_s"`
	BandwidthBytesPerSecond float64 `json:"bandwidth_bytes_per_s"`
	// CollectiveBytesPerSecond is the bandwidth of an all-reduce; 0 means BandwidthBytesPerSecond.
	CollectiveBytesPerSecond float64 `json:"collective_bytes_per_s,omitempty"`
}

// Hosts holds the members of a run and three kinds of links: inside a process, between the processes of a host, and
// between hosts.
type Hosts struct {
	Members                []Member // members of the same host are consecutive
	Process, Host, Network Link
	Types                  map[string]DeviceType
}

// Cluster returns the hosts as a Cluster with one device for each worker, in the members' order. A level of size 1 is
// left out, unless it is the only one. If hosts have different numbers of processes, one level joins all processes, and
// its links are those between hosts. In that case only PerHost says where each host ends.
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

// members returns the number of members on each host, or a single number if it is the same for all hosts.
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

// share sets the cores of each process, which its workers share.
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

// level adds a level outside the existing ones.
func (c *Cluster) level(name string, size int, l Link) *Level {
	c.Levels = append(c.Levels, Level{Name: name, Size: size, LatencyS: l.LatencyS, FullDuplex: true,
		BandwidthBytesPerSecond: l.BandwidthBytesPerSecond, CollectiveBandwidthBytesPerSecond: l.CollectiveBytesPerSecond})
	return &c.Levels[len(c.Levels)-1]
}

// HostSizes returns the number of devices of each host, in device order.
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

// FirstHosts returns the sizes of the hosts of the first n devices; the last host may have only some of its devices. If
// there are fewer than n devices, it returns all sizes.
func FirstHosts(sizes []int, n int) []int {
	var first []int
	for i := 0; i < len(sizes) && n > 0; i++ {
		first = append(first, min(sizes[i], n))
		n -= sizes[i]
	}
	return first
}

// alike returns the first number if all numbers are equal. Otherwise it returns all numbers.
func alike(all []int) []int {
	if len(all) == 0 || slices.ContainsFunc(all, func(n int) bool { return n != all[0] }) {
		return all
	}
	return all[:1]
}

// checkHosts refuses host sizes that do not cover exactly all devices, and hosts that end within a process.
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
