package cluster

import "slices"

// AllReduceS is how long an all-reduce of bytes takes among devices: the faster of one
// ring over all of them and a hierarchy of rings, as a library that knows both would choose.
func (c *Cluster) AllReduceS(devices []int, bytes int64) float64 {
	total, levels := c.hierarchical(devices, bytes)
	if levels < 2 {
		return total // one level: both are the same ring
	}
	return min(total, c.RingAllReduceS(devices, bytes))
}

// HierarchicalAllReduceS is the time of reduce-scatter inside, all-reduce across and
// all-gather inside, level by level: where a level joins n groups, a ring of n moves
// 2 (n-1)/n of the bytes over every group's link in 2 (n-1) messages. Where groups differ
// in how many devices they bring, the slowest decides.
func (c *Cluster) HierarchicalAllReduceS(devices []int, bytes int64) float64 {
	total, _ := c.hierarchical(devices, bytes)
	return total
}

// hierarchical also says at how many levels there was anything to do.
func (c *Cluster) hierarchical(devices []int, bytes int64) (total float64, levels int) {
	group := 1
	heads := devices
	for i, l := range c.Levels {
		group *= l.Size
		parts := map[int][]int{}
		var next []int
		for _, d := range heads {
			if len(parts[d/group]) == 0 {
				next = append(next, d)
			}
			parts[d/group] = append(parts[d/group], d)
		}
		slowest := 0.0
		for _, members := range parts {
			if len(members) > 1 {
				slowest = max(slowest, c.ringS(i, members, bytes))
			}
		}
		if len(next) < len(heads) {
			levels++
		}
		total += slowest
		heads = next
	}
	return total, levels
}

// ringS is a ring among one device of each of several groups that level i joins.
func (c *Cluster) ringS(i int, members []int, bytes int64) float64 {
	l := c.link(i, members[0])
	n := float64(len(members))
	chunk := float64(bytes) / n
	if l.Shared && l.CollectiveBandwidthBytesPerSecond == 0 {
		chunk *= n // all n chunks of a step go over the one link
		if !l.FullDuplex {
			return 2 * (n - 1) * (l.LatencyS + chunk/l.BandwidthBytesPerSecond)
		}
	}
	return 2 * (n - 1) * (l.LatencyS + chunk/l.collective())
}

// RingAllReduceS is the time of one ring over the devices in ascending order, which
// crosses every level as seldom as it can: 2 (n-1) steps, each of which moves a chunk of
// bytes/n over every edge of the ring at once and lasts as long as its slowest edge. Chunks
// that share a link in a step (a Shared level) queue there; uplinks carry one chunk each
// way, since an ascending ring leaves and enters every group once.
func (c *Cluster) RingAllReduceS(devices []int, bytes int64) float64 {
	n := len(devices)
	if n < 2 {
		return 0
	}
	ring := slices.Sorted(slices.Values(devices))
	chunk := float64(bytes) / float64(n)
	crossing := map[[2]int]int{} // edges by shared link
	for i, a := range ring {
		if key, shared := c.sharedLink(a, ring[(i+1)%n]); shared {
			crossing[key]++
		}
	}
	slowest := 0.0
	for i, a := range ring {
		b := ring[(i+1)%n]
		l := c.link(c.LevelOf(a, b), a)
		queue := 1.0
		if key, shared := c.sharedLink(a, b); shared && l.CollectiveBandwidthBytesPerSecond == 0 {
			queue = float64(crossing[key])
		}
		slowest = max(slowest, l.LatencyS+queue*chunk/l.collective())
	}
	return 2 * float64(n-1) * slowest
}

// collective is the bandwidth that rings reach over a level's links.
func (l Level) collective() float64 {
	if l.CollectiveBandwidthBytesPerSecond > 0 {
		return l.CollectiveBandwidthBytesPerSecond
	}
	return l.BandwidthBytesPerSecond
}

// sharedLink names the one link of a Shared level that a transfer takes.
func (c *Cluster) sharedLink(a, b int) (key [2]int, shared bool) {
	level := c.LevelOf(a, b)
	if !c.Levels[level].Shared {
		return key, false
	}
	return [2]int{level, a / c.groupSize(level)}, true
}
