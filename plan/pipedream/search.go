package pipedream

import (
	"context"
	"iter"
	"math"
	"math/bits"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/millrace-ml/millrace/internal/crash"
)

// search finds the exact minimum of the recursion; its shortcuts never miss it. Servers of a level are identical, so a
// level only counts workers. Consider cutting segment (i, j) on r workers after state k, with q workers for the last
// stage. Let
//
//	head(k) = min over k' >= k of max( A(i->k', r-q), the time of the transfer after k' )
//	tail(k) = T of q replicas, with the least A^(k-1)(k'+1->j) and the fewest weights over k' <= k
//
// A cut after k or later takes at least head(k); a cut after k or earlier takes at least tail(k). head never falls with
// k, and tail never rises. So the search begins where head and tail cross. From there it goes up until head reaches the
// least value found, and down until tail does. States are sorted by compute. So on the innermost level, along a chain,
// tail is exactly the last stage's time.
//
// It also skips whatever cannot be part of a plan as good as one already known; see reach.go.
type search struct {
	model
	reach
	inner    []segments  // by level k > 0: times of segments on one worker
	received [][]float64 // by level: receives(level, k, 1)
	weights  []float64   // by k: the largest ParameterBytes of a state from 0 to k
	fullest  held        // fullest segment of the last plan that trace wrote
}

// row holds A^k(i -> j, r) for one i; +Inf if out of reach.
type row struct {
	least [][]float64   // by r and j
	head  [][][]float64 // by r, q and the last state before the cut
	cross [][]int       // by r and q: where head and tail crossed for the previous segment
	cuts  []uint64      // bit k: segments that begin with i may be cut after state k, if k comes before their end
}

// computed returns A^(k-1)(i->j) on all workers of the next inner level.
func (s *search) computed(level, i, j int) float64 {
	if level == 0 {
		return s.compute(i, j)
	}
	return s.inner[level].at(i, j)
}

// solve returns the stages of the best plan and its value, or +Inf.
func (s *search) solve(ctx context.Context) ([]stage, float64, error) {
	s.limit = math.Inf(1)
	n := len(s.list)
	for _, few := range coarser {
		if 2*few > n {
			break
		}
		coarse := &search{model: s.thinned(few), reach: reach{limit: s.limit}}
		row, err := coarse.rows(ctx)
		if err != nil {
			return nil, 0, err
		}
		s.limit = min(s.limit, row.value(len(coarse.list)-1))
	}
	row, err := s.rows(ctx)
	if err != nil {
		return nil, 0, err
	}
	value := row.value(n - 1)
	if math.IsInf(value, 1) {
		return nil, value, nil
	}
	s.fullest = held{}
	return s.trace(ctx, len(s.levels)-1, 0, n-1, []int{0}, row), value, ctx.Err()
}

// value returns the time of states 0 to end on all workers.
func (r *row) value(end int) float64 {
	if whole := r.least[len(r.least)-1]; end < len(whole) {
		return whole[end]
	}
	return math.Inf(1)
}

// rows fills in all levels, innermost first, and returns the single row of the outermost.
func (s *search) rows(ctx context.Context) (*row, error) {
	n, top := len(s.list), len(s.levels)-1
	s.inner, s.received = make([]segments, top+1), make([][]float64, top+1)
	s.weights = make([]float64, n)
	for k, most := 0, 0.0; k < n; k++ {
		most = max(most, float64(s.list[k].ParameterBytes))
		s.weights[k] = most
	}
	for level := range s.levels {
		s.received[level] = make([]float64, n)
		for k := range n {
			s.received[level][k] = s.receives(level, k, 1)
		}
	}
	s.windows(&s.model, s.received)
	for level := range top {
		out := s.segments(&s.model, level+1)
		var next atomic.Int64
		var all sync.WaitGroup
		for range runtime.GOMAXPROCS(0) {
			all.Go(crash.Caught(func() {
				for ctx.Err() == nil {
					i := int(next.Add(1)) - 1
					if i >= n {
						return
					}
					if !s.begins(level+1, i) {
						continue
					}
					row := s.row(ctx, level, i, n-1)
					for j, v := range row.least[s.levels[level].workers] {
						if j >= i && s.ends[level+1][j] {
							out.least[j][out.begins[i]] = v
						}
					}
				}
			}))
		}
		all.Wait()
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		out.envelop()
		s.inner[level+1] = out
	}
	row := s.row(ctx, top, 0, n-1)
	return row, ctx.Err()
}

// row returns A^k(i -> j, r) for each j from i to `end` that is within reach. The row's field `least` ends with the
// last such j.
func (s *search) row(ctx context.Context, level, i, end int) *row {
	workers, most := s.levels[level].workers, s.cap(&s.model, level, i)
	end = s.last(&s.model, level, workers, i, end)
	row := &row{least: make([][]float64, workers+1), head: make([][][]float64, workers+1),
		cross: make([][]int, workers+1), cuts: s.cuts(level, i)}
	for r := 1; r <= workers; r++ {
		least := make([]float64, end+1)
		row.least[r] = least
		row.cross[r], row.head[r] = make([]int, r), s.heads(level, i, end, r, row.least)
		ends := s.ends[level]
		if r == workers {
			ends = s.ends[level+1]
		}
		last := s.last(&s.model, level, r, i, end)
		for j := i; j <= end && ctx.Err() == nil; j++ {
			least[j] = math.Inf(1)
			if j > last || !ends[j] {
				continue
			}
			if r == 1 || !s.o.straight {
				least[j] = s.whole(level, i, j, r, s.computed(level, i, j))
			}
			if r > 1 && s.mayIdle(i, j) {
				least[j] = min(least[j], row.least[r-1][j])
			}
			if r > 1 && j > i {
				if v, k, _ := s.cut(level, i, j, r, row, min(least[j], most)); k >= 0 {
					least[j] = v
				}
			}
		}
	}
	return row
}

