package bound

import (
	"math"
	"sort"

	"github.com/millrace-ml/millrace/profile"
)

// serverBound bounds the step of plans over groups of devices (the servers of a rack, or single
// devices) by what must go between them. It proves what follows of every plan whose stages
// are runs of layers in the profile's order on devices of their own; groups hold g devices.
//
// A stage is local if its devices are in one group, else spread. Take a plan with step T.
//
// Stages. Every stage obeys the two inequalities of Bound (its devices' work, sum and update; and
// the way of a micro-batch to it and back, on its work). The sum of a local stage is one
// inside a group, that of a spread one joins two groups at least (leastReduces).
//
// Cuts. Let stages i and i+1, of r and q devices, be cut before layer k, which a bytes of every
// micro-batch cross, and their gradients come back. Both local in other groups: all M micro-batches
// leave the one group for the other. One local and one spread over r devices: at most
// c = min(g - devices of the local stage, r-1) of these are in the local one's group, and
// micro-batches (or with split every micro-batch's rows) are dealt out evenly, so that
// floor(M/r) (r-c) of them at least leave it. If each group has one link (uplinks), or all share
// one, it carries them all, X micro-batches of a bytes at the fastest rate that the levels from
// this one on have, and where it is not full duplex as many back:
//
//	T >= X a / rate    (twice that on a half duplex link)
//
// And in a step stage 0 begins after its update in the one before, the first of them
// must have come through all layers before k before the link is busy, and the last one goes
// on through those from k on, back, and through the layers before k backwards, before stage 0's
// update, so that with A one micro-batch's way through all layers there and back
//
//	T >= A + (X+1) a / rate      with uplinks; with split, whose last slice comes back alone, X a
//
// Where every pair of devices has a link of its own, some pair carries an even part: X a over r q.
//
// Runs. Consecutive local stages in the same group use g devices at most in all.
//
// So a plan with step T is a path over (layer, devices used, kind of the last stage, devices of
// its group in this run) in which each stage and cut obeys T, and uses as many devices as there
// are. Groups that a path comes back to are counted as new ones, which only allows more
// paths. Of what comes after (layer, kind, devices of the run) fewer used devices allow more, so
// the fewest are enough; the longest run of layers that a stage can have within T is found
// by bisection, since all sides grow with the layers. If no path comes to the end, no plan has step T;
// the bound is the largest such T that bisection finds, to a part in 1e4.
type serverBound struct {
	*bounder
	level, size    int // groups are what this level joins, of so many devices
	params         []int64
	update         []float64
	sum            [][]float64 // by replicas: times of the layers before, nil where unknown
	inside, across []leastReduce
	bytes          []float64 // by cut, of one micro-batch
	transfer       []float64 // by cut, fastest link
	way            float64   // A
	perByte        float64   // fastest of the levels from here on
	oneLink        bool      // of a group, or of all of them
	oneWay         bool      // it carries what comes and what goes one after the other
	shared         bool      // of all groups
}

// maxServerStates bounds the layers times devices squared of a search over paths.
const maxServerStates = 1 << 18

func (b *bounder) group(level, size int) *serverBound {
	n, W := len(b.p.Layers), b.kind.Workers
	s := &serverBound{bounder: b, level: level, size: size, params: make([]int64, n+1), update: make([]float64, n+1),
		sum: make([][]float64, W+1)}
	for r := 1; r <= W; r++ {
		s.sum[r] = b.sums(r)
	}
	if all := s.sum[W]; all != nil && !b.kind.Halves {
		s.way = all[n]
	}
	for k, l := range b.p.Layers {
		s.params[k+1] = s.params[k] + l.ParameterBytes + l.TiedBytes
		s.update[k+1] = s.update[k] + b.updateS(k)
	}
	s.inside, s.across = leastReduces(b.c, min(W, size), level, false), leastReduces(b.c, W, level, true)
	s.transfer, s.bytes = b.transfers(), b.cuts()
	s.perByte = math.Inf(1)
	for i, l := range b.c.Levels[level:] {
		if l.Size < 2 {
			continue
		}
		s.perByte = min(s.perByte, 1/l.BandwidthBytesPerSecond)
		for _, node := range b.c.Nodes {
			if i+level == 0 && node.BandwidthBytesPerSecond > 0 {
				s.perByte = min(s.perByte, 1/node.BandwidthBytesPerSecond)
			}
		}
	}
	here := b.c.Levels[level]
	s.shared = here.Shared && level == len(b.c.Levels)-1
	s.oneLink = here.Uplinks && here.Rails == 0 || s.shared
	s.oneWay = s.oneLink && !here.FullDuplex
	if math.IsInf(s.perByte, 1) {
		s.perByte = 0
	}
	return s
}

// cuts is the least that one micro-batch sends each way over the cut before each layer: of slices, as all
// slices of it are sent.
func (b *bounder) cuts() []float64 {
	out := make([]float64, len(b.p.Layers)+1)
	for k := 1; k < len(b.p.Layers); k++ {
		least := math.Inf(1)
		for _, t := range b.types {
			for r := 1; r <= b.kind.Workers && (r == 1 || b.split); r++ {
				if costs := b.at(t, r); costs != nil {
					least = min(least, float64(r)*float64(b.p.GradientBytes(costs, k-1)))
				}
			}
		}
		if !math.IsInf(least, 1) {
			out[k] = least
		}
	}
	return out
}

// bisected is how much, relatively, a bound may fall short of the greatest that its arguments give.
const bisected = 1e-4

