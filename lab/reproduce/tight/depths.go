package tight

import (
	"container/heap"
	"context"
	"math"
	"slices"

	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/tune/roles"
)

// branch is a layout with all its plans, or only with the plans whose depths lie between lo and hi.
type branch struct {
	of      *layout
	lo, hi  []int   // nil: all depths; the type `times` has not computed a bound yet
	least   float64 // lower bound of the step, in seconds
	sampled bool    // some depths of the layout were simulated
}

// branches is a heap of branches, the least lower bound first.
type branches []branch

func (b branches) Len() int           { return len(b) }
func (b branches) Less(i, j int) bool { return b[i].least < b[j].least }
func (b branches) Swap(i, j int)      { b[i], b[j] = b[j], b[i] }
func (b *branches) Push(one any)      { *b = append(*b, one.(branch)) }
func (b *branches) Pop() any {
	last := (*b)[len(*b)-1]
	*b = (*b)[:len(*b)-1]
	return last
}

// search repeatedly takes the open branch with the least lower bound. A branch begins as a layout with all depths, of
// which some are simulated. It is then divided in two, and so are its parts, until each stage has one depth left. That
// plan is simulated. The search ends when no branch has a bound less than e.below(), when the verdict is known, or at a
// limit.
func (e *every) search(ctx context.Context) error {
	var open branches
	for i := range e.open {
		open = append(open, branch{of: &e.open[i], least: e.open[i].least})
	}
	heap.Init(&open)
	for steps := 0; len(open) > 0; steps++ {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		one := heap.Pop(&open).(branch)
		if one.least >= e.below() {
			break
		}
		if limited := steps >= mostBranches || e.played >= e.limit; limited || e.known(one.least) {
			e.small.AllDepths = e.small.AllDepths && !limited
			e.small.FloorS = min(e.small.FloorS, one.least)
			break
		}
		if err := e.divide(one, func(part branch) {
			if part.least < e.below() {
				heap.Push(&open, part)
			}
		}); err != nil {
			return err
		}
	}
	return nil
}

// below returns a limit in seconds. The search looks only for plans whose step is shorter than this limit.
func (e *every) below() float64 {
	if e.enough > 0 {
		return min(e.enough, e.small.BestS)
	}
	return e.small.BestS
}

// known reports whether the verdict is known, if every plan that was not tried takes at least `floor` seconds.
func (e *every) known(floor float64) bool {
	s := *e.small
	if s.FloorS = min(s.FloorS, floor); e.enough == 0 {
		return false
	}
	loose := s.verdict()
	return loose == Plan || loose == Both
}

// divide advances a branch by one step. In the first step, the branch gets a bound. In the second step, some of its
// depths are simulated (see sample), unless a limit is reached. After each of these two steps, divide yields the whole
// branch, except that a layout of one stage is done once it has been simulated. In later steps, divide simulates a
// branch that has only one plan, and yields the two parts of any other branch.
func (e *every) divide(b branch, yield func(part branch)) error {
	S, M := len(b.of.stages), e.batch/b.of.m
	times := e.timesOf(*b.of)
	if b.lo == nil {
		b.lo, b.hi = slices.Repeat([]int{1}, S), slices.Repeat([]int{M}, S)
		if !e.halves { // the type `times` computes only whole backwards
			b.least = max(b.least, times.least(b.lo, b.hi, e.below()))
		}
		yield(b)
		return nil
	}
	if !b.sampled {
		if b.sampled = true; e.halves || S == 1 || e.samples < mostSamples {
			e.samples++
			if err := e.sample(*b.of); err != nil || S == 1 {
				return err
			}
		}
		b.least = max(b.least, times.least(b.lo, b.hi, e.below()))
		yield(b)
		return nil
	}
	widest, most := 0, 0
	for i, hi := range b.hi {
		n := times.stages[i].devices[0].n // number of a device's micro-batches; a depth above n has the same effect as n
		if wide := min(hi, n) - min(b.lo[i], n); wide > most {
			widest, most = i, wide
		}
	}
	if most == 0 {
		l := *b.of
		l.least = b.least
		_, err := e.try(l, b.lo, roles.Pipelines().Name)
		return err
	}
	middle := b.lo[widest] + most/2
	for _, upper := range []bool{false, true} {
		part := b
		part.lo, part.hi = slices.Clone(b.lo), slices.Clone(b.hi)
		if upper {
			part.lo[widest] = middle + 1
		} else {
			part.hi[widest] = middle
		}
		for i := S - 2; i >= 0; i-- { // no stage may have a smaller depth than the next stage
			part.lo[i] = max(part.lo[i], part.lo[i+1])
		}
		possible := true
		for i := range S {
			if i > 0 {
				part.hi[i] = min(part.hi[i], part.hi[i-1])
			}
			possible = possible && part.lo[i] <= part.hi[i]
		}
		if possible {
			part.least = max(part.least, times.least(part.lo, part.hi, e.below()))
			yield(part)
		}
	}
	return nil
}

// sample simulates a layout under some depths and, if e.halves is set, under the families that split backwards. If the
// best of these depths is within 5 % of the best plan of all, it also tries neighbours of the best depths, as long as
// they get better. A layout of one stage is simulated once.
func (e *every) sample(l layout) error {
	S, M := len(l.stages), e.batch/l.m
	if S == 1 {
		_, err := e.try(l, []int{1}, roles.Undivided().Name)
		return err
	}
	if e.halves {
		for _, f := range family.All() {
			if f.Place == nil && f.Halves && f.AdmitsPolicy(schedule.Sync) {
				if _, err := e.try(l, make([]int, S), f.Name); err != nil {
					return err
				}
			}
		}
	}
	best, bestS := []int(nil), math.Inf(1)
	consider := func(depth []int) error {
		stepS, err := e.try(l, depth, roles.Pipelines().Name)
		if stepS < bestS {
			best, bestS = depth, stepS
		}
		return err
	}
	for _, apart := range []int{1, 2, M} {
		depth := make([]int, S)
		for i := range depth {
			depth[i] = min(M, 1+apart*(S-1-i))
		}
		if err := consider(depth); err != nil {
			return err
		}
	}
	for better := bestS < 1.05*e.small.BestS; better; {
		before := bestS
		for i := range S {
			for _, more := range []int{-1, 1} {
				depth := slices.Clone(best)
				if depth[i] += more; depth[i] < 1 || depth[i] > M || i > 0 && depth[i] > depth[i-1] ||
					i+1 < S && depth[i] < depth[i+1] {
					continue
				}
				if err := consider(depth); err != nil {
					return err
				}
			}
		}
		better = bestS < before*(1-plan.SameTime)
	}
	return nil
}
