package cluster

import "math"

// Collective is a kind of collective operation.
type Collective int

// The collectives that CollectiveS can time.
const (
	AllReduce Collective = iota
	Gather               // an all-gather or a reduce-scatter
)

// CollectiveS returns the time of a collective among devices, in seconds, as NCCL carries it out. devices are in
// ascending order and bytes is the total size. The other devices of the same groups run the same collective at the
// same time. The result is the faster of two algorithms: rings that leave an innermost group by every rail of its
// devices and, for an all-reduce, double binary trees between the groups.
//
// A ring of n devices moves (n-1)/n of the bytes over every edge, twice for an all-reduce. With k devices in a group
// there are k rings, each with its part of the bytes. So an edge inside the group carries nearly all bytes, and the
// group's links to the outside together carry all of them. Those links have the group's collective_bandwidth, or
// that of one link per device, or that of its one uplink. A collective among k of a group's g devices gets the
// fraction k/g of it. Among n devices in N groups a ring's message passes n-N edges inside groups and N between
// them. In trees it passes ceil(log2 N) between groups and k-1 inside, in each direction.
//
// AllReduceS is the simpler model, for the papers' planners and small clusters: messages in lockstep, each as long
// as the slowest edge.
func (c *Cluster) CollectiveS(devices []int, bytes float64, what Collective) float64 {
	n := float64(len(devices))
	if n < 2 || bytes <= 0 {
		return 0
	}
	inner := c.Levels[0]
	outer := c.LevelOf(devices[0], devices[len(devices)-1])
	groups, last := 0.0, -1
	for _, d := range devices {
		if g := d / inner.Size; g != last {
			groups, last = groups+1, g
		}
	}
	k := n / groups
	rate, hops := math.Inf(1), (n-groups)*inner.LatencyS
	if k > 1 {
		rate = inner.collective()
	}
	far := 0.0
	if outer > 0 {
		rate = min(rate, c.CollectiveBandwidth(outer)*k/float64(inner.Size))
		for i := 1; i < outer && c.Levels[outer].Rails > 0; i++ { // a rack's rails carry no more than its groups' links
			rate = min(rate, c.CollectiveBandwidth(i)*k/float64(inner.Size))
		}
		far = c.Levels[outer].LatencyS
		hops += groups * far
	}
	once := (n-1)/n*bytes/rate + hops
	if what == Gather {
		return once
	}
	if groups < 2 {
		return 2 * once
	}
	tree := 2 * ((n-1)/n*bytes/rate + math.Ceil(math.Log2(groups))*far + (k-1)*inner.LatencyS)
	return min(2*once, tree)
}

// CollectiveBandwidth returns the bandwidth that CollectiveS assumes on a level when whole innermost groups take
// part. On level 0 it is that of one device, on other levels that of a group over all of its rails.
func (c *Cluster) CollectiveBandwidth(level int) float64 {
	l := c.Levels[level]
	switch {
	case level == 0 || l.CollectiveBandwidthBytesPerSecond > 0 || l.Uplinks || l.Shared:
		return l.collective()
	case l.Rails > 0:
		return l.BandwidthBytesPerSecond * float64(l.Rails)
	default:
		return l.BandwidthBytesPerSecond * float64(c.Levels[0].Size)
	}
}
