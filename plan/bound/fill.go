package bound

import (
	"math"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
)

// fillBound is serverBound with the way of a micro-batch through the stages of a path, one by one. serverBound has
// the least that any stages could take in its place.
//
// Fill. Take stages b..i, b before i. Stage b begins a step after its own update in the step
// before. Then the first micro-batch of a device of stage i goes forward through b..i-1 and over the
// cuts between; the device works, and its last micro-batch goes back the same way before b
// sums and updates. With c the forward and backward of a stage on the rows that its replicas have, t
// the transfer over a cut, and e what is left of a sum behind a backward (see Bound) and the update,
//
//	step >= sum of c over b..i-1 + e of b + 2 sum of t over the cuts from b to i + work of i
//
// for every b. fill is the greatest of these over b up to the last cut, without it, and so with one more
// stage
//
//	fill' = c + max(fill + 2 t, e)
//
// With backwards in halves c and work are without the second halves, which can be put off.
//
// Where micro-batches are split, a device of q gets its slice from r others in pieces of which one is a
// part in q (ceil(r/q) + 1) of all at least; and it sends the gradient of that back to where it is from.
//
// Cuts. Before a link is first taken for a cut, fill has gone by, and the last of X micro-batches that
// cross it goes on through what is behind the cut, on the devices that are left at most, and back:
//
//	T >= fill + (X+1) a / rate + the way behind
//
// for the link of a group, and where each pair of devices has its own for the pair that carries most:
// X / (r q) of a stage of r and one of q, in whole micro-batches if these are not split. With
// split the last slice comes back alone: X, not X+1.
//
// Of all paths to a layer with as many devices used, and as many of the group of the last stage, the one
// with the least fill allows whatever the others do. So the least fill for each is enough; and
// of devices no fewer must be left than the work behind takes within T.
type fillBound struct {
	*serverBound
	least []float64 // fill by layer, kind and devices used
	// serverBound's sum of what a micro-batch's way there and back takes: with halves only the first
	pass         [][]float64
	work         []float64      // of the layers from one on, at least, on all devices
	behind       [][]float64    // the way through the layers from one on, by the devices it has at most
	near, far    []cluster.Line // links: all of them, and those between groups
	inside, away [][][]float64
	cutBytes     []float64
}

// maxFillStates bounds layers times devices, squared.
const maxFillStates = 1 << 22

func (s *serverBound) fill() *fillBound {
	n, W := len(s.p.Layers), s.kind.Workers
	if s.shared || n*n*W*W > maxFillStates {
		return nil
	}
	f := &fillBound{serverBound: s, pass: s.sum, least: make([]float64, (n+1)*(s.size+1)*(W+1)),
		work: make([]float64, n+1), cutBytes: make([]float64, n+1)}
	for k := n - 1; k >= 0; k-- {
		least := math.Inf(1)
		for _, t := range s.types {
			least = min(least, s.layer(t, k))
		}
		f.work[k] = f.work[k+1] + least
	}
	if s.kind.Halves {
		f.pass = make([][]float64, W+1)
		for r := 1; r <= W; r++ {
			f.pass[r] = s.prefix(r, func(c profile.Cost) float64 {
				if c.BackwardInputS != nil && c.BackwardWeightS != nil {
					return c.ForwardS + *c.BackwardInputS
				}
				return c.ForwardS + c.BackwardS
			})
		}
	}
	// The way through layers on d devices or fewer.
	f.behind = make([][]float64, W+1)
	for d := 1; d <= W; d++ {
		f.behind[d] = make([]float64, n+1)
		for k := n - 1; k >= 0; k-- {
			own := math.Inf(1)
			if d > 1 {
				own = f.behind[d-1][k] - f.behind[d-1][k+1]
			}
			if pass := f.pass[d]; pass != nil {
				own = min(own, pass[k+1]-pass[k])
			}
			if math.IsInf(own, 1) {
				own = 0
			}
			f.behind[d][k] = f.behind[d][k+1] + own
		}
	}
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
		f.near = append(f.near, one)
		if i >= s.level {
			f.far = append(f.far, one)
		}
	}
	for k := 1; k < n; k++ {
		f.cutBytes[k] = float64(s.leastCut(k))
	}
	f.inside, f.away = make([][][]float64, W+1), make([][][]float64, W+1)
	for r := range f.inside {
		f.inside[r], f.away[r] = make([][]float64, n), make([][]float64, n)
	}
	return f
}

