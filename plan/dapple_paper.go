package plan

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
)

// planned is T_PL(j, m, g) of equation (4): layers 0..to-1 planned on the devices taken, the
// rest in one stage on all others.
type planned struct {
	to, used int // layers, devices
	taken    taken
	before   int // the planned prefix of all but its last stage; -1: none
	latency  float64
	stages   []dappleStage // of the prefix, networks between them included
	last     dappleGroup
}

// dappleSearch is equations (4) and (5) over one micro-batch size.
type dappleSearch struct {
	*dappleCosts
	cuts  []int // where a stage may begin, ascending
	steps []int // how many devices a stage may have
	width int   // over 0: of the prefixes with as many layers and devices, how many are searched on
	keep  bool  // latencies at or above the best are searched on too (for tests)

	found  []planned
	index  [][]int32 // by cut and number of the set of devices taken, the planned, plus one
	sets   map[string]int
	room   []dappleStage // that prefixes' stages lie in
	best   float64
	bestAt int // of found, the best plan's prefix
	tried  int
}

// run finds the best plan of two stages or more below limit; bestAt is -1 where there is none.
//
// It is the memoised recursion as printed: for each number of layers and set of devices one
// prefix is kept, that with the least latency if the rest were one stage. Prefixes with a
// stage whose M(F+B) is not below the best latency are left out, since L is never below
// it, and those whose rest has such a stage however it is split, since one of its stages
// takes as much as all of them would evenly. The result is that of the recursion, or better.
//
// Order: prefixes by layers ascending; extensions have more layers, so each prefix is final
// when it is extended. Time: (cuts x sets) x (cuts x steps).
func (s *dappleSearch) run(ctx context.Context, limit float64) error {
	s.best, s.bestAt = limit, -1
	s.index, s.sets = make([][]int32, len(s.cuts)), map[string]int{}
	if err := s.extend(ctx, -1, 0); err != nil {
		return err
	}
	for i := range s.cuts {
		var order []int
		for _, f := range s.index[i] {
			if f > 0 {
				order = append(order, int(f-1))
			}
		}
		slices.Sort(order)
		if s.width > 0 {
			order = s.beam(order)
		}
		for _, f := range order {
			if err := s.extend(ctx, f, i+1); err != nil {
				return err
			}
		}
	}
	return nil
}

// planned is the place for the prefix that ends at a cut on a set of devices.
func (s *dappleSearch) planned(cut, set int) *int32 {
	for len(s.index[cut]) <= set {
		s.index[cut] = append(s.index[cut], 0)
	}
	return &s.index[cut][set]
}

// beam leaves of prefixes with the same layers those with the least latencies, width for
// each number of devices.
func (s *dappleSearch) beam(prefixes []int) []int {
	slices.SortStableFunc(prefixes, func(a, b int) int { return cmp.Compare(s.found[a].latency, s.found[b].latency) })
	kept := map[int]int{}
	return slices.DeleteFunc(prefixes, func(f int) bool {
		kept[s.found[f].used]++
		return kept[s.found[f].used] > s.width
	})
}

