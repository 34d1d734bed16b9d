package bound

import (
	"math"
	"slices"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/plan"
)

// of returns fill(w) of a layer and a place for each width w, in the order of widths.
func (f *fillBound) of(k, place int) []float64 {
	w := len(f.widths)
	return f.least[(k*len(f.all)+place)*w:][:w]
}

// reached reports whether some path may reach the last layer within T. If the effort is spent, it reports true.
func (f *fillBound) reached(T float64) bool {
	n, W := len(f.p.Layers), f.kind.Workers
	if f.effort.over() {
		return true
	}
	f.goBack(T)
	if math.IsInf(f.rear[W][0], 1) {
		return false
	}
	for i := range f.least {
		f.least[i] = math.Inf(1)
	}
	for i := range f.out {
		f.out[i], f.tail[i] = exit{math.Inf(1), math.Inf(1)}, math.Inf(1)
	}
	for w := range f.widths {
		f.of(0, 0)[w] = 0
	}
	for k := range n {
		for place := range f.all {
			fill := f.of(k, place)
			if math.IsInf(fill[0], 1) {
				continue
			}
			left := float64(W - f.all[place].used)
			window := T
			if !f.kind.Halves {
				window -= fill[0]
			}
			if left*window < f.work[k]*(1-plan.SameTime) {
				continue
			}
			if f.effort.over() {
				return true
			}
			f.at = parent{layer: k, place: place}
			for _, m := range f.all[place].next {
				if f.sum[m.devices] != nil {
					f.follow(k, m, f.all[place], fill, T)
				}
			}
		}
	}
	for place := range f.all {
		if !math.IsInf(f.of(n, place)[0], 1) {
			return true
		}
	}
	return false
}

// goBack computes f.rear and f.front. `rear` has the least time from a layer through all later ones and back to it, on
// no more than a given number of devices. `front` adds the cut before the layer.
func (f *fillBound) goBack(T float64) {
	n, W := len(f.p.Layers), f.kind.Workers
	for d := range f.rear {
		for k := range n {
			f.rear[d][k] = math.Inf(1)
			for _, front := range f.front {
				front[d][k] = math.Inf(1)
			}
		}
	}
	for k := n - 1; k >= 0; k-- {
		for d := 1; d <= W; d++ {
			f.effort.spend(d)
			f.rear[d][k] = f.rear[d-1][k]
			for _, front := range f.front {
				front[d][k] = front[d-1][k]
			}
			for r := 1; r <= d; r++ {
				if f.sum[r] == nil {
					continue
				}
				way := math.Inf(1)
				X, pass, sum, ahead, back, next := f.most(r), f.pass[r], f.sum[r], f.ahead[r], f.back[r], f.front[f.lasts(r)]
				for j := k + 1; j <= n && X*(sum[j]-sum[k]) <= T; j++ {
					if X*(back[j]-back[k])+ahead[j]-ahead[k]+next[d-r][j] <= T {
						way = min(way, pass[j]-pass[k]+next[d-r][j])
					}
				}
				if math.IsInf(way, 1) {
					continue
				}
				f.rear[d][k] = min(f.rear[d][k], way)
				for q, front := range f.front {
					if k > 0 && (q > 0 || !f.split) && q <= W-d {
						front[d][k] = min(front[d][k], way+f.thereAndBack(k, q, r, f.near))
					}
				}
			}
		}
	}
}

// lasts returns what place.last records for a stage of r devices.
func (f *fillBound) lasts(r int) int {
	if f.split {
		return r
	}
	return 0
}

// most returns the largest number of micro-batches that one of r devices has.
func (f *fillBound) most(r int) float64 {
	if f.split {
		return float64(f.M)
	}
	return float64((f.M + r - 1) / r)
}

// follow extends a path by one stage.
func (f *fillBound) follow(k int, m move, from place, fill []float64, T float64) {
	f.effort.spend(1)
	if k == 0 {
		clear(f.before)
		f.stage(k, m, from.used, f.before, exit{}, T)
		return
	}
	r, d := m.devices, from.used
	a := crossing{move: m, links: f.near, micro: f.bytes[k] * f.perByte, rear: f.rear[f.kind.Workers-d][k]}
	if m.way == leaves || m.way == spreads && m.away == r {
		a.links, a.far = f.far, f.oneLink
	}
	if m.apart {
		a.links = f.far
	}
	a.latency, a.every = 2*fastest(a.links, 0), 2*f.transferS(k, d, r, a.links)
	tail, one := a.every, a.every // one: time that at least one device needs; it is not known which
	if f.split {
		if a.named = a.every; from.last > 0 {
			a.named = max(a.every, f.thereAndBack(k, from.last, r, a.links))
		}
		if tail = a.named; a.far {
			a.every = max(a.every, a.latency+2*a.micro/float64(r))
			if from.last > 0 {
				one = max(one, a.latency+a.micro/float64(from.last))
			}
			tail = max(tail, one)
		}
	}
	at := k*len(f.all) + f.at.place
	out := f.out[at]
	if out.bytes = min(out.bytes, f.bytes[k]); from.at > 0 {
		out.fill = fill[0]
	}
	if fill[0]+a.every+f.most(r)*(f.pass[r][k+1]-f.pass[r][k]) > T || f.tail[at]+tail+a.rear > T ||
		!f.carries(k, a, from, fill, out, T) {
		return
	}
	before := f.before
	for i, w := range f.widths {
		if before[i] = fill[i] + a.every; a.far && !f.split {
			before[i] = max(before[i], fill[0]+a.every+float64(w-1)*a.micro)
		}
	}
	if f.split {
		before[1], before[2] = max(before[0], fill[1]+a.named), fill[2]+one
		if a.far { // the slices come one after the other, so some device gets the last of them
			before[2] = max(before[2], fill[0]+a.latency+a.micro+a.micro/float64(r))
		}
		if m.elsewhere && f.oneLink { // the whole slice has passed the single link of the last group, at some cut
			before[0] = max(before[0], out.fill+a.latency+out.bytes*f.perByte/float64(r))
		}
	}
	f.stage(k, m, d, before, out, T)
}

