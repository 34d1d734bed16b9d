package cluster

import "slices"

// Local returns a cluster of the workers of one machine, which share its cores. Every worker has a device of this
// type. There is one level of links, with the measured latency and bandwidths. memoryBytes limits each worker; 0
// means no limit.
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

// MemoryBytes returns the memory of a device, as its node gives it, or else as its type gives it. 0 means no limit.
func (c *Cluster) MemoryBytes(device int) int64 {
	if c.Nodes != nil {
		if n := c.Nodes[device/c.Levels[0].Size].MemoryBytes; n > 0 {
			return n
		}
	}
	return c.DeviceTypes[c.Devices[device]].MemoryBytes
}

// CoresOf returns the number of cores that a device's CorePool has. 0 means that each worker has its own core.
func (c *Cluster) CoresOf(device int) int {
	if c.Nodes != nil && c.CoreGroup == 0 {
		if n := c.Nodes[c.CorePool(device)].Cores; n > 0 {
			return n
		}
	}
	return c.Cores
}

// SharesCores reports whether the workers of some node share cores.
func (c *Cluster) SharesCores() bool {
	return c.Cores > 0 || slices.ContainsFunc(c.Nodes, func(n Node) bool { return n.Cores > 0 })
}

// CorePool returns the number of a device's core pool, whose devices share cores. Usually a pool is a node.
func (c *Cluster) CorePool(device int) int { return device / c.coreGroup() }

func (c *Cluster) coreGroup() int {
	if c.CoreGroup > 0 {
		return c.CoreGroup
	}
	return c.Levels[0].Size
}

// AllCores returns how many workers can compute at once, with one worker on each device.
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

// LevelOf returns the innermost level that joins two different devices.
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

// groupSize returns the number of devices in a group of a level.
func (c *Cluster) groupSize(level int) int {
	n := 1
	for _, l := range c.Levels[:level+1] {
		n *= l.Size
	}
	return n
}

// link returns a level with the values that hold for a device. On the innermost level, the values of the device's node
// replace those of the level.
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

// Transfer returns how long a message takes from one device to another, in two parts. latencyS may overlap with other
// transfers. linkS is the time for which the links are occupied: the bytes divided by the bandwidth of the level that
// joins the two devices, or by that of a slower uplink or rail on the way there. If the level has HalfBytes h, a
// message of b bytes reaches b / (b + h) of the bandwidth.
func (c *Cluster) Transfer(from, to int, bytes int64) (latencyS, linkS float64) {
	if from == to {
		return 0, 0
	}
	l := c.through(c.LevelOf(from, to), from)
	if bytes > 0 {
		linkS = (float64(bytes) + l.HalfBytes) / l.BandwidthBytesPerSecond
	}
	return l.LatencyS, linkS
}

// ByteS returns how long a byte of a large message occupies the links between two devices, in seconds. It returns 0 if
// the two devices are the same.
func (c *Cluster) ByteS(from, to int) float64 {
	if from == to {
		return 0
	}
	return 1 / c.through(c.LevelOf(from, to), from).BandwidthBytesPerSecond
}

// through returns a level's link with the bandwidth that a device can reach over it. The uplinks and rails of inner
// levels limit this bandwidth.
func (c *Cluster) through(level, device int) Level {
	l := c.link(level, device)
	for i := 1; i < level; i++ {
		if in := &c.Levels[i]; in.Uplinks || in.Rails > 0 {
			l.BandwidthBytesPerSecond = min(l.BandwidthBytesPerSecond, in.BandwidthBytesPerSecond)
		}
	}
	return l
}

// InOneMemory reports whether two devices share memory. A message then takes up the receiver's memory as soon as it
// is sent.
func (c *Cluster) InOneMemory(a, b int) bool { return c.Levels[c.LevelOf(a, b)].OneMemory }

// Crowded reports whether this many workers are threads of one process and keep all its cores busy. Other work, such
// as summing gradients, then slows their computations down.
func (c *Cluster) Crowded(workers int) bool {
	n := len(c.Devices)
	cores := c.CoresOf(0)
	return n > 1 && c.InOneMemory(0, n-1) && cores > 0 && cores <= workers
}

// TransferS returns how long this many bytes take from one device to another if no other transfer is under way. It is
// the sum of both parts that Transfer returns.
func (c *Cluster) TransferS(from, to int, bytes int64) float64 {
	latency, taken := c.Transfer(from, to, bytes)
	return latency + taken
}

// Links returns keys of the links that a transfer occupies. Transfers that have a key in common wait for each other.
// The keys depend on the level at which the two devices meet. A Shared level has one link for its whole group (or one
// each way, if full duplex). On a level with Uplinks or Rails, the transfer uses the uplink or rail of the sender and
// that of the receiver. On any other level, each pair of devices has its own link (or one each way, if full duplex). In
// each case the transfer also uses the uplinks and rails of the inner levels.
func (c *Cluster) Links(from, to int) [][2]int {
	level := c.LevelOf(from, to)
	var links [][2]int
	// Each level has 4 kinds of keys, with negative numbers that no other level uses.
	name := func(i, kind, number int) { links = append(links, [2]int{-1 - 4*i - kind, number}) }
	inner := 1
	for i, l := range c.Levels[:level+1] {
		if l.Uplinks || l.Rails > 0 {
			a, b := from/inner, to/inner
			if l.Rails > 0 { // the rails of the two devices
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
	case l.Uplinks, l.Rails > 0: // the uplinks or rails were added above
	case !l.FullDuplex && from > to:
		links = append(links, [2]int{to, from})
	default:
		links = append(links, [2]int{from, to})
	}
	return links
}
