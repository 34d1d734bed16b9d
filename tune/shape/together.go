package shape

import (
	"slices"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/schedule"
)

// mostTogether is the largest number of replicas that are simulated together: those of a server of 16 devices.
const mostTogether = 16

// crossings returns the pairs of neighbouring virtual stages that are on different workers, in both directions.
func (l *links) crossings() (pairs [][2]int) {
	on := l.s.placement()
	for k := 1; k < len(on); k++ {
		if a, b := on[k-1][0], on[k][0]; a != b && !slices.Contains(pairs, [2]int{a, b}) {
			pairs = append(pairs, [2]int{a, b}, [2]int{b, a})
		}
	}
	return pairs
}

// shares says whether messages between different pairs of devices may take the same link.
func (l *links) shares() bool {
	return slices.ContainsFunc(l.c.Levels, func(v cluster.Level) bool { return v.Uplinks || v.Rails > 0 || v.Shared })
}

// sharing returns how many devices of a group send over the busiest link between two stages.
func (l *links) sharing(from, to int) float64 {
	if !l.shares() {
		return 1
	}
	_, most := l.taken(from, to, 0)
	return float64(max(1, most))
}

// taken returns the links that a replica's message between two stages takes. `most` is how many devices of the group
// take the busiest of these links.
func (l *links) taken(from, to, replica int) (keys [][2]int, most int) {
	count := map[[2]int]int{}
	for i := range l.s.Tensor {
		for _, key := range l.c.Links(l.rank(from, replica)+i, l.rank(to, replica)+i) {
			if count[key]++; count[key] == 1 {
				keys = append(keys, key)
			}
			most = max(most, count[key])
		}
	}
	return keys, most
}

// together returns the replicas to simulate: those whose messages wait for each other, because some of them take the
// same uplink, rail or bus. Of several such sets it returns the largest, and of this set mostTogether at most. If no
// replicas share a link, it returns the first one alone.
func (l *links) together() []int {
	if l.waiting != nil {
		return l.waiting
	}
	if !l.shares() {
		l.waiting = []int{0}
		return l.waiting
	}
	set := make([]int, l.s.Replicas) // by replica: the first replica of its set
	first := map[[2]int]int{}        // by link
	for r := range set {
		set[r] = r
		for _, pair := range l.crossings() {
			keys, _ := l.taken(pair[0], pair[1], r)
			for _, key := range keys {
				other, known := first[key]
				if !known {
					first[key] = r
					continue
				}
				from, into := max(set[other], set[r]), min(set[other], set[r])
				if from == into {
					continue
				}
				for k := range set[:r+1] {
					if set[k] == from {
						set[k] = into
					}
				}
			}
		}
	}
	members := map[int][]int{}
	for r, of := range set {
		members[of] = append(members[of], r)
		if len(members[of]) > len(l.waiting) {
			l.waiting = members[of]
		}
	}
	l.waiting = l.waiting[:min(mostTogether, len(l.waiting))]
	return l.waiting
}

// copies returns a lowered Program with n pipelines that do the same as the only one of p, each on workers of its own.
func copies(p *schedule.Program, n int) *schedule.Program {
	if n == 1 {
		return p
	}
	out := *p
	out.Workers, out.Placement, out.Body = n*p.Workers, nil, nil
	for k := range n {
		var stages [][]int
		for _, on := range p.Placement[0] {
			stages = append(stages, []int{on[0] + k*p.Workers})
		}
		out.Placement = append(out.Placement, stages)
		for _, list := range p.Body {
			own := slices.Clone(list)
			for i := range own {
				own[i].Pipeline = int16(k)
			}
			out.Body = append(out.Body, own)
		}
	}
	return &out
}
