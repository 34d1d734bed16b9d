package artifact

import (
	"context"
	"fmt"
	"iter"
	"math"
	"math/bits"
	"slices"

	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/plan/dapple/servers"
	"github.com/millrace-ml/millrace/profile"
)

// straightSearch is plan_for(i, true) of the published planner. It finds rp equal pipelines side by side. Each pipeline
// has one device for each stage. The slowest stage or transfer is as fast as possible. A transfer sends twice the
// output of the state before the cut.
//
// The search leaves out whatever cannot be part of a plan whose slowest part takes at most `limit`. It skips states
// with too much work before them for the stages so far, or too much after them for the remaining stages. It also skips
// states after which no transfer is fast enough, and single stages and transfers that take longer than `limit`.
type straightSearch struct {
	*input
	stages, rp int
	limit      float64
	some       []bool // states after which a cut is allowed; nil means all
	inOrder    bool   // servers are filled one after the other

	number map[string]int32 // index in sets, by the key of what is taken
	sets   []servers.Taken
	places map[[2]int32]*place
}

// place holds the devices of a stage, and all devices that the stage and the earlier ones have taken. The stages that
// may follow depend only on the latter.
type place struct {
	set     int32 // index in sets of the taken devices, with those of this stage
	devices []int
	next    []move
}

// move adds one stage after a place.
type move struct {
	to   *place
	rate float64 // seconds per byte sent to the stage
}

// cell is one entry of the search's table: a pipeline of states 0..j in a number of stages. Among the pipelines that
// take the same devices, it is the one whose slowest part is fastest.
type cell struct {
	*place
	block float64
	state int // last state of the previous stage; -1 means none
	from  int // index of the previous cell, in the table's entry of that state with one stage fewer
}

// straight is plan_for(i, true). First it runs one or two quick searches that take the devices in order. If there are
// many states, there is a quick search over only a few of them. A quick search over all states follows. In the better
// of the plans that these find, the time of the slowest stage or transfer is the limit of the full search. The
// published search keeps one cell for all placements of its last stage. So it may miss the best plan and find none
// within a limit; then the limit is raised. The cells are the same with any limit.
func (a *input) straight(ctx context.Context, stages int) (best Candidate, ok bool, err error) {
	N, limit := len(a.compute), math.Inf(1)
	if N < stages {
		return best, false, nil // each stage needs a last state of its own
	}
	looks := [][]bool{nil}
	if few := 4 * stages; N > 2*few {
		some := make([]bool, N)
		for _, j := range profile.Sparse(N, few, func(j int) int64 { return int64(a.output[j]) }) {
			some[j] = true
		}
		looks = [][]bool{some, nil}
	}
	for _, some := range looks {
		first, ok, err := a.straightWithin(ctx, stages, limit, some, true)
		if err != nil {
			return best, false, err
		}
		if ok {
			limit = min(limit, first.Block*(1+plan.SameTime))
		}
	}
	for {
		best, ok, err = a.straightWithin(ctx, stages, limit, nil, false)
		if ok || err != nil || math.IsInf(limit, 1) {
			return best, ok, err
		}
		if limit *= 1.2; limit > a.total() {
			limit = math.Inf(1)
		}
	}
}

func (a *input) straightWithin(ctx context.Context, stages int, limit float64, some []bool,
	inOrder bool) (best Candidate, ok bool, err error) {
	s := &straightSearch{
		input: a, stages: stages, rp: len(a.at.Of) / stages, limit: limit, some: some, inOrder: inOrder,
		number: map[string]int32{}, places: map[[2]int32]*place{},
	}
	N := len(a.compute)
	table := make([][][]cell, stages)
	table[0] = make([][]cell, N)
	first := s.place(a.at.None(), a.at.Place(a.at.None(), s.rp)[0])
	for j := range N {
		if s.within(0, j) {
			table[0][j] = []cell{{first, a.compute[j] / float64(s.rp), -1, 0}}
		}
	}
	for m := 1; m < stages; m++ {
		if table[m], err = s.row(ctx, m, table[m-1]); err != nil {
			return best, false, err
		}
	}
	last := table[stages-1][N-1]
	if len(last) == 0 {
		return best, false, nil // no pipeline is within the limit
	}
	at := 0
	for i, c := range last {
		if c.block < last[at].block {
			at = i
		}
	}
	best = Candidate{Pipelines: s.rp, Block: last[at].block}
	end, state := N-1, N-1
	for m := stages - 1; m >= 0; m-- {
		c := table[m][state][at]
		best.Stages = append(best.Stages, Stage{c.state + 1, end, c.devices})
		end, state, at = c.state+1, c.state, c.from
	}
	slices.Reverse(best.Stages)
	best.Speedup = a.speedup(best)
	return best, true, nil
}

