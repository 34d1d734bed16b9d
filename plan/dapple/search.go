package dapple

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/millrace-ml/millrace/cluster"
)

// planned is T_PL(j, m, g) of equation (4): layers 0..to-1 planned on the devices of a set, and the remaining layers
// in one stage on all other devices.
type planned struct {
	to, used int
	set      int32
	before   int32 // index in `found` of this prefix without its last stage; -1 means none
	move     int32 // the move of that prefix's set that adds the last stage
	latency  float64
	into     stage // the network before the last stage
	last     stage
}

// search runs equations (4) and (5) for one micro-batch size.
type search struct {
	*costs
	cuts  []int // where a stage may begin, ascending
	steps []int // allowed numbers of devices of a stage
	width int   // number of prefixes kept for each number of layers and of devices; 0: all
	most  int   // most stages of a plan; 0: no limit

	found  []planned
	index  [][]int32 // by cut and set: index in `found`, plus one
	best   float64
	bestAt int // index in `found` of the best plan's prefix
	tried  int
	stages []stage // of the current prefix
	rest   *rests  // nil means unknown
}

// search finds the best plan of at least two stages with L below `limit`; bestAt is -1 if there is none. If the limit
// is close to the best plan's time, few prefixes are planned. So search first tries lower limits, and begins a little
// above the least time of any plan.
func (s *search) search(ctx context.Context, limit float64) error {
	s.best, s.bestAt = limit, -1
	if float64(s.M)*s.fastest[0]/float64(len(s.typeOf)) >= limit {
		return nil
	}
	s.rest = s.rests(limit)
	least := s.rest.least()
	if within := least; within < limit {
		for tries := 0; s.bestAt < 0 && within < limit; tries++ {
			if within *= wider; within > limit || tries == mostTries {
				within = limit
			}
			if err := s.run(ctx, within); err != nil {
				return err
			}
		}
	}
	if s.bestAt < 0 {
		s.best = limit
	}
	return nil
}

// wider is the factor between successive limits, and mostTries is the number of limits before the last one.
const (
	wider     = 1.2
	mostTries = 16
)

// run searches within one limit.
//
// It is the paper's memoised recursion. For each number of layers and set of devices it keeps one prefix: the one whose
// latency is least if all remaining layers are one stage. It leaves out prefixes that cannot lead to a plan with less
// latency than the best known one (see leastLatency). Another prefix may then be kept instead, so the result can differ
// from the recursion's. In thousands of random cases it was never worse (TestSearchAgainstTwins).
//
// It visits prefixes by ascending number of layers. Extensions have more layers, so each prefix is final when it is
// extended. Time: (cuts x sets) x (cuts x steps).
func (s *search) run(ctx context.Context, limit float64) error {
	s.best, s.bestAt, s.found, s.index = limit, -1, s.found[:0], make([][]int32, len(s.cuts))
	none := s.set(s.at.None())
	if err := s.extend(ctx, planned{set: none, before: -1}, -1, 0); err != nil {
		return err
	}
	for i := range s.cuts {
		var order []int32
		for _, f := range s.index[i] {
			if f > 0 {
				order = append(order, f-1)
			}
		}
		slices.Sort(order)
		if s.width > 0 {
			order = s.beam(order)
		}
		for _, f := range order {
			p := s.found[f]
			if s.most > 0 && s.length(f)+2 > s.most { // with the new stage, and with a stage of the remaining layers
				continue
			}
			if s.rest != nil && leastLatency(s.before(p, f), s.rest.at(i, len(s.typeOf)-p.used), s.M) >= s.best {
				continue
			}
			if err := s.extend(ctx, p, f, i+1); err != nil {
				return err
			}
		}
	}
	return nil
}

// planned returns the index entry for the prefix that ends at this cut and uses this set of devices.
func (s *search) planned(cut int, set int32) *int32 {
	if more := len(s.sets) - len(s.index[cut]); int(set) >= len(s.index[cut]) {
		s.index[cut] = append(s.index[cut], make([]int32, more)...)
	}
	return &s.index[cut][set]
}

// beam keeps the best of some prefixes with the same layers. For each number of devices, these are the s.width prefixes
// with the least latencies.
func (s *search) beam(prefixes []int32) []int32 {
	slices.SortStableFunc(prefixes, func(a, b int32) int { return cmp.Compare(s.found[a].latency, s.found[b].latency) })
	kept := map[int]int{}
	return slices.DeleteFunc(prefixes, func(f int32) bool {
		kept[s.found[f].used]++
		return kept[s.found[f].used] > s.width
	})
}

// length returns the number of stages of a planned prefix.
func (s *search) length(at int32) (n int) {
	for ; at >= 0; at = s.found[at].before {
		n++
	}
	return n
}

// before lists the stages of a planned prefix, including the networks between them. The slice has room for four more:
// one more stage, a stage of the remaining layers, and a network before each of these two.
func (s *search) before(p planned, at int32) []stage {
	s.stages = s.stages[:0]
	for ; at >= 0; at = s.found[at].before {
		s.stages = append(s.stages, s.found[at].last)
		if s.found[at].before >= 0 {
			s.stages = append(s.stages, s.found[at].into)
		}
	}
	slices.Reverse(s.stages)
	known := len(s.stages)
	s.stages = append(s.stages, stage{}, stage{}, stage{}, stage{})
	return s.stages[:known]
}

