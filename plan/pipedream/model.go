package pipedream

import (
	"cmp"
	"math"
	"slices"

	"github.com/millrace-ml/millrace/profile"
)

// level is one level of the hierarchy, as the optimizer sees it.
type level struct {
	workers   int     // groups of the level inside
	bandwidth float64 // bytes a second between them
}

// model is the terms of the recursion over a list of states. The states are in the order of their closures' times,
// which is a topological order. Segment (i, j) is what lies behind state i-1 up to state j.
type model struct {
	o       options
	levels  []level
	list    []profile.State
	ids     []int    // of the list in the profile's states
	before  []uint64 // bit j*words+i: state i is a strict ancestor of state j
	words   int
	dropped int
	chain   bool // every state comes before all later ones
}

// take lists the states by time. Past the limit, the state with the least output stands for
// its neighbours.
func (m *model) take(states *profile.States, limit int) {
	m.ids = make([]int, len(states.List))
	for i := range m.ids {
		m.ids[i] = i
	}
	slices.SortStableFunc(m.ids, func(a, b int) int {
		return cmp.Compare(states.List[a].ComputeS, states.List[b].ComputeS)
	})
	if limit == 0 {
		limit = 2600
		if len(m.levels) == 1 {
			limit = 20000
		}
	}
	if n := len(m.ids); n > limit {
		m.dropped = n - limit
		ids := m.ids
		m.ids = nil
		for _, k := range profile.Sparse(n, limit, func(k int) int64 { return states.List[ids[k]].OutputBytes }) {
			m.ids = append(m.ids, ids[k])
		}
	}
	n := len(m.ids)
	m.words = (n + 63) / 64
	m.before = make([]uint64, n*m.words)
	m.list = make([]profile.State, n)
	m.chain = true
	first := 0 // of the same segment; all earlier ones come before, and take no more time
	for j, id := range m.ids {
		m.list[j] = states.List[id]
		row := m.before[j*m.words:][:m.words]
		if states.Segment(id) != states.Segment(m.ids[first]) {
			first = j
		}
		for i := range first / 64 {
			row[i] = math.MaxUint64
		}
		row[first/64] = 1<<(first%64) - 1
		for i := first; i < j; i++ {
			if states.Before(m.ids[i], id) {
				row[i/64] |= 1 << (i % 64)
			} else {
				m.chain = false
			}
		}
	}
}

func (m *model) isBefore(i, j int) bool {
	return m.chain || m.before[j*m.words+i/64]>>(i%64)&1 == 1
}

func (m *model) compute(i, j int) float64 {
	if i == 0 {
		return m.list[j].ComputeS
	}
	return m.list[j].ComputeS - m.list[i-1].ComputeS
}

func (m *model) parameters(i, j int) float64 {
	if i == 0 {
		return float64(m.list[j].ParameterBytes)
	}
	return float64(m.list[j].ParameterBytes - m.list[i-1].ParameterBytes)
}

func (m *model) activations(i, j int) float64 {
	if i == 0 {
		return float64(m.list[j].ActivationBytes)
	}
	return float64(m.list[j].ActivationBytes - m.list[i-1].ActivationBytes)
}

// volume is what a byte of weights costs in seconds of synchronisation among r replicas.
func (m *model) volume(level, r int) float64 {
	b := m.levels[level].bandwidth
	switch m.o.volume {
	case "paper":
		return 2 * float64(r-1) / b
	case "prose":
		return 2 * float64(r-1) / (b * float64(r))
	}
	return 4 * float64(r-1) / (b * float64(r))
}

// stage is T^k: what segment (i, j) takes on r workers of a level, compute being what it takes on one.
func (m *model) stage(compute, sync float64, r int) float64 {
	if m.o.sum {
		return (compute + sync) / float64(r)
	}
	return max(compute, sync) / float64(r)
}

// whole is T^k of a segment that is not cut at this level, or +Inf where it does not fit.
// ahead is how many of the level's n workers are not its own: each replica holds
// ceil(ahead / r) minibatches of weights and outputs, by the published rule.
func (m *model) whole(level, i, j, r int, compute float64) float64 {
	if !m.fits(i, j, m.levels[level].workers-r, r) {
		return math.Inf(1)
	}
	sync := m.volume(level, r) * m.parameters(i, j)
	if m.o.innerDivision && level > 0 {
		sync /= float64(m.levels[level-1].workers)
	}
	return m.stage(compute, sync, r)
}

// fits is the published rule: each replica holds the weights and outputs of ceil(ahead / r)
// minibatches. It is not what a plan's memory split says, of weights, versions, gradients,
// optimizer, activations and buffers: those depend on how many minibatches a stage has in
// flight, so on all workers behind it up to the outermost level, and a table of an inner level is made
// for whatever will be behind it. millrace plan simulates the plan, says where that does not
// fit and names a limit under which this rule has a plan that does (tune.FittingLimit).
func (m *model) fits(i, j, ahead, r int) bool {
	return m.o.memory == 0 || m.held(i, j, ahead, r) <= m.o.memory
}

// held is what the published rule counts for segment (i, j) on r workers with so many ahead.
func (m *model) held(i, j, ahead, r int) float64 {
	return math.Ceil(float64(ahead)/float64(r)) * (m.activations(i, j) + m.parameters(i, j))
}

// receives is the time for which a stage of r workers behind a cut at state k uses the link in front of it:
// activations and as many bytes of gradients. sends is the same for the cut behind it, at state j.
func (m *model) receives(level, k, r int) float64 {
	if m.o.transfer == "none" {
		return 0
	}
	return 2 * float64(m.list[k].OutputBytes) / m.levels[level].bandwidth / m.o.compression / m.share(r)
}

// share is what r replicas divide a transfer by.
func (m *model) share(r int) float64 {
	if m.o.transfer == "code" {
		return float64(r)
	}
	return 1
}

func (m *model) sends(level, j, r int) float64 {
	if m.o.transfer != "code" || j == len(m.list)-1 {
		return 0
	}
	return m.receives(level, j, r)
}

func (m *model) devices() int {
	n := 1
	for _, l := range m.levels {
		n *= l.workers
	}
	return n
}
