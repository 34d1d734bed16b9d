package bound

import (
	"math"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/plan"
)

// lines holds the data that crosses cuts, and the speed of the links.
type lines struct {
	near, far []cluster.Line // `near` has all links, `far` only those between groups
	tied      []tie
	cutBytes  []float64   // bytes of a micro-batch, by the layer after the cut
	slices    [][]float64 // bytes of a slice, by number of replicas and the layer after the cut
}

func (s *serverBound) linesOf() (out lines) {
	n, W := len(s.p.Layers), s.kind.Workers
	for i, l := range s.c.Levels {
		if l.Size < 2 {
			continue
		}
		one := cluster.Line{FixedS: l.LatencyS, PerByteS: 1 / l.BandwidthBytesPerSecond}
		for _, node := range s.c.Nodes {
			if i == 0 && node.BandwidthBytesPerSecond > 0 {
				one.PerByteS = min(one.PerByteS, 1/node.BandwidthBytesPerSecond)
			}
			if i == 0 && node.LatencyS > 0 {
				one.FixedS = min(one.FixedS, node.LatencyS)
			}
		}
		out.near = append(out.near, one)
		if i >= s.level {
			out.far = append(out.far, one)
		}
	}
	out.cutBytes = make([]float64, n)
	for k := range n {
		if k > 0 {
			out.cutBytes[k] = float64(s.leastCut(k))
		}
		if l := s.p.Layers[k]; l.TiedTo >= 0 && len(out.near) > 0 {
			out.tied = append(out.tied, tie{l.TiedTo, k, fastest(out.near, float64(l.TiedBytes))})
		}
	}
	if s.split {
		out.slices = table(W+1, n)
		for r := 1; r <= W; r++ {
			for k := 1; k < n; k++ {
				out.slices[r][k] = s.sliceBytes(k, r)
			}
		}
	}
	return out
}

// tie is a pair of layers that share parameters. If the layers are in two stages, each stage waits at least takesS for
// the other's gradients.
type tie struct {
	owner, layer int
	takesS       float64
}

// tiedS returns the time that a stage of these layers waits for gradients of shared parameters.
func (f *lines) tiedS(first, end int) (most float64) {
	for _, t := range f.tied {
		if a, b := first <= t.owner && t.owner < end, first <= t.layer && t.layer < end; a != b {
			most = max(most, t.takesS)
		}
	}
	return most
}

// sliceBytes returns a lower bound on the bytes of a replica's slice that cross the cut before a layer, in each
// direction. r is the number of replicas, each of which has a slice of every micro-batch. sliceBytes returns 0 if the
// bytes are unknown.
func (b *bounder) sliceBytes(layer, r int) float64 {
	least := math.Inf(1)
	for _, t := range b.types {
		if costs := b.at(t, r); costs != nil {
			least = min(least, float64(b.p.GradientBytes(costs, layer-1)))
		}
	}
	if math.IsInf(least, 1) {
		return 0
	}
	return least
}

// transferS returns the least time, in seconds, in which one device gets its data over the cut before layer k. The
// device's stage has q devices, and the stage before has at most d.
func (f *fillBound) transferS(k, d, q int, links []cluster.Line) float64 {
	bytes := f.cutBytes[k]
	if f.split {
		bytes /= float64(min(f.kind.Workers, q*((d+q-1)/q+1)))
	}
	return fastest(links, bytes)
}

// fastest returns the least time that bytes take over one of the links, or 0 without links.
func fastest(links []cluster.Line, bytes float64) float64 {
	least := math.Inf(1)
	for _, l := range links {
		least = min(least, l.Of(bytes))
	}
	if math.IsInf(least, 1) {
		return 0
	}
	return least
}

// occupied returns the least time for which bytes occupy one of the links. It returns 0 without links. It leaves out
// latency, because the link with the least latency may be another one.
func occupied(links []cluster.Line, bytes float64) float64 {
	least := math.Inf(1)
	for _, l := range links {
		least = min(least, l.PerByteS*bytes)
	}
	if math.IsInf(least, 1) {
		return 0
	}
	return least
}

// thereAndBack returns the least time to send data over the cut before layer k and gradients back. They are sent
// between the first devices of two stages, which have q and r devices. With split micro-batches, the two devices have
// as many rows in common as the smaller slice has.
func (f *fillBound) thereAndBack(k, q, r int, links []cluster.Line) float64 {
	if !f.split {
		return 2 * fastest(links, f.cutBytes[k])
	}
	return fastest(links, f.slices[q][k]*min(1, float64(q)/float64(r))) +
		fastest(links, f.slices[r][k]*min(1, float64(r)/float64(q)))
}

