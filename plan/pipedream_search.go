package plan

import (
	"context"
	"math"
	"runtime"
	"sort"
	"sync"
	"sync/atomic"
)

// pipedreamSearch finds the least of the recursion exactly. What makes it fast loses nothing:
// servers of a level are alike, so that a level counts workers and never names them; and with
// best the least found so far of segment (i, j) on r workers, a cut behind k with q workers
// for the last stage can only do better if
//
//	compute(k+1, j) / (q W) < best   and   compute(i, k) / ((r-q) W) < best
//
// where W is the devices of one worker, for no pipeline is faster than its compute shared
// evenly over all its devices: synchronisation and transfers only add, and the slowest part is
// at least the mean of all, weighted by their devices. States are ordered by compute, so the
// k that may do better are a run of them, searched outwards from where both sides are even.
type pipedreamSearch struct {
	pipedreamModel
	inner [][]float64 // by level k > 0: what segment (i, j) takes on one worker, at j*n + i
}

// slack keeps rounding from pruning a cut that ties.
const pipedreamSlack = 1 - 1e-9

// computed is A^(k-1)(i->j) on all workers of the level inside.
func (s *pipedreamSearch) computed(level, i, j int) float64 {
	if level == 0 {
		return s.compute(i, j)
	}
	return s.inner[level][j*len(s.list)+i]
}

// solve returns the stages of the best plan and its value, or +Inf.
func (s *pipedreamSearch) solve(ctx context.Context) ([]pipedreamStage, float64, error) {
	n, top := len(s.list), len(s.levels)-1
	s.inner = make([][]float64, top+1)
	for level := range top {
		out := make([]float64, n*n)
		var next atomic.Int64
		var all sync.WaitGroup
		for range runtime.GOMAXPROCS(0) {
			all.Go(func() {
				for ctx.Err() == nil {
					i := int(next.Add(1)) - 1
					if i >= n {
						return
					}
					row := s.row(ctx, level, i, n-1)
					for j := i; j < n; j++ {
						out[j*n+i] = row[s.levels[level].workers][j]
					}
				}
			})
		}
		all.Wait()
		if err := ctx.Err(); err != nil {
			return nil, 0, err
		}
		s.inner[level+1] = out
	}
	row := s.row(ctx, top, 0, n-1)
	if err := ctx.Err(); err != nil {
		return nil, 0, err
	}
	value := row[s.levels[top].workers][n-1]
	if math.IsInf(value, 1) {
		return nil, value, nil
	}
	bases := []int{0}
	return s.trace(ctx, top, 0, n-1, bases), value, ctx.Err()
}

// row is A^k(i -> j, r) for all i <= j <= end, by r and j.
func (s *pipedreamSearch) row(ctx context.Context, level, i, end int) [][]float64 {
	workers := s.levels[level].workers
	row := make([][]float64, workers+1)
	for r := 1; r <= workers; r++ {
		row[r] = make([]float64, end+1)
		for j := i; j <= end; j++ {
			row[r][j] = math.Inf(1)
			if r == 1 || !s.o.straight {
				row[r][j] = s.whole(level, i, j, r, s.computed(level, i, j))
			}
			if s.o.nested && s.o.fewer && r > 1 {
				row[r][j] = min(row[r][j], row[r-1][j])
			}
		}
		if r == 1 {
			continue
		}
		for j := i + 1; j <= end && ctx.Err() == nil; j++ {
			if s.o.fewer {
				row[r][j] = min(row[r][j], row[r-1][j]) // the artifact: not where i is j
			}
			row[r][j], _, _ = s.cut(level, i, j, r, row, row[r][j])
		}
	}
	return row
}

// cut is the least that cutting segment (i, j) on r workers gives below best, with the
// last state before the cut and the last stage's workers; k is -1 where nothing is below.
func (s *pipedreamSearch) cut(level, i, j, r int, row [][]float64, best float64) (value float64, k, q int) {
	width := 1.0
	for _, l := range s.levels[:level] {
		width *= float64(l.workers)
	}
	from, to := 0.0, s.list[j].ComputeS
	if i > 0 {
		from = s.list[i-1].ComputeS
	}
	k, most := -1, r-1
	if s.o.straight {
		most = 1
	}
	for try := 1; try <= most; try++ {
		send := s.sends(level, j, try)
		if send >= best {
			continue
		}
		left := row[r-try]
		better := func(c int) {
			if left[c] >= best || !s.mayCut(i, c, j) {
				return
			}
			last := s.computed(level, c+1, j)
			if last/float64(try) >= best || !s.fits(c+1, j, s.levels[level].workers-r, try) {
				return
			}
			v := max(left[c], send, s.receives(level, c, try), s.last(level, c+1, j, try, last))
			if v < best {
				best, k, q = v, c, try
			}
		}
		even := from + (to-from)*float64(r-try)/float64(r)
		mid := i + sort.Search(j-i, func(d int) bool { return s.list[i+d].ComputeS >= even })
		for c := mid - 1; c >= i && (to-s.list[c].ComputeS)*pipedreamSlack < best*float64(try)*width; c-- {
			better(c)
		}
		for c := mid; c < j && (s.list[c].ComputeS-from)*pipedreamSlack < best*float64(r-try)*width; c++ {
			better(c)
		}
	}
	return best, k, q
}