// within says whether stage m, counted from 0, may end with state j. The last stage ends with the last state only.
func (s *straightSearch) within(m, j int) bool {
	if m == s.stages-1 {
		return j == len(s.compute)-1
	}
	if s.some != nil && !s.some[j] || 2*s.output[j]*s.fastestRate(s.rp) > s.limit {
		return false
	}
	each := s.limit * float64(s.rp) // the most seconds of compute that one stage may have
	return math.IsInf(each, 1) || s.compute[j] <= each*float64(m+1) &&
		s.total()-s.compute[j] <= each*float64(s.stages-1-m)
}

// place returns the devices that are in `after` and not in `before`.
func (s *straightSearch) place(before, after servers.Taken) *place {
	key := [2]int32{s.set(before), s.set(after)}
	if p, ok := s.places[key]; ok {
		return p
	}
	p := &place{set: key[1], devices: s.at.Between(before, after)}
	s.places[key] = p
	return p
}

func (s *straightSearch) set(t servers.Taken) int32 {
	key := t.Key()
	n, ok := s.number[key]
	if !ok {
		n = int32(len(s.sets))
		s.number[key] = n
		s.sets = append(s.sets, t)
	}
	return n
}

// moves lists the stages that may follow a place, by every choice of placement policies.
func (s *straightSearch) moves(p *place) []move {
	if p.next == nil {
		ways := s.at.PlaceEach(s.sets[p.set], 1, s.rp)
		if s.inOrder {
			ways = ways[max(0, len(ways)-1):] // only the last way, scattered: on the first server with a free device
		}
		for _, after := range ways {
			to := s.place(s.sets[p.set], after)
			p.next = append(p.next, move{to, s.transferS(p.devices, to.devices, 1)})
		}
	}
	return p.next
}

// row returns the cells of pipelines with m+1 stages, from the cells of those with m stages.
func (s *straightSearch) row(ctx context.Context, m int, before [][]cell) ([][]cell, error) {
	N := len(s.compute)
	reached := make([]uint64, (N+63)/64) // states with which stage m-1 may end, and whose output can be sent within limit
	for k := range N {
		for _, c := range before[k] {
			for _, o := range s.moves(c.place) {
				if 2*s.output[k]*o.rate <= s.limit {
					reached[k/64] |= 1 << (k % 64)
				}
			}
		}
	}
	row := make([][]cell, N)
	at := make([]int32, len(s.sets)) // by set: 1 + index in cells; 0 if it has no cell
	for j := range N {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("plan: dapple: %w", err)
		}
		if !s.within(m, j) {
			continue
		}
		var cells []cell
		for k := range descending(s.before[j], reached) {
			last := (s.compute[j] - s.compute[k]) / float64(s.rp)
			if last > s.limit {
				continue
			}
			for ci := range before[k] {
				c := &before[k][ci]
				for _, o := range c.next {
					block := max(c.block, last, 2*s.output[k]*o.rate)
					if block > s.limit {
						continue
					}
					n := at[o.to.set]
					if n == 0 {
						cells = append(cells, cell{block: math.Inf(1)})
						n = int32(len(cells))
						at[o.to.set] = n
					}
					if block < cells[n-1].block*(1-sameBlock) {
						cells[n-1] = cell{o.to, block, k, ci}
					}
				}
			}
		}
		for _, c := range cells {
			at[c.set] = 0
		}
		row[j] = cells
	}
	return row, nil
}

// descending lists the bits that are in both sets, the highest first.
func descending(a, b []uint64) iter.Seq[int] {
	return func(yield func(int) bool) {
		for w := len(a) - 1; w >= 0; w-- {
			for word := a[w] & b[w]; word != 0; {
				top := 63 - bits.LeadingZeros64(word)
				if word &^= 1 << top; !yield(64*w + top) {
					return
				}
			}
		}
	}
}