// extend adds one more stage, ending before each later cut, on each set of devices, behind
// a planned prefix.
func (s *dappleSearch) extend(ctx context.Context, prefix, firstCut int) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("plan: dapple: %w", err)
	}
	from, used, before := 0, 0, s.at.none()
	var earlier []dappleStage
	if prefix >= 0 {
		p := s.found[prefix]
		from, used, before, earlier = p.to, p.used, p.taken, p.stages
	}
	n, G := len(s.p.Layers), len(s.typeOf)
	full := s.full()
	stages := make([]dappleStage, len(earlier)+4)
	copy(stages, earlier)
	for _, m := range s.steps {
		if used+m >= G {
			break
		}
		for _, after := range s.at.place(before, m) {
			mine, rest := s.group(before, after), s.group(after, full)
			set, known := s.sets[after.key()]
			if !known {
				set = len(s.sets)
				s.sets[after.key()] = set
			}
			into := affine{}
			if prefix >= 0 {
				into = s.between(s.found[prefix].last, mine, before, after, s.found[prefix].before)
			}
			out := s.between(mine, rest, after, full, prefix)
			for c := firstCut; c < len(s.cuts); c++ {
				to := s.cuts[c]
				own, _, fits := s.stage(from, to, &mine)
				if !fits || !s.keep && float64(s.M)*(own.F+own.B) >= s.best {
					break // more layers only take longer and more memory
				}
				if !s.keep && float64(s.M)*s.fastest(to)/float64(G-used-m) >= s.best {
					continue // even if the rest were spread evenly
				}
				s.tried++
				k := len(earlier)
				if prefix >= 0 {
					stages[k] = s.network(into, from)
					k++
				}
				behind, _, restFits := s.stage(to, n, &rest)
				stages[k], stages[k+1], stages[k+2] = own, s.network(out, to), behind
				latency := dappleLatency(stages[:k+3], s.M)
				if restFits && latency < s.best {
					s.best, s.bestAt = latency, len(s.found)
					if f := s.planned(c, set); *f > 0 {
						s.bestAt = int(*f - 1)
					}
				} else if !s.keep && float64(s.M)*2*stages[k+1].F >= s.best {
					continue
				}
				f := s.planned(c, set)
				if *f > 0 && s.found[*f-1].latency <= latency {
					continue
				}
				s.room = append(s.room, stages[:k+1]...)
				end := len(s.room)
				entry := planned{to: to, used: used + m, taken: after, before: prefix, latency: latency, stages: s.room[end-k-1 : end : end], last: mine}
				if *f > 0 {
					s.found[*f-1] = entry
				} else {
					s.found = append(s.found, entry)
					*f = int32(len(s.found))
				}
			}
		}
	}
	return nil
}

// fastest is the forward and backward of the layers from one on, on one device of whatever
// type is fastest at them.
func (s *dappleSearch) fastest(from int) float64 {
	n, least := len(s.p.Layers), math.Inf(1)
	for t := range s.forward {
		least = min(least, s.forward[t][n]-s.forward[t][from]+s.backward[t][n]-s.backward[t][from])
	}
	return least
}

func (s *dappleSearch) full() taken {
	t := s.at.none()
	for i := range t {
		t[i] = uint16(s.at.size(i))
	}
	return t
}

// between is the network from one group to another, remembered by what was taken
// before the first (by a planned prefix), between them and after both.
func (s *dappleSearch) between(a, b dappleGroup, mid, after taken, prefix int) affine {
	key := mid.key() + after.key()
	if prefix >= 0 {
		key += s.found[prefix].taken.key()
	}
	if v, ok := s.streamCache[key]; ok {
		return v
	}
	v := s.stream(a.devices, b.devices)
	s.streamCache[key] = v
	return v
}

// chain lists the best plan's stages: where each ends, and on which devices.
func (s *dappleSearch) chain() (ends []int, devices [][]int) {
	last := s.found[s.bestAt]
	ends = []int{len(s.p.Layers)}
	devices = [][]int{s.group(last.taken, s.full()).devices}
	for f := s.bestAt; f >= 0; f = s.found[f].before {
		ends = append(ends, s.found[f].to)
		devices = append(devices, s.found[f].last.devices)
	}
	slices.Reverse(ends)
	slices.Reverse(devices)
	return ends, devices
}

// thin chooses cuts and steps so that about most prefixes are planned. All of both where
// that is enough; else every unit of devices, at least a server where servers are many, and
// cuts at equal amounts of work, each moved to the least that crosses nearby.
func (s *dappleSearch) thin(most int) (thinned bool) {
	n, G := len(s.p.Layers), len(s.typeOf)
	for m := 1; m < G; m++ {
		s.steps = append(s.steps, m)
	}
	for c := 1; c < n; c++ {
		s.cuts = append(s.cuts, c)
	}
	sets := G
	if s.at.count() > 1 && s.at.count() < G {
		sets *= s.at.size(0) / 2 // appended and scattered sets beside the fresh
	}
	if (n-1)*sets <= most {
		return false
	}
	s.width = 2
	if G > 32 {
		unit := max(G/16, 1)
		if each := s.at.size(0); unit > each {
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

// spread is want cuts at equal amounts of work.
func (s *dappleSearch) spread(want int) []int {
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