// crossing says how micro-batches reach a stage over a cut.
type crossing struct {
	move
	links        []cluster.Line
	far          bool    // each device receives everything over one group's single link
	latency      float64 // latency there and back
	every, named float64 // times there and back: `every` for any two devices, `named` for both stages' first devices
	micro        float64 // seconds that a whole micro-batch takes on a group's link
	rear         float64 // least time through the later layers and back
}

// carries reports whether the links can carry the data over the cut before layer k within T.
func (f *fillBound) carries(k int, a crossing, from place, fill []float64, out exit, T float64) bool {
	r, d := a.devices, from.used
	switch a.way {
	case leaves:
		if !f.crosses(k, float64(f.M), from.at*r, d, fill[0], T) {
			return false
		}
	case spreads:
		if !f.crosses(k, f.micros(r, a.away), from.at*r, d, fill[0], T) {
			return false
		}
	case moves:
		enter := float64(f.M/r) * float64(a.fresh)
		if f.serverBound.split {
			enter = float64(f.M) * a.part
		}
		if !f.crosses(k, enter, d*r, d, fill[0], T) {
			return false
		}
	case gathers:
		if a.elsewhere && !f.passes(out, k, d, T) || !f.gathered(k, a.move, from, fill[0], T) {
			return false
		}
	}
	return from.last == 0 || f.pair(k, from.last, r, a.links, fill, a.latency+a.rear, T)
}

// width returns the index of the largest of f.widths that is at most w.
func (f *fillBound) width(w int) int {
	i, found := slices.BinarySearch(f.widths, w)
	if found {
		return i
	}
	return i - 1
}

// stage adds the stages that begin with layer k, one for each last layer that is possible within T. `before` is fill
// plus the time of the cut before the stage.
func (f *fillBound) stage(k int, m move, d int, before []float64, out exit, T float64) {
	r := m.devices
	sum, pass, ahead, left := f.sum[r], f.pass[r], f.ahead[r], f.left(m.set, k, r)
	back, first := f.back[r], f.half[r]
	X := f.most(r)
	ready := before[0] // fill of the device that has the most micro-batches or, as far as known, begins last
	lastOfAll, all := 0.0, 0.0
	switch {
	case f.split:
		ready = max(before[0], before[1], before[2])
	case f.M >= r && k > 0: // devices take micro-batches round robin
		all, lastOfAll = float64(f.M/r), before[f.width(r)]
		if over := f.M % r; over > 0 {
			ready = max(ready, before[f.width(over)])
		} else {
			ready = max(ready, lastOfAll)
		}
	}
	known := before[0] // fill of a device whose path back through the later stages is also followed
	if f.split {
		known = max(before[0], before[1])
	}
	for j := k + 1; j < len(sum); j++ {
		f.effort.spend(1)
		c, work, fwd := pass[j]-pass[k], sum[j]-sum[k], ahead[j]-ahead[k]
		e := left[j-k] + f.tiedS(k, j) + f.update[j] - f.update[k]
		if ready+X*c > T || lastOfAll+all*c > T || X*work > T {
			return
		}
		b, half, rear := back[j]-back[k], first[j]-first[k], f.front[f.lasts(r)][f.kind.Workers-d-r][j]
		if X*work+e > T || fwd+rear+max(known+X*half, X*b+e) > T || X*fwd+rear+half+max(known, e) > T {
			continue
		}
		cell := f.of(j, m.to)
		if v := c + max(before[0], e); v < cell[0] {
			cell[0] = v
			f.from[j*len(f.all)+m.to] = parent{f.at.layer, f.at.place, m.set}
		}
		if o := &f.out[j*len(f.all)+m.to]; f.all[m.to].home > 0 {
			o.fill, o.bytes = min(o.fill, out.fill), min(o.bytes, out.bytes)
		}
		f.tail[j*len(f.all)+m.to] = min(f.tail[j*len(f.all)+m.to], fwd+max(known+X*half, X*b+e))
		slower := max(fwd, half)
		for i := 1; i < len(cell); i++ {
			v := max(before[i], e)
			if w := f.widths[i]; !f.split {
				v = max(before[i], max(before[0], e)+float64((w+r-1)/r-1)*slower)
			}
			cell[i] = min(cell[i], c+v)
		}
	}
}

// path returns the stages of a path that reached the last layer.
func (f *fillBound) path() (out []Run) {
	n := len(f.p.Layers)
	for place := range f.all {
		if math.IsInf(f.of(n, place)[0], 1) {
			continue
		}
		for k := n; k > 0; {
			p := f.from[k*len(f.all)+place]
			out = append(out, Run{FirstLayer: p.layer, LastLayer: k - 1,
				Devices: f.all[place].used - f.all[p.place].used, Spread: f.all[place].at == 0,
				Groups: f.sets[p.set]})
			k, place = p.layer, p.place
		}
		slices.Reverse(out)
		return out
	}
	return nil
}