// extend plans the prefixes that have one more stage than a planned prefix. The stage may end before any later cut, and
// may be on any set of devices that is reached.
func (s *search) extend(ctx context.Context, p planned, at int32, firstCut int) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("plan: dapple: %w", err)
	}
	n := len(s.p.Layers)
	moves := s.places.extend(p.set, s.steps)
	var streams []cluster.Line
	if at >= 0 {
		streams = s.streams(p.move, moves)
	}
	begins := len(s.before(p, at)) // index of the first added stage
	stages := s.stages
	for i := range moves {
		move, k := &moves[i], begins
		used := p.used + len(move.mine.devices)
		rest := &s.sets[move.to].rest
		next := planned{used: used, set: move.to, before: at, move: s.sets[p.set].first + int32(i)}
		if at >= 0 {
			next.into = s.network(streams[i], p.to)
			stages[k] = next.into
			k++
		}
		if s.rest != nil && s.rest.next != nil &&
			leastLatency(stages[:k], s.rest.after(firstCut-1, len(s.typeOf)-p.used, move.step), s.M) >= s.best {
			continue
		}
		for c := firstCut; c < len(s.cuts); c++ {
			if s.rest != nil && math.IsInf(s.rest.at(c, len(s.typeOf)-used).late, 1) {
				continue
			}
			to := s.cuts[c]
			own, _, fits := s.stage(p.to, to, &move.mine)
			if !fits || s.rest != nil && float64(s.M)*(own.F+own.B) >= s.best {
				break // more layers only take longer and more memory
			}
			next.to, next.last = to, own
			stages[k] = own
			if s.rest != nil && leastLatency(stages[:k+1], s.rest.at(c, len(s.typeOf)-used), s.M) >= s.best {
				continue
			}
			s.tried++
			behind, _, restFits := s.stage(to, n, rest)
			stages[k+1], stages[k+2] = s.network(s.toRest(move), to), behind
			next.latency = latency(stages[:k+3], s.M)
			f := s.planned(c, move.to)
			switch {
			case *f == 0:
				s.found = append(s.found, next)
				*f = int32(len(s.found))
			case next.latency < s.found[*f-1].latency:
				s.found[*f-1] = next
			default:
				continue
			}
			if restFits && next.latency < s.best {
				s.best, s.bestAt = next.latency, int(*f-1)
			}
		}
	}
	return nil
}

// look returns a search over a few of the cuts and prefixes.
func (s *search) look() *search {
	few := &search{costs: s.costs, cuts: s.cuts, steps: s.steps, width: 2, most: s.most}
	if len(few.cuts) > fewCuts {
		few.cuts = s.spread(fewCuts)
	}
	return few
}

// fewCuts is the number of cuts that look tries.
const fewCuts = 12

// chain returns the best plan's stages: the end and the devices of each.
func (s *search) chain() (ends []int, devices [][]int) {
	ends = []int{len(s.p.Layers)}
	devices = [][]int{s.sets[s.found[s.bestAt].set].rest.devices}
	for f := int32(s.bestAt); f >= 0; f = s.found[f].before {
		ends = append(ends, s.found[f].to)
		devices = append(devices, s.moves[s.found[f].move].mine.devices)
	}
	slices.Reverse(ends)
	slices.Reverse(devices)
	return ends, devices
}

// thin chooses cuts and steps so that about `most` prefixes are planned. If all cuts and steps give no more than that,
// it keeps them all. Otherwise the search keeps only two prefixes for each cut and number of devices (beam). If there
// are over 32 devices, the numbers of devices are multiples of a unit. The unit is a sixteenth of all devices, rounded
// down to whole servers if it is larger than a server. If there are still too many cuts, thin keeps those that spread
// returns.
func (s *search) thin(most int) (thinned bool) {
	n, G := len(s.p.Layers), len(s.typeOf)
	for m := 1; m < G; m++ {
		s.steps = append(s.steps, m)
	}
	for c := 1; c < n; c++ {
		s.cuts = append(s.cuts, c)
	}
	sets := G
	if s.at.Count() > 1 && s.at.Count() < G {
		sets *= s.at.Size(0) / 2 // appended and scattered sets in addition to fresh ones
	}
	if (n-1)*sets <= most {
		return false
	}
	s.width = 2
	if G > 32 {
		unit := max(G/16, 1)
		if each := s.at.Size(0); unit > each {
			unit -= unit % each
		}
		s.steps = nil
		for m := unit; m < G; m += unit {
			s.steps = append(s.steps, m)
		}
		sets = 4 * len(s.steps)
	}
	if want := max(16, min(48, most/max(1, sets))); len(s.cuts) > want {
		s.cuts = s.spread(want)
	}
	return true
}

// spread returns at most `want` cuts at about equal amounts of work, each moved to the nearby cut with the fewest
// bytes.
func (s *search) spread(want int) []int {
	n := len(s.p.Layers)
	work := func(k int) float64 { return s.forward[0][k] + s.backward[0][k] }
	var cuts []int
	for q := 1; q <= want; q++ {
		goal := work(n) * float64(q) / float64(want+1)
		at := 1
		for lo, hi := 1, n-1; lo <= hi; {
			mid := (lo + hi) / 2
			if at = mid; work(mid) < goal {
				lo = mid + 1
			} else {
				hi = mid - 1
			}
		}
		for c := max(1, at-n/(4*want)); c <= min(n-1, at+n/(4*want)); c++ {
			if s.cut[c] < s.cut[at] {
				at = c
			}
		}
		if len(cuts) == 0 || at > cuts[len(cuts)-1] {
			cuts = append(cuts, at)
		}
	}
	return cuts
}