// reduceS returns the least time that the devices of a set take to sum this many bytes.
func (f *fillBound) reduceS(set int, bytes int64) float64 {
	if f.counted {
		if set <= f.kind.Workers {
			return f.inside[set].of(bytes)
		}
		return f.across[set-f.kind.Workers].of(bytes)
	}
	var all []int
	for g, n := range f.sets[set] {
		for i := range n {
			all = append(all, g*f.size+i)
		}
	}
	if bytes == 0 || len(all) < 2 {
		return 0
	}
	return f.c.AllReduceS(all, bytes)
}

// left returns how much of the time of a gradient sum is left after the last backward, indexed by the number of summed
// layers. The first of these layers is layer k, and r devices of a set sum their gradients. A layer's gradient is ready
// once the backward has passed it and the layers after it. The gradients of earlier layers are summed later. Let S be
// the time of the sum; a fraction of the bytes takes the same fraction of this time (package sim). Then the result is
//
//	max over layers l of S of k..l - (c - f) of k..l-1
//
// Here c - f is the minimum of forward plus backward, less the minimum forward. It is the part of the counted work
// that the last backward of layers k..l-1 takes.
func (f *fillBound) left(set, k, r int) []float64 {
	if row := f.rows[set][k]; row != nil {
		return row
	}
	n := len(f.p.Layers)
	row := make([]float64, n-k+1)
	f.rows[set][k] = row
	crowded, sum, ahead := f.c.Crowded(2), f.sum[r], f.ahead[r]
	for j := k + 1; j <= n && r > 1; j++ {
		bytes := f.params[j] - f.params[k]
		if bytes == 0 {
			continue
		}
		all := f.reduceS(set, bytes)
		if crowded {
			row[j-k] = all
			continue
		}
		for l := k; l < j; l++ {
			part := float64(f.params[l+1]-f.params[k]) / float64(bytes)
			row[j-k] = max(row[j-k], part*all-(sum[l]-sum[k]-ahead[l]+ahead[k]))
		}
	}
	return row
}

// crosses reports whether `micros` micro-batches can cross the cut before layer k within T. They start after the time
// `fill`, and the stages before the cut use d devices.
func (f *fillBound) crosses(k int, micros float64, links, d int, fill, T float64) bool {
	if micros == 0 {
		return true
	}
	bytes := f.bytes[k] * f.perByte
	switch {
	case f.oneLink && f.oneWay && 2*micros*bytes > T:
		return false
	case f.oneLink:
	case f.serverBound.split:
		micros /= float64(links)
	default:
		micros = math.Ceil(micros/float64(links) - plan.SameTime)
	}
	taken := fill + micros*bytes + f.rear[f.kind.Workers-d][k]
	if !f.serverBound.split {
		taken += bytes
	}
	return taken <= T
}

// pair reports whether two devices of stages with q and r devices can exchange their data within T. Their link carries
// one message at a time. With round robin, the two devices share every lcm(q, r)-th micro-batch.
func (f *fillBound) pair(k, q, r int, links []cluster.Line, fill []float64, beside, T float64) bool {
	if f.split {
		slice := occupied(links, f.slices[q][k]*min(1, float64(q)/float64(r)))
		back := occupied(links, f.slices[r][k]*min(1, float64(r)/float64(q)))
		return max(fill[0], fill[1])+float64(f.M)*max(slice, back)+min(slice, back)+beside <= T
	}
	a, b := q, r
	for b != 0 {
		a, b = b, a%b
	}
	apart := q / a * r
	takes := occupied(links, f.cutBytes[k])
	return fill[0]+float64((f.M+apart-1)/apart+1)*takes+beside <= T
}

// gathered reports whether a spread stage's data can reach the local stage after it within T. It counts the data
// that is outside the local stage's group.
func (f *fillBound) gathered(k int, m move, from place, fill, T float64) bool {
	crosses := func(q int) bool {
		away := q - min(f.size-m.others, q-1)
		return f.crosses(k, f.micros(q, away), q*m.devices, from.used, fill, T)
	}
	if from.last > 0 {
		return crosses(from.last)
	}
	for q := 2; q <= from.used; q++ {
		if crosses(q) {
			return true
		}
	}
	return false
}

// passes reports whether all micro-batches can leave a group over its single link within T. They leave at some cut
// before layer k, and at least out.bytes cross each of these cuts.
func (f *fillBound) passes(out exit, k, d int, T float64) bool {
	taken := float64(f.M) * out.bytes * f.perByte
	return !f.oneLink || out.fill+taken+f.rear[f.kind.Workers-d][k] <= T && (!f.oneWay || 2*taken <= T)
}

// micros returns the least number of micro-batches that `some` of r devices have together.
func (f *fillBound) micros(r, some int) float64 {
	if f.split {
		return float64(f.M) * float64(some) / float64(r)
	}
	return float64(f.M/r) * float64(some)
}
