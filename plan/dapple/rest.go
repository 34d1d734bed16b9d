package dapple

import (
	"math"

	"github.com/millrace-ml/millrace/cluster"
)

// rests has bounds on the stages after a cut, by the cut and by the number of devices that these stages have. The
// bounds hold for any set of that many devices, and for plans with L below a limit.
type rests struct {
	devices, steps int
	of             []behind // by cut and number of devices; the first cut is the model's start
	// next is indexed like `of`, and then by the next stage's number of devices, which is given as an index in
	// search.steps. A bound holds if at least one more stage follows the next stage. It leaves out the network into the
	// next stage.
	next []behind
}

// at returns the bound after a cut, by the cut's index.
func (r *rests) at(cut, left int) *behind { return &r.of[(cut+1)*(r.devices+1)+left] }

// after returns the bound if the next stage has steps[step] devices.
func (r *rests) after(cut, left, step int) *behind {
	return &r.next[((cut+1)*(r.devices+1)+left)*r.steps+step]
}

// least returns a lower bound on L of every plan.
func (r *rests) least() float64 { return r.at(-1, r.devices).late }

// maxRests is the largest number of pairs of stages that are examined before a search. maxRestDevices is the largest
// number of devices of such a search. Above these limits, only the remaining work is bounded.
const (
	maxRests       = 8 << 20
	maxRestDevices = 32
)

// rests computes the bounds for plans with L below a limit, by the recursion
//
//	behind(i, m) = the network into layer i, and then
//	               layers i.. in one stage on m devices, or for any cut j and number k
//	               layers i..j-1 in a stage on k devices, and then behind(j, m-k)
//
// and takes the minimum of these. L is at least M(F+B) of every stage and network. So stages above limit/M are left
// out, and so are numbers of devices that are too small for the layers.
//
// For a stage on k devices, the recursion takes the least time on any k devices, and the least time of an all-reduce
// among any set that the placements reach. For a network, it takes the time in which k receivers get their slices over
// the links of all levels at once. Terms that are subtracted use upper bounds.
func (s *search) rests(limit float64) *rests {
	G := len(s.typeOf)
	starts := append([]int{0}, s.cuts...)
	out := &rests{devices: G, steps: len(s.steps), of: nowheres(len(starts) * (G + 1))}
	if len(s.steps) == 0 {
		return out
	}
	b := &bounds{search: s, rate: limit / float64(s.M) * (1 + sameBound)}
	b.fast, b.slow = s.networks()
	b.least, b.most = s.memories()
	known := G <= maxRestDevices && len(starts)*len(starts)/2*len(s.steps)*G/2 <= maxRests
	if known {
		b.reduces = s.shortestReduces(s.steps)
		out.next = nowheres(len(out.of) * len(s.steps))
	}
	for i := len(starts) - 1; i >= 0; i-- {
		if known {
			b.row(starts, i, out)
			continue
		}
		row := out.of[i*(G+1):]
		for m := 1; m <= G; m++ {
			if even := s.fastest[starts[i]] / float64(m); even <= b.rate {
				all := float64(s.M) * even
				row[m] = behind{all - even, all, all, math.Inf(-1)}
			}
		}
	}
	return out
}

func nowheres(n int) []behind {
	out := make([]behind, n)
	for i := range out {
		out[i] = nowhere
	}
	return out
}

// bounds computes lower bounds on stages and networks, for plans below a limit.
type bounds struct {
	*search
	rate        float64        // upper limit on a stage's F+B
	reduces     []cluster.Line // by number of devices
	fast, slow  cluster.Line   // bounds of the time of any network between stages
	least, most int64          // memory of the smallest and of the largest device; 0 means no limit
}

// row computes the bounds for the layers from one start on, for each number of remaining devices.
func (b *bounds) row(starts []int, i int, out *rests) {
	n, G, from := len(b.p.Layers), len(b.typeOf), starts[i]
	low := max(1, int(math.Ceil(b.fastest[from]/b.rate)))
	high := G - int(math.Ceil((b.fastest[0]-b.fastest[from])/b.rate*(1-sameBound)))
	if high = min(high, G-1); i == 0 {
		low, high = G, G
	}
	unit := b.steps[0]
	low += ((G-low)%unit + unit) % unit // the number of remaining devices is always G minus a multiple of unit
	most := float64(b.steps[len(b.steps)-1])
	for j := i + 1; j < len(starts) && (b.fastest[from]-b.fastest[starts[j]])/most <= b.rate; j++ {
		behind := out.of[j*(G+1):]
		for at, k := range b.steps {
			one, ok := b.stage(from, starts[j], k)
			if !ok {
				continue
			}
			for m := max(low, k+1+(low+unit-1-k)%unit); m <= high; m += unit {
				if h := &behind[m-k]; !math.IsInf(h.steady, 1) {
					next := out.after(i-1, m, at)
					*next = next.either(h.before(&one, b.M))
				}
			}
		}
	}
	for m := low; m <= high; m += unit {
		all := out.at(i-1, m)
		if i == 0 {
			for at := range b.steps {
				*all = all.either(*out.after(i-1, m, at))
			}
			continue
		}
		if one, ok := b.stage(from, n, m); ok {
			net := b.network(from, m)
			*all = one.last(b.M).before(&net, b.M)
		}
		for at, k := range b.steps {
			if next := out.after(i-1, m, at); !math.IsInf(next.steady, 1) {
				net := b.network(from, k)
				*all = all.either(next.before(&net, b.M))
			}
		}
	}
}

