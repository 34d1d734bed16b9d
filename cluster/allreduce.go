package cluster

import "slices"

// AllReduceS returns how long an all-reduce of this many bytes takes among devices, in seconds. It assumes the faster
// of two algorithms: one ring over all devices, or a hierarchy of rings. If links have protocols, it assumes the
// fastest protocol. Communication libraries choose in the same way.
func (c *Cluster) AllReduceS(devices []int, bytes int64) float64 {
	if len(devices) < 2 {
		return 0
	}
	return c.leastOf(devices, func(c *Cluster, _ func(level int) float64) float64 {
		total, levels := c.hierarchical(devices, bytes)
		if levels < 2 {
			return total // a hierarchy of one level is the ring over all devices
		}
		return min(total, c.RingAllReduceS(devices, bytes))
	})
}

// HierarchicalAllReduceS returns the time of a hierarchical all-reduce, in seconds. Level by level, it reduce-scatters
// inside the groups, all-reduces across them and all-gathers inside them again. A level that joins n groups has rings
// of n members, which move 2 (n-1)/n of the bytes in 2 (n-1) messages. After the reduce-scatter each device holds a
// part of the bytes, so a ring runs on every rail of a group at the same time. If groups differ, the slowest group
// determines the time.
func (c *Cluster) HierarchicalAllReduceS(devices []int, bytes int64) float64 {
	total, _ := c.hierarchical(devices, bytes)
	return total
}

// hierarchical returns the time of HierarchicalAllReduceS, and the number of levels that needed a ring.
func (c *Cluster) hierarchical(devices []int, bytes int64) (total float64, levels int) {
	sorted := slices.Sorted(slices.Values(devices))
	for i := range c.Levels {
		slowest, any := 0.0, false
		c.joins(i, sorted, func(first, members, rails int) {
			slowest, any = max(slowest, c.ringS(i, first, members, float64(bytes)/float64(rails))), true
		})
		if any {
			levels++
		}
		total += slowest
	}
	return total, levels
}

// joins calls yield for each group of a level in which at least two members contain some of the devices. The devices
// must be sorted. `first` is the group's first device. `members` is how many members contain some of the devices, and
// `rails` is the smallest number of rails that such a member can use.
func (c *Cluster) joins(level int, devices []int, yield func(first, members, rails int)) {
	member := c.groupSize(level - 1)
	group := member * c.Levels[level].Size
	outlet := c.outlet(level)
	for at := 0; at < len(devices); {
		first, members, rails := devices[at], 0, len(devices)
		for at < len(devices) && devices[at]/group == first/group {
			members++
			own, last, inside := 0, -1, devices[at]/member
			for ; at < len(devices) && devices[at]/member == inside; at++ {
				if devices[at]/outlet != last {
					own, last = own+1, devices[at]/outlet
				}
			}
			rails = min(rails, own)
		}
		if members > 1 {
			yield(first, members, rails)
		}
	}
}

// outlet returns how many consecutive devices share one rail out of their member, in a group of the given level. If the
// level has rails, the result is the member's devices divided by the rails. If the level has a collective bandwidth
// (that of all rails together), uplinks or one shared link, the result is the whole member. In all other cases the
// nearest inner level with uplinks or rails decides: the result is the number of devices that share one of its uplinks
// or rails. If there is no such level, every pair of devices has its own link, and the result is 1.
func (c *Cluster) outlet(level int) int {
	l := c.Levels[level]
	if l.Rails > 0 && l.CollectiveBandwidthBytesPerSecond == 0 {
		return max(1, c.groupSize(level-1)/l.Rails)
	}
	if level == 0 || l.Uplinks || l.Shared || l.CollectiveBandwidthBytesPerSecond > 0 {
		return c.groupSize(level - 1)
	}
	for j := level - 1; j > 0; j-- {
		switch {
		case c.Levels[j].Uplinks:
			return c.groupSize(j - 1)
		case c.Levels[j].Rails > 0:
			return max(1, c.groupSize(j-1)/c.Levels[j].Rails)
		}
	}
	return 1
}

// ringS returns how long an all-reduce takes in a ring, in seconds. The ring joins n members of a group of level i, and
// uses one rail of each member. `first` is a device of the group.
func (c *Cluster) ringS(i, first, n int, bytes float64) float64 {
	l := c.through(i, first)
	chunk := bytes / float64(n)
	steps := 2 * float64(n-1)
	if l.Shared && l.CollectiveBandwidthBytesPerSecond == 0 {
		chunk *= float64(n) // all n chunks of a step use the same link
		if !l.FullDuplex {
			return steps * (l.LatencyS + chunk/l.BandwidthBytesPerSecond)
		}
	}
	return steps * (l.LatencyS + chunk/l.collective())
}

// RingAllReduceS returns the time of an all-reduce by rings over all devices, in seconds. Each ring crosses every level
// as few times as possible. For n devices it takes 2 (n-1) steps. In a step, a chunk of bytes/n moves over every edge
// of the ring at the same time, so the step lasts as long as the slowest edge. If groups have several rails, there is a
// ring for each rail, and each ring moves its part of a chunk. Each ring goes round a group from a different device, so
// that it leaves by its own rail. An edge inside the group therefore carries a part for nearly all rings. On a Shared
// level all chunks of a step use the same link, one after the other, unless the level's collective bandwidth is given.
// An uplink carries one chunk each way, since a ring leaves and enters every group once.
func (c *Cluster) RingAllReduceS(devices []int, bytes int64) float64 {
	n := len(devices)
	if n < 2 {
		return 0
	}
	ring := slices.Sorted(slices.Values(devices))
	chunk := float64(bytes) / float64(n)
	rails := make([]int, len(c.Levels))
	for i := range c.Levels {
		rails[i] = n
		c.joins(i, ring, func(_, _, own int) { rails[i] = min(rails[i], own) })
	}
	crossing := map[[2]int]int{} // number of ring edges on each shared link
	for i, a := range ring {
		if key, shared := c.sharedLink(a, ring[(i+1)%n]); shared {
			crossing[key]++
		}
	}
	slowest := 0.0
	for i, a := range ring {
		b := ring[(i+1)%n]
		level := c.LevelOf(a, b)
		l := c.through(level, a)
		queue := 1.0
		if key, shared := c.sharedLink(a, b); shared && l.CollectiveBandwidthBytesPerSecond == 0 {
			queue = float64(crossing[key])
		}
		slowest = max(slowest, l.LatencyS+queue*chunk/float64(rails[level])/l.collective())
	}
	return 2 * float64(n-1) * slowest
}

// collective returns the bandwidth that rings reach on a level's links.
func (l Level) collective() float64 {
	if l.CollectiveBandwidthBytesPerSecond > 0 {
		return l.CollectiveBandwidthBytesPerSecond
	}
	return l.BandwidthBytesPerSecond
}

// sharedLink returns a key of the single link of the level that joins `a` and `b`, if that level is Shared.
func (c *Cluster) sharedLink(a, b int) (key [2]int, shared bool) {
	level := c.LevelOf(a, b)
	if !c.Levels[level].Shared {
		return key, false
	}
	return [2]int{level, a / c.groupSize(level)}, true
}
