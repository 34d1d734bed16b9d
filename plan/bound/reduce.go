package bound

import (
	"math"
	"slices"

	"github.com/millrace-ml/millrace/cluster"
)

// leastReduce bounds from below how long some number of devices, wherever they are, take to
// sum bytes: no less than one of these lines in the bytes, whichever is lowest.
//
// Rings inside rings: let n_i be the most groups of level i that one ring of that level joins. A group of
// level i holds at most n_i of what is inside, so that r devices need a product of all n_i of r at least.
// Every level takes 2 (n_i - 1) messages of bytes / n_i over its links, one level after the other. Its groups
// share the bytes over their rails, of which the smallest has no more than devices: the product of the n_i
// inside at most, and r / n_i.
//
// Rings over all: where r devices are in several groups of some levels, these levels' sizes have a product of
// r at least, and an edge of a ring crosses each. Each of 2 (r-1) steps takes a chunk of bytes / r over the
// slowest edge, or a part of one where there are rails: no more of them than the sizes of the levels inside
// make, and r / 2.
//
// So a bound is the least over cases, and in each the most over lines in the bytes.
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

// leastReduces is by number of devices up to some; of none and of one it is empty. The devices
// are in one group of the first `inside` levels, or where across is set in several groups of these.
func leastReduces(c *cluster.Cluster, most, inside int, across bool) []leastReduce {
	levels, fewest := c.Levels, 0 // from level fewest on some ring joins several groups
	if across {
		fewest = inside
	} else {
		levels = levels[:inside]
	}
	fastest := make([]cluster.Line, len(levels)) // link of each level
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
				break // more only takes longer: there are rails for all devices
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

// ring is a ring of a level that joins n groups, with so many devices inside each at most.
type ring struct{ level, n, inside int }

// railsAtMost bounds the rails out of the smallest of some groups that a level joins.
func railsAtMost(levels []cluster.Level, level, inside, devices int) int {
	l := levels[level]
	if level == 0 || l.Uplinks || l.Shared || l.CollectiveBandwidthBytesPerSecond > 0 {
		return 1
	}
	return max(1, min(inside, devices))
}

// fastestLink is the least latency and seconds a byte of a level's rings.
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
