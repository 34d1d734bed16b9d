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
// left out. Hosts of unequal numbers of processes are one level, of the links between hosts.
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
	on := h.perHost()
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

// perHost is how many members each host has; 0 where that differs.
func (h *Hosts) perHost() int {
	first := 0
	for at := 0; at < len(h.Members); {
		end := at
		for end < len(h.Members) && h.Members[end].Host == h.Members[at].Host {
			end++
		}
		if first == 0 {
			first = end - at
		}
		if end-at != first {
			return 0
		}
		at = end
	}
	return first
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
