package bound

import (
	"math"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/plan"
)

// lines are what goes over cuts, and how fast it may.
type lines struct {
	near, far []cluster.Line // links: all of them, and those between groups
	tied      []tie
	cutBytes  []float64   // of a micro-batch, by layer
	slices    [][]float64 // by replicas and layer: of a slice
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

// tie is two layers that share parameters; in two stages each waits for the other's gradients, so long at least.
type tie struct {
	owner, layer int
	takesS       float64
}

// tiedS is how long a stage of these layers waits for gradients that it shares with others.
func (f *lines) tiedS(first, end int) (most float64) {
	for _, t := range f.tied {
		if a, b := first <= t.owner && t.owner < end, first <= t.layer && t.layer < end; a != b {
			most = max(most, t.takesS)
		}
	}
	return most
}

// sliceBytes is the least bytes that cross the cut before a layer each way of the rows that each of r replicas has; 0
// where they are not known.
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

// transferS is the least time, in seconds, of the cut before layer k on the way to one of q devices. It comes from
// one of up to d devices.
func (f *fillBound) transferS(k, d, q int, links []cluster.Line) float64 {
	bytes := f.cutBytes[k]
	if f.split {
		bytes /= float64(min(f.kind.Workers, q*((d+q-1)/q+1)))
	}
	return fastest(links, bytes)
}

// fastest is the least that bytes take over one of some links; 0 where there are none.
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

// thereAndBack is what the cut before layer k takes between the first devices of a stage of q and one of r: of a split
// micro-batch these share as many rows as the smaller slice has.
func (f *fillBound) thereAndBack(k, q, r int, links []cluster.Line) float64 {
	if !f.split {
		return 2 * fastest(links, f.cutBytes[k])
	}
	return fastest(links, f.slices[q][k]*min(1, float64(q)/float64(r))) +
		fastest(links, f.slices[r][k]*min(1, float64(r)/float64(q)))
}

// reduceS is how long devices of a set take to sum bytes, at least.
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

// left is what is left of a sum of gradients behind the last backward, by the end of the summed layers. These begin
// with layer k, and are summed over r devices of a set. Gradients of a layer are there when it and those behind it have
// been gone back through, and those of the layers before it are summed behind its own: with S for the sum's time, of
// which a part of the bytes takes as large a part (package sim), that is
//
//	max over layers l of S of k..l - (c - f) of k..l-1
//
// where c - f, the least of forward and backward without the least forward, is what these layers' last backward has of
// the work that the step was counted to have at least.
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

// crosses says whether micro-batches can cross the cut before layer k within T, after some fill and
// with so many devices used before it.
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

// pair says whether two devices of a stage of q and of one of r can send each other what they must within T: one link
// carries what goes from one device to another, one message after the other. In turn they share every lcm(q, r)-th
// micro-batch.
func (f *fillBound) pair(k, q, r int, links []cluster.Line, fill []float64, beside, T float64) bool {
	latency := fastest(links, 0)
	if f.split {
		slice := fastest(links, f.slices[q][k]*min(1, float64(q)/float64(r))) - latency
		back := fastest(links, f.slices[r][k]*min(1, float64(r)/float64(q))) - latency
		return max(fill[0], fill[1])+float64(f.M)*max(slice, back)+min(slice, back)+beside <= T
	}
	a, b := q, r
	for b != 0 {
		a, b = b, a%b
	}
	apart := q / a * r
	takes := fastest(links, f.cutBytes[k]) - latency
	return fill[0]+float64((f.M+apart-1)/apart+1)*takes+beside <= T
}

// gathered says whether what a spread stage has outside of the group of the local one behind it can cross within T.
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

// passes says whether all micro-batches can leave a group by its one link within T. They do so at one cut or another
// before layer k, all of which are as wide as the narrowest.
func (f *fillBound) passes(out exit, k, d int, T float64) bool {
	taken := float64(f.M) * out.bytes * f.perByte
	return !f.oneLink || out.fill+taken+f.rear[f.kind.Workers-d][k] <= T && (!f.oneWay || 2*taken <= T)
}

// micros is how many micro-batches some of r devices have, at least.
func (f *fillBound) micros(r, some int) float64 {
	if f.split {
		return float64(f.M) * float64(some) / float64(r)
	}
	return float64(f.M/r) * float64(some)
}