// transferS is the least time, in seconds, of the cut before layer k on the way to one of q devices. It comes from
// one of up to d devices.
func (f *fillBound) transferS(k, d, q int, links []cluster.Line) float64 {
	bytes := f.cutBytes[k]
	if f.split {
		bytes /= float64(min(f.kind.Workers, q*((d+q-1)/q+1)))
	}
	least := math.Inf(1)
	for _, l := range links {
		least = min(least, l.Of(bytes))
	}
	if math.IsInf(least, 1) {
		return 0
	}
	return least
}

// left is what of the sum over r devices of the layers from k on is left behind a backward, by the layers'
// end.
func (f *fillBound) left(rows [][][]float64, reduce []leastReduce, k, r int) []float64 {
	if rows[r][k] == nil {
		n := len(f.p.Layers)
		row := make([]float64, n-k+1)
		for j := k + 1; j <= n && r > 1; j++ {
			sums := reduce[r].of(f.params[j] - f.params[k])
			if !f.c.Crowded(2) {
				sums = max(0, sums-(f.sum[r][j]-f.sum[r][k]))
			}
			row[j-k] = sums
		}
		rows[r][k] = row
	}
	return rows[r][k]
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
	taken := fill + micros*bytes + f.behind[f.kind.Workers-d][k]
	if !f.serverBound.split {
		taken += bytes
	}
	return taken <= T
}

// reached says whether a path comes to the last layer within T.
func (f *fillBound) reached(T float64) bool {
	n, W, kinds := len(f.p.Layers), f.kind.Workers, f.size+1
	for i := range f.least {
		f.least[i] = math.Inf(1)
	}
	at := func(k, kind int) []float64 { return f.least[(k*kinds+kind)*(W+1):][:W+1] }
	at(0, 0)[0] = 0
	for k := range n {
		most := W - int(math.Ceil(f.work[k]/T*(1-plan.SameTime)))
		for kind := range kinds {
			for d, fill := range at(k, kind) {
				if d > most || math.IsInf(fill, 1) {
					continue
				}
				for r := 1; d+r <= W; r++ {
					if f.sum[r] == nil {
						continue
					}
					f.follow(k, kind, d, r, fill, T, at)
				}
			}
		}
	}
	for kind := range kinds {
		for _, fill := range at(n, kind) {
			if !math.IsInf(fill, 1) {
				return true
			}
		}
	}
	return false
}

// follow takes a path on by a stage of r devices, of each kind that it can be.
func (f *fillBound) follow(k, kind, d, r int, fill, T float64, at func(k, kind int) []float64) {
	if k == 0 {
		if r <= f.size {
			f.stage(k, r, r, d, 0, T, f.left(f.inside, f.serverBound.inside, k, r), at)
		}
		if r > 1 {
			f.stage(k, 0, r, d, 0, T, f.left(f.away, f.across, k, r), at)
		}
		return
	}
	near := fill + 2*f.transferS(k, d, r, f.near)
	times := float64(f.M)
	if !f.split {
		times = float64((f.M + r - 1) / r)
	}
	if near+times*(f.pass[r][k+1]-f.pass[r][k]) > T {
		return
	}
	inside, away := func() []float64 {
		return f.left(f.inside, f.serverBound.inside, k, r)
	}, func() []float64 { return f.left(f.away, f.across, k, r) }
	if kind == 0 {
		if r > 1 {
			f.stage(k, 0, r, d, near, T, away(), at)
		}
		if r <= f.size {
			for q := 2; q <= d; q++ {
				if f.crosses(k, f.outside(q, r), q*r, d, fill, T) {
					f.stage(k, r, r, d, near, T, inside(), at)
					break
				}
			}
		}
		return
	}
	if kind+r <= f.size {
		f.stage(k, kind+r, r, d, near, T, inside(), at)
	}
	if r <= f.size && f.crosses(k, float64(f.M), kind*r, d, fill, T) {
		f.stage(k, r, r, d, fill+2*f.transferS(k, d, r, f.far), T, inside(), at)
	}
	if r > 1 && f.crosses(k, f.outside(r, kind), kind*r, d, fill, T) {
		f.stage(k, 0, r, d, near, T, away(), at)
	}
}

// stage ends a stage of r devices that begins with layer k behind each layer that it can within T; before is
// the fill and the cut.
func (f *fillBound) stage(k, kind, r, d int, before, T float64, left []float64, at func(k, kind int) []float64) {
	sum, pass, times := f.sum[r], f.pass[r], float64(f.M)
	if !f.split {
		times = float64((f.M + r - 1) / r)
	}
	for j := k + 1; j < len(sum); j++ {
		c := pass[j] - pass[k]
		behind := left[j-k] + f.update[j] - f.update[k]
		if before+times*c > T || times*(sum[j]-sum[k])+behind > T {
			return
		}
		cell := &at(j, kind)[d+r]
		*cell = min(*cell, c+max(before, behind))
	}
}