// cuts returns, as bits, the states k >= i after which a segment that begins with i may be cut on a level. With
// cuts=nested, state i-1 must also be an ancestor of k.
func (s *search) cuts(level, i int) []uint64 {
	cuts := make([]uint64, s.words)
	for k := i; k < len(s.list); k++ {
		if s.ends[level][k] && (i == 0 || !s.o.nested || s.isBefore(i-1, k)) {
			cuts[k/64] |= 1 << (k % 64)
		}
	}
	return cuts
}

// heads returns head(k) of the comment at search, by q and k, for segments that begin with i on r workers.
func (s *search) heads(level, i, end, r int, least [][]float64) [][]float64 {
	heads := make([][]float64, r)
	for q := 1; q < r && (q == 1 || !s.o.straight); q++ {
		head, share := make([]float64, end+1), s.share(q)
		lowest := math.Inf(1)
		for k := end; k >= i; k-- {
			lowest = min(lowest, max(least[r-q][k], s.received[level][k]/share))
			head[k] = lowest
		}
		heads[q] = head
	}
	return heads
}

// mayIdle says whether segment (i, j) may leave workers idle. In the published code, segments of a single state may
// not.
func (s *search) mayIdle(i, j int) bool { return s.o.fewer && (s.o.nested || j > i) }

// cut returns the least value of cutting segment (i, j) on r workers, if it is below `best`. k is then the last state
// before the cut, and q is the number of the last stage's workers. If no cut is below `best`, k is -1.
func (s *search) cut(level, i, j, r int, row *row, best float64) (value float64, k, q int) {
	var inner, tails []float64 // for the segments that end with j, by where they begin
	var begins []int
	if level > 0 {
		in := &s.inner[level]
		inner, tails, begins = in.least[j], in.envelope[j], in.begins
	}
	to, received, before := s.list[j].ComputeS, s.received[level], s.before[j*s.words:][:s.words]
	k = -1
	most := r - 1
	if s.o.straight {
		most = 1
	}
	for try := 1; try <= most; try++ {
		send := s.sends(level, j, try)
		if send >= best {
			continue
		}
		workers := float64(try)
		least, head := row.least[r-try], row.head[r][try]
		volume, weights := s.volume(level, try), float64(s.list[j].ParameterBytes)
		tail := func(c int) float64 {
			compute := to - s.list[c].ComputeS
			if level > 0 {
				compute = tails[begins[c+2]-1]
			}
			if sync := volume * max(0, weights-s.weights[c]); s.o.sum {
				return (compute + sync) / workers
			} else {
				return max(compute, sync) / workers
			}
		}
		share := s.share(try)
		better := func(c int) {
			if least[c] >= best || received[c]/share >= best {
				return
			}
			last := to - s.list[c].ComputeS
			if level > 0 {
				last = inner[begins[c+1]]
			}
			if last/workers >= best || !s.fits(c+1, j, s.levels[level].workers-r, try) {
				return
			}
			if v := max(least[c], send, received[c]/share, s.stage(last, volume*s.parameters(c+1, j), try)); v < best {
				best, k, q = v, c, try
			}
		}
		mid := min(max(row.cross[r][try], i), j)
		for mid < j && head[mid] < tail(mid) {
			mid++
		}
		for mid > i && head[mid-1] >= tail(mid-1) {
			mid--
		}
		row.cross[r][try] = mid
		for c := range upwards(before, row.cuts, mid) {
			if send >= best || head[c] >= best {
				break // no later cut is below best
			}
			better(c)
		}
		for c := range downwards(before, row.cuts, mid) {
			if send >= best || tail(c) >= best {
				break // no earlier cut is below best
			}
			better(c)
		}
	}
	return best, k, q
}

// upwards yields the elements that two sets of states share, from a state up.
func upwards(a, b []uint64, from int) iter.Seq[int] {
	return func(yield func(int) bool) {
		for w := from / 64; w < len(a); w++ {
			both := a[w] & b[w]
			if w == from/64 {
				both &= math.MaxUint64 << (from % 64)
			}
			for ; both != 0; both &= both - 1 {
				if !yield(64*w + bits.TrailingZeros64(both)) {
					return
				}
			}
		}
	}
}

// downwards yields the elements that two sets of states share, from just below a state down.
func downwards(a, b []uint64, below int) iter.Seq[int] {
	return func(yield func(int) bool) {
		for w := below / 64; w >= 0; w-- {
			both := a[w] & b[w]
			if w == below/64 {
				both &= 1<<(below%64) - 1
			}
			for both != 0 {
				top := 63 - bits.LeadingZeros64(both)
				both &^= 1 << top
				if !yield(64*w + top) {
					return
				}
			}
		}
	}
}
