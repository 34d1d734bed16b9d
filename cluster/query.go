package cluster

// Local is workers of one machine that share its cores: one level of links with the
// latency and bandwidths that the wire was measured to have. memoryBytes limits each
// worker; 0 does not.
func Local(workers, cores int, memoryBytes int64, latencyS, bandwidthBytesPerSecond, collectiveBytesPerSecond float64) *Cluster {
	c := &Cluster{
		Name: "local", DeviceTypes: map[string]DeviceType{"cpu": {MemoryBytes: memoryBytes}}, Cores: cores,
		Levels: []Level{{
			Name: "machine", Size: workers, BandwidthBytesPerSecond: bandwidthBytesPerSecond, LatencyS: latencyS,
			CollectiveBandwidthBytesPerSecond: collectiveBytesPerSecond, FullDuplex: true,
		}},
	}
	for range workers {
		c.Devices = append(c.Devices, "cpu")
	}
	return c
}

// MemoryBytes is the memory of a device; 0 is no limit.
func (c *Cluster) MemoryBytes(device int) int64 { return c.DeviceTypes[c.Devices[device]].MemoryBytes }

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

// TransferS is how long bytes take from one device to another with nothing else on
// the way: latency + bytes / bandwidth of the level that joins them.
func (c *Cluster) TransferS(from, to int, bytes int64) float64 {
	if from == to {
		return 0
	}
	l := c.Levels[c.LevelOf(from, to)]
	return l.LatencyS + float64(bytes)/l.BandwidthBytesPerSecond
}

// AllReduceS is how long an all-reduce of bytes takes among devices: at each level that
// separates them, inside first, a ring of n moves 2 (n-1)/n of the bytes over every
// link in 2 (n-1) messages.
func (c *Cluster) AllReduceS(devices []int, bytes int64) float64 {
	total, group := 0.0, 1
	heads := devices
	for _, l := range c.Levels {
		group *= l.Size
		most, parts := 1, map[int]int{}
		var next []int
		for _, d := range heads {
			if parts[d/group]++; parts[d/group] == 1 {
				next = append(next, d)
			}
			most = max(most, parts[d/group])
		}
		if most > 1 {
			bandwidth := l.CollectiveBandwidthBytesPerSecond
			if bandwidth == 0 {
				bandwidth = l.BandwidthBytesPerSecond
			}
			n := float64(most)
			total += 2*(n-1)*l.LatencyS + 2*(n-1)/n*float64(bytes)/bandwidth
		}
		heads = next
	}
	return total
}
