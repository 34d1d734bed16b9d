package bound

import (
	"math"
	"sort"

	"github.com/millrace-ml/millrace/profile"
)

// serverBound bounds the step by the data that must cross between groups of devices (the servers of a rack, or single
// devices). It covers every plan whose stages are runs of layers in the profile's order, each on its own devices.
// Groups hold g devices.
//
// A stage is local if its devices are in one group, and spread otherwise. Take a plan with step T.
//
// Stages. Every stage obeys the two inequalities in the comment at Step: its devices' work, sum and update, and the
// time of a micro-batch to the stage and back plus its work. The sum of a local stage is inside a group; the sum of a
// spread stage joins at least two groups (leastReduces).
//
// Cuts. Let stages i and i+1, of r and q devices, be cut before layer k. Each micro-batch sends `a` bytes over the cut,
// and the gradients come back. If both are local in different groups, all M micro-batches leave the one group for the
// other. Otherwise let one be local and one spread over r devices. At most c = min(g - devices of the local stage, r-1)
// of these are in the local stage's group. Micro-batches (or, with split, the rows of each) are dealt out evenly, so at
// least floor(M/r) (r-c) of them leave the group. If each group has one link (uplinks), or all groups share one, that
// link carries all of them. Let X be their number. The rate is at most the fastest of this level and those above it. A
// half duplex link also carries the gradients back, at other times than the data:
//
//	T >= X a / rate    (twice that on a half duplex link)
//
// Moreover, stage 0 begins a step after its update in the previous one. The first micro-batch must come through all
// layers before k until the link is busy. The last one goes on through the layers from k on, back through them, and
// back through the layers before k, until stage 0's update. Let A be the least time of a micro-batch's path through
// all layers and back:
//
//	T >= A + (X+1) a / rate      with uplinks; with split X a, because the last slice comes back alone
//
// If both are spread, and the places are known (places), a group where no stage before has devices receives all that
// its devices of the later stage compute. With split and a stage of q devices before, a group where the stages before
// have u devices can keep u / q of each micro-batch, and it receives the rest of what its devices compute.
//
// If every pair of devices has its own link, some pair carries at least an even part: X a / (r q) bytes.
//
// Runs. Consecutive local stages in the same group use at most g devices together.
//
// So a plan with step T is a path over these states: layer, devices used, kind of the last stage, and devices used in
// its group during this run. Each stage and cut on the path obeys T, and the path uses at most all devices. A group
// that a path returns to counts as a new one, which only allows more paths. For the same layer, kind and devices of the
// run, fewer used devices allow more, so the fewest are enough. Bisection finds the longest run of layers that a stage
// can have within T, because all sides grow with the layers. If no path reaches the last layer, no plan has step T. The
// bound is the largest such T that bisection finds, with a relative precision of 1e-4.
type serverBound struct {
	*bounder
	level, size    int // this level joins the groups, and each group has `size` devices
	params         []int64
	update         []float64
	sum            [][]float64 // by number of replicas: prefix sums of the layers' times; nil if unknown
	least          [][]float64 // by r: prefix sums of each layer's least time on up to r replicas
	inside, across []leastReduce
	bytes          []float64 // by cut: bytes of one micro-batch
	transfer       []float64 // by cut: time over the fastest link
	way            float64   // A in the comment above; 0 with split backwards or unknown costs
	perByte        float64   // seconds per byte of the fastest level from this one up
	oneLink        bool      // each group has one link, or all share one
	oneWay         bool      // each link of a group is half duplex
	shared         bool      // all groups share one link
}

// maxServerStates limits the search over paths: layers times devices squared.
const maxServerStates = 1 << 18

