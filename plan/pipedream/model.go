package pipedream

import (
	"cmp"
	"math"
	"slices"

	"github.com/millrace-ml/millrace/profile"
)

// level is one level of the cluster's hierarchy.
type level struct {
	workers   int     // number of groups of the next inner level
	bandwidth float64 // bytes a second between these groups
}

// model holds the terms of the recursion over a list of states. The states are sorted by the times of their
// closures, which is a topological order. Segment (i, j) has the layers after state i-1 up to state j.
type model struct {
	o       options
	levels  []level
	list    []profile.State
	ids     []int    // index of each listed state in the profile's states
	before  []uint64 // bit i of the words from j*words on: state i is a strict ancestor of state j
	words   int
	dropped int
	chain   bool // every state is an ancestor of all later ones
}

// take lists the states by time. If there are more than `limit`, it keeps only one state of each neighbourhood: the one
// with the least output. A limit of 0 means 2600, or 20000 with a single level.
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
	first := 0 // first state of state j's segment; all states before that segment are ancestors of j
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

// volume returns the seconds to synchronise a byte of weights among r replicas.
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

// stage returns T^k: the time of a segment on r workers of a level. `compute` is the time of the segment's computation,
// and `sync` the time of its synchronisation; both are divided by r.
func (m *model) stage(compute, sync float64, r int) float64 {
	if m.o.sum {
		return (compute + sync) / float64(r)
	}
	return max(compute, sync) / float64(r)
}

// whole returns T^k of a segment that is not cut at this level, or +Inf if it does not fit. By the published rule, each
// replica holds ceil(ahead / r) minibatches of weights and outputs. Here `ahead` is the number of the level's workers
// that belong to other segments.
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

// fits applies the published rule: each replica holds the weights and outputs of ceil(ahead / r) minibatches. A plan's
// real memory also has versions, gradients, optimizer, activations and buffers. It depends on the number of minibatches
// in flight, and so on all later workers up to the outermost level. The recursion cannot use it, because a table of an
// inner level must hold for any later workers. Therefore millrace plan simulates the plan and says where it does not
// fit. It also names a limit with which this rule finds a plan that fits (tune.FittingLimit).
func (m *model) fits(i, j, ahead, r int) bool {
	return m.o.memory == 0 || m.held(i, j, ahead, r) <= m.o.memory
}

// held returns the bytes of segment (i, j) on r workers by the published rule, with `ahead` workers in other segments.
func (m *model) held(i, j, ahead, r int) float64 {
	return math.Ceil(float64(ahead)/float64(r)) * (m.activations(i, j) + m.parameters(i, j))
}

// receives returns the seconds for which a stage of r workers uses the link before it. The cut before the stage is at
// state k. The stage receives activations and sends back as many bytes of gradients.
func (m *model) receives(level, k, r int) float64 {
	if m.o.transfer == "none" {
		return 0
	}
	return 2 * float64(m.list[k].OutputBytes) / m.levels[level].bandwidth / m.o.compression / m.share(r)
}

// share returns the number by which r replicas divide a transfer's time.
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
