package cluster

import "math"

// Collective is what devices do together.
type Collective int

// The collectives that CollectiveS knows.
const (
	AllReduce Collective = iota
	Gather               // an all-gather or a reduce-scatter
)

// CollectiveS is the time of a collective of bytes in all among ascending devices, in seconds, as NCCL carries it
// out. Alike collectives of the other devices of the same groups go on beside it. It is the faster of rings that
// leave a group of the innermost level by every rail that its devices have, and, for an all-reduce, double binary
// trees between the groups.
//
// A ring of n devices moves (n-1)/n of the bytes over every edge, twice for an all-reduce. With k devices in a group
// there are k rings, each with its part, so that edges inside carry nearly all bytes, and the group's way out all of
// them. That way out is the group's collective_bandwidth, or as many links as it has devices, or its one uplink; of it
// a collective of k of a group's g devices has the part k/g. Between n devices in N groups a message passes n-N edges
// inside and N outside; in trees ceil(log2 N) outside and k-1 inside, each way.
//
// AllReduceS is for the papers' planners and small clusters: messages in step, each as long as the slowest edge.
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

// CollectiveBandwidth is what CollectiveS takes a level's collectives to reach where a whole group of the innermost
// level takes part: inside, what a device does; outside, what a group does over all of its rails.
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
