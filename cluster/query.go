package cluster

import "slices"

// Local is workers of one machine, each on a device of this type, that share its cores: one level of
// links with the latency and bandwidths that the wire was measured to have. memoryBytes limits
// each worker; 0 does not.
func Local(device string, workers, cores int, memoryBytes int64, latencyS, bandwidthBytesPerSecond,
	collectiveBytesPerSecond float64) *Cluster {
	c := &Cluster{
		Name: "local", DeviceTypes: map[string]DeviceType{device: {MemoryBytes: memoryBytes}}, Cores: cores,
		Levels: []Level{{
			Name: "machine", Size: workers, BandwidthBytesPerSecond: bandwidthBytesPerSecond, LatencyS: latencyS,
			CollectiveBandwidthBytesPerSecond: collectiveBytesPerSecond, FullDuplex: true, OneMemory: true,
		}},
	}
	for range workers {
		c.Devices = append(c.Devices, device)
	}
	return c
}

// MemoryBytes is the memory of a device; 0 is no limit.
func (c *Cluster) MemoryBytes(device int) int64 {
	if c.Nodes != nil {
		if n := c.Nodes[device/c.Levels[0].Size].MemoryBytes; n > 0 {
			return n
		}
	}
	return c.DeviceTypes[c.Devices[device]].MemoryBytes
}

// CoresOf is how many cores the workers of a device's CorePool share; 0: each has its own.
func (c *Cluster) CoresOf(device int) int {
	if c.Nodes != nil && c.CoreGroup == 0 {
		if n := c.Nodes[c.CorePool(device)].Cores; n > 0 {
			return n
		}
	}
	return c.Cores
}

// SharesCores says whether workers of some node share cores.
func (c *Cluster) SharesCores() bool {
	return c.Cores > 0 || slices.ContainsFunc(c.Nodes, func(n Node) bool { return n.Cores > 0 })
}

// CorePool is the number of the devices that a device shares cores with: usually that of its node.
func (c *Cluster) CorePool(device int) int { return device / c.coreGroup() }

func (c *Cluster) coreGroup() int {
	if c.CoreGroup > 0 {
		return c.CoreGroup
	}
	return c.Levels[0].Size
}

// AllCores is how many workers compute at once at most, of one on each device.
func (c *Cluster) AllCores() int {
	all, group := 0, c.coreGroup()
	for device := 0; device < len(c.Devices); device += group {
		size := min(group, len(c.Devices)-device)
		if cores := c.CoresOf(device); cores > 0 {
			size = min(cores, size)
		}
		all += size
	}
	return all
}

// LevelOf is the innermost level that joins two different devices.
func (c *Cluster) LevelOf(a, b int) int {
	group := 1
	for i, l := range c.Levels {
		group *= l.Size
		if a/group == b/group {
			return i
		}
	}
	return len(c.Levels) - 1
}

// groupSize is how many devices a group of a level holds.
func (c *Cluster) groupSize(level int) int {
	n := 1
	for _, l := range c.Levels[:level+1] {
		n *= l.Size
	}
	return n
}

// link is a level's links as a device finds them: its node's own, inside that node.
func (c *Cluster) link(level, device int) Level {
	l := c.Levels[level]
	if level > 0 || c.Nodes == nil {
		return l
	}
	n := c.Nodes[device/l.Size]
	if n.BandwidthBytesPerSecond > 0 {
		l.BandwidthBytesPerSecond, l.CollectiveBandwidthBytesPerSecond = n.BandwidthBytesPerSecond, 0
	}
	if n.LatencyS > 0 {
		l.LatencyS = n.LatencyS
	}
	return l
}

// Transfer is how long bytes are on the way from one device to another: a latency that
// others may overlap, and the time the links are taken, bytes over the bandwidth of the
// level that joins the two.
func (c *Cluster) Transfer(from, to int, bytes int64) (latencyS, linkS float64) {
	if from == to {
		return 0, 0
	}
	l := c.link(c.LevelOf(from, to), from)
	return l.LatencyS, float64(bytes) / l.BandwidthBytesPerSecond
}

// InOneMemory says whether two devices share memory, so that a message is the receiver's to
// hold from its sending.
func (c *Cluster) InOneMemory(a, b int) bool { return c.Levels[c.LevelOf(a, b)].OneMemory }

// Crowded says whether so many workers are threads of one process that keep all its cores busy:
// what goes on beside their computations, sums of gradients for instance, is at the cost of these.
func (c *Cluster) Crowded(workers int) bool {
	n := len(c.Devices)
	cores := c.CoresOf(0)
	return n > 1 && c.InOneMemory(0, n-1) && cores > 0 && cores <= workers
}

// TransferS is how long bytes take from one device to another with nothing else on
// the way: latency + bytes / bandwidth of the level that joins them.
func (c *Cluster) TransferS(from, to int, bytes int64) float64 {
	latency, taken := c.Transfer(from, to, bytes)
	return latency + taken
}

// Links names what a transfer takes while its bytes are under way; transfers that name
// a link in common queue for it. A Shared level is one link for its whole group (one each
// way where it is full duplex). Where a level has Uplinks, the transfer leaves the
// sender's group by its link and enters the receiver's by that one's, there and at every
// such level further in. Otherwise the pair has a link of its own.
func (c *Cluster) Links(from, to int) [][2]int {
	level := c.LevelOf(from, to)
	var links [][2]int
	// Links are numbered apart by what they are: 4 names for each level below zero.
	name := func(i, kind, number int) { links = append(links, [2]int{-1 - 4*i - kind, number}) }
	inner := 1
	for i, l := range c.Levels[:level+1] {
		if l.Uplinks || l.Rails > 0 {
			a, b := from/inner, to/inner
			if l.Rails > 0 { // of a member, the rail of this device
				a, b = a*l.Rails+from%inner*l.Rails/inner, b*l.Rails+to%inner*l.Rails/inner
			}
			if l.FullDuplex {
				name(i, 0, a)
				name(i, 1, b)
			} else {
				name(i, 0, a)
				name(i, 0, b)
			}
		}
		inner *= l.Size
	}
	l := c.Levels[level]
	switch {
	case l.Shared && l.FullDuplex && from > to:
		name(level, 3, from/inner)
	case l.Shared:
		name(level, 2, from/inner)
	case l.Uplinks, l.Rails > 0: // named above
	case !l.FullDuplex && from > to:
		links = append(links, [2]int{to, from})
	default:
		links = append(links, [2]int{from, to})
	}
	return links
}