// greatest bisects between a step that is known to be a bound and one that is not: that some path reaches.
func greatest(low float64, reached func(T float64) bool) float64 {
	if low <= 0 || math.IsInf(low, 1) || reached(low) {
		return low
	}
	high := 2 * low
	for !reached(high) {
		if low, high = high, 2*high; math.IsInf(high, 1) {
			return low
		}
	}
	for high > low*(1+bisected) {
		if middle := (low + high) / 2; reached(middle) {
			high = middle
		} else {
			low = middle
		}
	}
	return low
}

// farthest is the last layer, counted from 1, that a stage of r devices beginning with layer k has
// within T.
func (s *serverBound) farthest(k, r int, T float64, reduce []leastReduce) int {
	sum := s.sum[r]
	if sum == nil {
		return 0
	}
	times := float64(s.M)
	if !s.split {
		times = float64((s.M + r - 1) / r)
	}
	before := 0.0
	if k > 0 && !s.kind.Halves {
		if way := s.sum[max(1, s.kind.Workers-r)]; way != nil {
			before = way[k] + 2*s.transfer[k]
		}
	}
	n := len(s.p.Layers)
	more := sort.Search(n-k, func(i int) bool {
		j := k + 1 + i
		work, sums := times*(sum[j]-sum[k]), 0.0
		if r > 1 {
			sums = reduce[r].of(s.params[j] - s.params[k])
			if !s.c.Crowded(2) { // with as many workers as have replicas at least
				sums = max(0, sums-(sum[j]-sum[k]))
			}
		}
		return before+work > T || work+sums+s.update[j]-s.update[k] > T
	})
	return k + more
}

// crosses says whether micro-batches, a part of all, can cross the cut before layer k within T,
// over one link, or over so many.
func (s *serverBound) crosses(k int, micros float64, links int, T float64) bool {
	bytes := s.bytes[k] * s.perByte
	if !s.oneLink {
		return micros*bytes/float64(links) <= T
	}
	taken := micros * bytes
	if s.oneWay {
		taken *= 2
	}
	if micros > 0 && !s.shared && s.way > 0 {
		way := s.way + micros*bytes
		if !s.split {
			way += bytes
		}
		taken = max(taken, way)
	}
	return taken <= T
}

// outside is how many micro-batches of a spread stage of r devices are on devices outside of a
// group in which others have some.
func (s *serverBound) outside(r, others int) float64 {
	away := r - min(max(0, s.size-others), r-1)
	if s.split {
		return float64(s.M) * float64(away) / float64(r)
	}
	return float64(s.M/r) * float64(away)
}

// reached says whether a path comes to the last layer within T.
func (s *serverBound) reached(T float64) bool {
	n, W := len(s.p.Layers), s.kind.Workers
	// offers[kind][d]: how far a stage of the kind goes with d devices used; kind 0 is spread, c
	// local with c devices of its group in this run.
	offers := make([][]int, s.size+1)
	for c := range offers {
		offers[c] = make([]int, W+1)
	}
	for k := 0; k < n; k++ {
		fewest := make([]int, s.size+1) // by kind of the stage before
		some := k == 0
		for c := range fewest {
			fewest[c] = W + 1
			for d := 0; d <= W && k > 0; d++ {
				if offers[c][d] >= k {
					fewest[c], some = d, true
					break
				}
			}
		}
		if !some {
			continue
		}
		for r := 1; r <= W; r++ {
			near, far := 0, 0
			if r <= s.size {
				near = s.farthest(k, r, T, s.inside)
			}
			if r > 1 {
				far = s.farthest(k, r, T, s.across)
			}
			local := func(c, d int) {
				if near > k && c <= s.size && d <= W {
					offers[c][d] = max(offers[c][d], near)
				}
			}
			spread := func(d int) {
				if far > k && d <= W {
					offers[0][d] = max(offers[0][d], far)
				}
			}
			if k == 0 {
				local(r, r)
				spread(r)
				continue
			}
			if d := fewest[0] + r; d <= W {
				spread(d)
				if s.joins(k, r, T) {
					local(r, d)
				}
			}
			for c := 1; c <= s.size; c++ {
				d := fewest[c] + r
				if d > W {
					continue
				}
				local(c+r, d)
				if s.crosses(k, float64(s.M), c*r, T) {
					local(r, d)
				}
				if s.crosses(k, s.outside(r, c), c*r, T) {
					spread(d)
				}
			}
		}
	}
	for c := range offers {
		for d := range offers[c] {
			if offers[c][d] >= n {
				return true
			}
		}
	}
	return false
}

// joins says whether a spread stage of some size can send to a local one of r devices.
func (s *serverBound) joins(k, r int, T float64) bool {
	for q := 2; q <= s.kind.Workers-r; q++ {
		if s.crosses(k, s.outside(q, r), q*r, T) {
			return true
		}
	}
	return false
}

// sums is, for layers on r replicas of the fastest type, prefix sums of their times.
func (b *bounder) sums(r int) []float64 {
	return b.prefix(b.costs, r, func(c profile.Cost) float64 { return c.ForwardS + c.BackwardS })
}

// prefix is prefix sums over layers on r replicas of the least that some device type has of
// something; nil where no type is known to.
func (b *bounder) prefix(from map[string]map[int][]profile.Cost, r int, of func(profile.Cost) float64) []float64 {
	n := len(b.p.Layers)
	sum := make([]float64, n+1)
	for k := range n {
		own := math.Inf(1)
		for _, t := range b.types {
			if costs := from[t][b.rows(r)]; costs != nil {
				own = min(own, of(costs[k]))
			}
		}
		if math.IsInf(own, 1) {
			return nil
		}
		sum[k+1] = sum[k] + own
	}
	return sum
}
