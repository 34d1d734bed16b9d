package pipedream

import (
	"math"
	"sort"

	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
)

// reach leaves out cuts and segments that no plan with a time of at most `limit` can have. Some plan within the limit
// is known.
//
// By every formula, a segment on r workers of a level takes at least its compute / (r x width), where width is the
// number of devices of one worker. This follows from two facts. A stage takes at least its compute / its replicas. The
// larger of two numbers is at least their mean weighted by devices. So in a plan that takes at most `limit`, with N
// devices,
//
//   - if d devices compute the states between two cuts, these states have at most d times `limit` seconds of compute;
//   - a cut with x devices before it has at most x times `limit` of compute before it, and at most (N - x) times
//     `limit` after it. Each worker of a level has `width` devices, and replicas on outer levels multiply this number,
//     so x is a multiple of `width` for the level's cuts (see ends). The closer `limit` is to the time that all devices
//     need if they share all compute evenly, the fewer states lie in these windows;
//   - a transfer over a level's cut takes at most `limit` times the number of replicas on the outer levels (see ends);
//   - on the outer levels, a level's segment is replicated at most over the devices that the states before it leave
//     (see cap). That limits its compute (see last).
//
// Segments that are left out get the time +Inf. Each of them exceeds `limit` by more than rounding, because `limit` is
// widened by SameTime.
type reach struct {
	limit float64
	// ends[k][j] says whether a segment that runs on whole workers of level k may end with state j. The last row is for
	// the whole plan, which ends with the last state only.
	ends [][]bool
}

// coarser lists how many states the preliminary searches use. Each of them finds a limit for the next search.
var coarser = []int{48, 384}

// windows fills in `ends`, from the outermost level inwards: if a segment of one level may end with a state, so may
// segments of the next inner level. `received` has, by level, the times of transfers to one replica.
func (p *reach) windows(m *model, received [][]float64) {
	n, top := len(m.list), len(m.levels)
	p.ends = make([][]bool, top+1)
	p.ends[top] = make([]bool, n)
	p.ends[top][n-1] = true
	limit, total := p.limit*(1+plan.SameTime), m.list[n-1].ComputeS
	for k := top - 1; k >= 0; k-- {
		width, replicas := m.width(k), m.devices()/m.width(k+1)
		p.ends[k] = make([]bool, n)
		for j := range n {
			after := float64(m.devices()) - p.devicesBefore(m, j, width)
			p.ends[k][j] = p.ends[k+1][j] || math.IsInf(limit, 1) ||
				after > 0 && total-m.list[j].ComputeS <= limit*after &&
					received[k][j]/m.share(m.levels[k].workers-1) <= limit*float64(replicas)
		}
	}
}

// devicesBefore returns the least number of devices, a multiple of width, that states up to k need.
func (p *reach) devicesBefore(m *model, k, width int) float64 {
	return max(1, math.Ceil(m.list[k].ComputeS/(p.limit*(1+plan.SameTime)*float64(width)))) * float64(width)
}

// cap returns the longest time that a segment of a level may take if it begins with state i. The states before i use
// some devices. The result is limit times the number of copies of the segment for which the other devices have room.
func (p *reach) cap(m *model, level, i int) float64 {
	width, left := m.width(level+1), float64(m.devices())
	if i > 0 {
		left -= p.devicesBefore(m, i-1, width)
	}
	return p.limit * (1 + plan.SameTime) * left / float64(width)
}

// last returns the last state with which a segment may end. The segment begins with state i and runs on r workers of a
// level. The result is at most `end`. It is i-1 if the segment may end with no state.
func (p *reach) last(m *model, level, r, i, end int) int {
	if math.IsInf(p.limit, 1) {
		return end
	}
	most := p.cap(m, level, i) * float64(r*m.width(level))
	return i - 1 + sort.Search(end-i+1, func(d int) bool { return m.compute(i, i+d) > most })
}

// segments holds the times of segments on one worker of a level. It leaves out segments that are not within reach.
type segments struct {
	begins          []int       // by state: how many possible beginnings come before it
	least, envelope [][]float64 // by last state and index of the beginning; envelope is the running minimum
}

// segments allocates the times of segments on one worker of a level.
func (p *reach) segments(m *model, level int) segments {
	n := len(m.list)
	s := segments{begins: make([]int, n+1), least: make([][]float64, n), envelope: make([][]float64, n)}
	for i := range n {
		s.begins[i+1] = s.begins[i]
		if p.begins(level, i) {
			s.begins[i+1]++
		}
		if !p.ends[level][i] {
			continue
		}
		s.least[i] = make([]float64, s.begins[i+1])
		for b := range s.least[i] {
			s.least[i][b] = math.Inf(1)
		}
	}
	return s
}

// begins says whether a segment of whole workers of a level may begin with state i.
func (p *reach) begins(level, i int) bool { return i == 0 || p.ends[level][i-1] }

// at returns the time of segment (i, j); its beginning and end must be within reach.
func (s *segments) at(i, j int) float64 { return s.least[j][s.begins[i]] }

func (s *segments) envelop() {
	for j, column := range s.least {
		lowest := math.Inf(1)
		s.envelope[j] = make([]float64, len(column))
		for i, v := range column {
			lowest = min(lowest, v)
			s.envelope[j][i] = lowest
		}
	}
}

// width returns the number of devices of one worker of a level, or of all for the level after the last.
func (m *model) width(level int) int {
	width := 1
	for _, l := range m.levels[:level] {
		width *= l.workers
	}
	return width
}

// thinned returns the same model over fewer states. A plan over these is also a plan over all states.
func (m *model) thinned(few int) model {
	n := len(m.list)
	kept := profile.Sparse(n, few, func(k int) int64 { return m.list[k].OutputBytes })
	out := model{o: m.o, levels: m.levels, chain: m.chain, list: make([]profile.State, len(kept)),
		ids: make([]int, len(kept)), words: (len(kept) + 63) / 64}
	out.before = make([]uint64, len(kept)*out.words)
	for j, old := range kept {
		out.list[j], out.ids[j] = m.list[old], m.ids[old]
		for i := range j {
			if m.isBefore(kept[i], old) {
				out.before[j*out.words+i/64] |= 1 << (i % 64)
			}
		}
	}
	return out
}
