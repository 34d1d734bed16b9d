package bound

import (
	"math"
	"slices"

	"github.com/millrace-ml/millrace/cluster"
)

// leastReduce is a lower bound on the time that a number of devices take to sum bytes, wherever the devices are. Each
// entry is a case: a set of lines, each of which gives a time for a number of bytes. A case takes the time of its
// slowest line. The bound is the time of the fastest case.
//
// Rings inside rings: let n_i be the largest number of groups that one ring of level i joins. A group of level i holds
// at most n_i of the groups inside it. So for r devices, the product of all n_i is at least r. Every level takes 2 (n_i
// - 1) messages of bytes / n_i over its links, one level after the other. Its groups share the bytes over their rails.
// The smallest group has at most as many rails as devices. Its number of devices is at most the product of the inner
// n_i, and at most r / n_i.
//
// Rings over all devices: let r devices be in several groups of some levels. The product of these levels' sizes is then
// at least r, and an edge of the ring crosses each of these levels. Each of 2 (r-1) steps takes a chunk of bytes / r
// over the slowest edge. With rails, a rail takes only a part of the chunk. There are at most as many rails as the
// product of the inner levels' sizes, and at most r / 2.
type leastReduce [][]cluster.Line

func (l leastReduce) of(bytes int64) float64 {
	if bytes == 0 || len(l) == 0 {
		return 0
	}
	least := math.Inf(1)
	for _, lines := range l {
		most := 0.0
		for _, a := range lines {
			most = max(most, a.Of(float64(bytes)))
		}
		least = min(least, most)
	}
	return least
}

// leastReduces returns the bounds by number of devices, from 0 to `most`; those for 0 and 1 are empty. The devices are
// in one group of the first `inside` levels or, with `across`, in several such groups.
func leastReduces(c *cluster.Cluster, most, inside int, across bool) []leastReduce {
	levels, fewest := c.Levels, 0 // fewest: with `across`, the lowest level on which some ring joins several groups
	if across {
		fewest = inside
	} else {
		levels = levels[:inside]
	}
	fastest := make([]cluster.Line, len(levels)) // fastest link of each level
	for i, l := range levels {
		fastest[i] = fastestLink(c, i, l)
	}
	out := make([]leastReduce, most+1)
	add := func(r int, lines ...cluster.Line) {
		if len(lines) == 1 && slices.ContainsFunc(out[r], func(b []cluster.Line) bool {
			return len(b) == 1 && b[0].FixedS <= lines[0].FixedS && b[0].PerByteS <= lines[0].PerByteS
		}) {
			return
		}
		out[r] = append(out[r], lines)
	}
	var nested func(level, devices int, apart bool, rings []ring)
	nested = func(level, devices int, apart bool, rings []ring) {
		if level == len(levels) {
			for r := 2; r <= min(devices, most) && (apart || !across); r++ {
				so := cluster.Line{}
				for _, x := range rings {
					so = so.Then(fastest[x.level].Over(railsAtMost(levels, x.level, x.inside, r/x.n)).Ring(x.n))
				}
				add(r, so)
			}
			return
		}
		for n := 1; n <= levels[level].Size; n++ {
			joined := rings
			if n > 1 {
				joined = append(slices.Clip(rings), ring{level, n, devices})
			}
			nested(level+1, devices*n, apart || n > 1 && level >= fewest, joined)
			if devices*n >= most && (n > 1 || apart || !across) {
				break // larger n only takes longer: there are rails for all devices
			}
		}
	}
	nested(0, 1, false, nil)
	var crossed func(level, devices int, apart bool, edges []ring)
	crossed = func(level, devices int, apart bool, edges []ring) {
		if level == len(levels) {
			for r := 2; r <= min(devices, most) && (apart || !across); r++ {
				var lines []cluster.Line
				for _, x := range edges {
					lines = append(lines, fastest[x.level].Over(railsAtMost(levels, x.level, x.inside, r/2)).Ring(r))
				}
				add(r, lines...)
			}
			return
		}
		crossed(level+1, devices, apart, edges)
		if size := levels[level].Size; size > 1 {
			crossed(level+1, devices*size, apart || level >= fewest,
				append(slices.Clip(edges), ring{level, size, devices}))
		}
	}
	crossed(0, 1, false, nil)
	return out
}

// ring joins n groups of a level, with at most `inside` devices in each.
type ring struct{ level, n, inside int }

// railsAtMost returns the largest number of rails that the smallest of a ring's groups can have on a level.
func railsAtMost(levels []cluster.Level, level, inside, devices int) int {
	l := levels[level]
	if level == 0 || l.Uplinks || l.Shared || l.CollectiveBandwidthBytesPerSecond > 0 {
		return 1
	}
	return max(1, min(inside, devices))
}

// fastestLink returns the least latency and the least seconds per byte of a level's rings.
func fastestLink(c *cluster.Cluster, i int, l cluster.Level) cluster.Line {
	bandwidth, latency := l.BandwidthBytesPerSecond, l.LatencyS
	if l.CollectiveBandwidthBytesPerSecond > 0 {
		bandwidth = l.CollectiveBandwidthBytesPerSecond
	}
	if i == 0 {
		for _, n := range c.Nodes {
			bandwidth = max(bandwidth, n.BandwidthBytesPerSecond)
			if n.LatencyS > 0 {
				latency = min(latency, n.LatencyS)
			}
		}
	}
	return cluster.Line{FixedS: latency, PerByteS: 1 / bandwidth}
}