func (b *bounder) group(level, size int) *serverBound {
	n, W := len(b.p.Layers), b.kind.Workers
	s := &serverBound{bounder: b, level: level, size: size, params: make([]int64, n+1), update: make([]float64, n+1),
		sum: make([][]float64, W+1)}
	for r := 1; r <= W; r++ {
		s.sum[r] = b.sums(r)
	}
	s.least = leastOfFewer(s.sum)
	if all := s.least[W]; all != nil && !b.kind.Halves {
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

// cuts returns a lower bound on the bytes that a micro-batch sends in each direction over the cut before each layer. If
// micro-batches are split, all slices count.
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

// bisected is the relative precision of the bisection.
const bisected = 1e-4

// greatest finds, by bisection, the greatest T within which no path reaches the last layer. `low` is a known bound, and
// is returned if a path reaches the last layer within it.
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

// farthest returns the end (exclusive) of the longest stage within T that begins with layer k on r devices.
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
		if way := s.least[max(1, s.kind.Workers-r)]; way != nil {
			before = way[k] + 2*s.transfer[k]
		}
	}
	n := len(s.p.Layers)
	more := sort.Search(n-k, func(i int) bool {
		j := k + 1 + i
		work, sums := times*(sum[j]-sum[k]), 0.0
		if r > 1 {
			sums = reduce[r].of(s.params[j] - s.params[k])
			if !s.c.Crowded(2) { // then the sum may begin during the last backward
				sums = max(0, sums-(sum[j]-sum[k]))
			}
		}
		return before+work > T || work+sums+s.update[j]-s.update[k] > T
	})
	return k + more
}

// crosses reports whether `micros` micro-batches can cross the cut before layer k within T. They use one link or
// several.
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

// outside returns the least number of micro-batches that a spread stage of r devices computes outside one group.
// `others` devices of this group belong to another stage.
func (s *serverBound) outside(r, others int) float64 {
	away := r - min(max(0, s.size-others), r-1)
	if s.split {
		return float64(s.M) * float64(away) / float64(r)
	}
	return float64(s.M/r) * float64(away)
}

// reached reports whether some path reaches the last layer within T.
func (s *serverBound) reached(T float64) bool {
	n, W := len(s.p.Layers), s.kind.Workers
	// offers[kind][d] is the farthest layer at which a stage of that kind can end, with d devices used. Kind 0 is a
	// spread stage. Kind c > 0 is a local stage. It and the local stages directly before it in the same group use c
	// devices of this group.
	offers := make([][]int, s.size+1)
	for c := range offers {
		offers[c] = make([]int, W+1)
	}
	for k := 0; k < n; k++ {
		fewest := make([]int, s.size+1) // fewest devices used, by kind of the previous stage
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

// joins reports whether a spread stage of any size can send to a local stage of r devices.
func (s *serverBound) joins(k, r int, T float64) bool {
	for q := 2; q <= s.kind.Workers-r; q++ {
		if s.crosses(k, s.outside(q, r), q*r, T) {
			return true
		}
	}
	return false
}

// sums returns prefix sums over layers of forward plus backward, on r replicas of the fastest type.
func (b *bounder) sums(r int) []float64 {
	return b.prefix(b.costs, r, func(c profile.Cost) float64 { return c.ForwardS + c.BackwardS })
}

// leastOfFewer returns prefix sums over layers, in the form of `sum`. Entry r counts each layer with its least known
// time on at most r replicas. A measured time may grow as replicas get fewer rows, so the time on r replicas is not
// always the least. An entry is nil where no time is known.
func leastOfFewer(sum [][]float64) [][]float64 {
	out := make([][]float64, len(sum))
	for r := 1; r < len(sum); r++ {
		out[r] = out[r-1]
		switch {
		case sum[r] == nil:
		case out[r] == nil:
			out[r] = sum[r]
		default:
			out[r] = make([]float64, len(sum[r]))
			for k := 1; k < len(out[r]); k++ {
				out[r][k] = out[r][k-1] + min(out[r-1][k]-out[r-1][k-1], sum[r][k]-sum[r][k-1])
			}
		}
	}
	return out
}

// prefix returns prefix sums over layers of the least value of `of` over device types, on r replicas. It returns nil
// if no type's costs are known.
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
