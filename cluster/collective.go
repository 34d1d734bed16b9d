package cluster

import (
	"math"
	"slices"
)

// Collective is a kind of collective operation.
type Collective int

// The collectives that CollectiveS can time.
const (
	AllReduce Collective = iota
	Gather               // an all-gather or a reduce-scatter
)

// CollectiveS returns the time of a collective among devices, in seconds, as NCCL carries it out. `devices` are in
// ascending order, and `bytes` is the total size. The other devices of the same groups run the same collective at the
// same time.
//
// The result is the time of the fastest of three algorithms. One of them uses rings, which leave an innermost group by
// every rail of its devices. The others are only for an all-reduce: double binary trees between the groups, and the
// hierarchy of rings of HierarchicalAllReduceS. Between two groups, a double tree moves as many bytes as the hierarchy.
//
// In a ring of n devices, every edge carries (n-1)/n of the bytes, twice for an all-reduce. With k devices in a member
// of a level there are k rings, each with its part of the bytes. So an edge inside the member carries nearly all bytes,
// and the member's links to the outside together carry all of them. The bandwidth of those links together is the
// level's collective_bandwidth. If the level has none, it is the bandwidth of the member's uplink, of all its rails, or
// of one link for each device, depending on which links the level has. A collective among k of a member's g devices
// gets the fraction k/g of that bandwidth. So a ring over a tree of PCIe switches is as fast as the narrowest uplink
// that it crosses.
//
// Among n devices in N innermost groups, a ring's message crosses n-N edges inside groups and N edges between groups.
// In trees, a message crosses ceil(log2 N) edges between groups and k-1 edges inside groups, in each direction. In the
// hierarchy, a ring that joins m members of a group moves (m-1)/m of the bytes twice, in 2 (m-1) messages, and the
// rings of one level wait for those of the level inside. Groups that hold different numbers of the devices have no
// hierarchy.
//
// A Shared link carries what all members send. A half duplex uplink or rail carries both what its member sends and what
// it receives. So does the half duplex link of a group of two members.
//
// If links have protocols, the collective uses the fastest one for its bytes.
//
// AllReduceS is the simpler model, for the papers' planners and small clusters. In that model the messages of a step
// start together, and the step lasts as long as the slowest edge.
func (c *Cluster) CollectiveS(devices []int, bytes float64, what Collective) float64 {
	if len(devices) < 2 || bytes <= 0 {
		return 0
	}
	outer := c.LevelOf(devices[0], devices[len(devices)-1])
	return c.leastOf(devices, func(c *Cluster, tree func(level int) float64) float64 {
		return c.collectiveS(devices, bytes, what, outer, tree)
	})
}

// collectiveS is CollectiveS for one protocol. `outer` is the level that joins all devices. `tree` returns the latency
// of a hop in a level's tree.
func (c *Cluster) collectiveS(devices []int, bytes float64, what Collective, outer int,
	tree func(level int) float64) float64 {
	n := float64(len(devices))
	inner, groups := c.Levels[0], c.members(devices, 0)
	k := n / groups
	rate, hops := math.Inf(1), (n-groups)*inner.LatencyS
	levels := 0.0 // of the hierarchy: seconds of the rings of each level, one after the other
	rings := func(level int, rate float64) {
		joined := c.joined(devices, level)
		m := float64(joined[0])
		if slices.Max(joined) != slices.Min(joined) {
			levels = math.Inf(1)
		}
		levels += 2 * ((m-1)/m*bytes/rate + (m-1)*c.Levels[level].LatencyS)
	}
	if k > 1 {
		rate = inner.collective() / c.carries(0, devices)
		rings(0, rate)
	}
	for i := 1; i <= outer; i++ {
		inside := c.members(devices, i-1) // how many members of level i have some of the devices
		if c.Levels[i].Uplinks || c.Levels[i].Rails > 0 || inside > c.members(devices, i) {
			each := c.CollectiveBandwidth(i) * n / inside / float64(c.groupSize(i-1))
			each /= c.carries(i, devices)
			rate = min(rate, each)
			rings(i, each)
		}
	}
	if outer > 0 {
		hops += groups * c.Levels[outer].LatencyS
	}
	once := (n-1)/n*bytes/rate + hops
	if what == Gather {
		return once
	}
	if groups < 2 {
		return 2 * once
	}
	trees := 2 * ((n-1)/n*bytes/rate + math.Ceil(math.Log2(groups))*tree(outer) + (k-1)*tree(0))
	return min(2*once, trees, levels)
}

// carries returns how many times the busiest link of a level carries what one member sends. A Shared link carries the
// bytes of all members of its group. A half duplex link carries a member's bytes twice, in and out, if it is an uplink
// or a rail, or if it joins the only two members of its group. Any other link carries them once. The result is 1 for a
// level with a collective_bandwidth: that bandwidth is measured, so it already includes these effects. devices are in
// ascending order.
func (c *Cluster) carries(level int, devices []int) float64 {
	l := c.Levels[level]
	most := 1
	if l.CollectiveBandwidthBytesPerSecond > 0 {
		return 1
	}
	for _, n := range c.joined(devices, level) {
		switch {
		case l.Shared:
			most = max(most, n)
		case !l.FullDuplex && (l.Uplinks || l.Rails > 0 || n == 2):
			most = 2
		}
	}
	return float64(most)
}

// joined returns, for each group of a level, how many of its members have some of the devices. The devices are in
// ascending order. Groups without any of the devices are left out.
func (c *Cluster) joined(devices []int, level int) (counts []int) {
	size, inside := c.groupSize(level), c.groupSize(level-1)
	group, member := -1, -1
	for _, d := range devices {
		if g := d / size; g != group {
			counts, group = append(counts, 0), g
		}
		if m := d / inside; m != member {
			counts[len(counts)-1]++
			member = m
		}
	}
	return counts
}

// members returns how many groups of a level contain some of the devices, which are in ascending order.
func (c *Cluster) members(devices []int, level int) (n float64) {
	size, last := c.groupSize(level), -1
	for _, d := range devices {
		if g := d / size; g != last {
			n, last = n+1, g
		}
	}
	return n
}

// CollectiveBandwidth returns the bandwidth that CollectiveS assumes on a level if whole members take part. On level 0
// it is the bandwidth of one device. On other levels it is the bandwidth of a member over all of its links.
func (c *Cluster) CollectiveBandwidth(level int) float64 {
	l := c.Levels[level]
	switch {
	case level == 0 || l.CollectiveBandwidthBytesPerSecond > 0 || l.Uplinks || l.Shared:
		return l.collective()
	case l.Rails > 0:
		return l.BandwidthBytesPerSecond * float64(l.Rails)
	default:
		return l.BandwidthBytesPerSecond * float64(c.groupSize(level-1))
	}
}