// stage returns the bounds of layers from..to-1 on k devices; ok is false if no plan has such a stage.
func (b *bounds) stage(from, to, k int) (s step, ok bool) {
	r := float64(k)
	s.F, s.B = math.Inf(1), math.Inf(1)
	most := 0.0
	for t := range b.types {
		f, back := b.forward[t][to]-b.forward[t][from], b.backward[t][to]-b.backward[t][from]
		s.F, s.B, most, s.mostB = min(s.F, f/r), min(s.B, back/r), max(most, f/r), max(s.mostB, back/r)
	}
	if k > b.mb || s.F+s.B > b.rate {
		return s, false
	}
	without := b.depth(from, to, k, b.most, false) > 0
	with := b.recompute != "no" && b.depth(from, to, k, b.most, true) > 0
	exact := len(b.types) == 1
	switch {
	case b.recompute == "yes":
		s.B, s.mostB, without = s.B+s.F, s.mostB+most, false
	case b.recompute == "auto" && b.depth(from, to, k, b.least, false) == 0:
		s.mostB += most
		exact = false
	}
	if s.mostR = s.F + s.B; !exact {
		s.mostR = b.rate
	}
	s.mostB = min(s.mostB, b.rate)
	if k > 1 {
		s.AR = b.reduces[k].Of(float64(b.parameters[to] - b.parameters[from]))
	}
	return s, with || without
}

// network bounds the time to send to k devices all bytes that cross the cut before a layer.
func (b *bounds) network(before, k int) step {
	bytes := float64(b.cut[before])
	f := b.fast.FixedS + bytes*b.fast.PerByteS/float64(k)
	return step{stage{F: f, B: f}, min(b.slow.Of(bytes), b.rate/2), b.rate}
}

// memories returns the smallest and the largest memory of a device; 0 means no limit.
func (d *places) memories() (least, most int64) {
	for dev := range d.typeOf {
		m := d.c.MemoryBytes(dev)
		if m > 0 && (least == 0 || m < least) {
			least = m
		}
		if m == 0 {
			m = math.MaxInt64
		}
		most = max(most, m)
	}
	if most == math.MaxInt64 {
		most = 0
	}
	return least, most
}

// networks bounds the time to send bytes to a single receiver. The lower bound, `fast`, assumes that the data comes
// over all levels of links at once, each with a share. The upper bound, `slow`, assumes the slowest links. With n
// receivers, each gets 1/n of the bytes.
func (d *places) networks() (fast, slow cluster.Line) {
	rate := 0.0
	fast.FixedS = math.Inf(1)
	for _, l := range d.c.Levels {
		if l.Size > 1 {
			rate += l.BandwidthBytesPerSecond
			fast.FixedS = min(fast.FixedS, l.LatencyS)
			slow = slow.Most(cluster.Line{FixedS: l.LatencyS, PerByteS: 1 / l.BandwidthBytesPerSecond})
		}
	}
	fast.PerByteS = 1 / rate
	return fast, slow
}

// maxReduceSets limits the sets of devices that shortestReduces examines.
const maxReduceSets = 1024

// shortestReduces returns lower bounds, by number of devices, on the all-reduces among sets that the placements reach.
// All bounds are zero if there are too many sets.
func (d *places) shortestReduces(steps []int) []cluster.Line {
	if d.shortest != nil {
		return d.shortest
	}
	least := make([]cluster.Line, len(d.typeOf)+1)
	for i := range least {
		least[i] = cluster.Line{FixedS: math.Inf(1), PerByteS: math.Inf(1)}
	}
	add := func(g *group) {
		l := &least[len(g.devices)]
		for _, a := range g.reduce {
			*l = cluster.Line{FixedS: min(l.FixedS, a.FixedS), PerByteS: min(l.PerByteS, a.PerByteS)}
		}
	}
	seen := map[int32]bool{}
	for queue := []int32{d.set(d.at.None())}; len(queue) > 0; queue = queue[1:] {
		if len(seen) > maxReduceSets {
			clear(least)
			break
		}
		add(&d.sets[queue[0]].rest)
		for _, m := range d.extend(queue[0], steps) {
			if add(&m.mine); !seen[m.to] {
				seen[m.to] = true
				queue = append(queue, m.to)
			}
		}
	}
	d.shortest = least
	return least
}
