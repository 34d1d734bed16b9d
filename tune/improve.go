package tune

import (
	"context"
	"slices"
)

// score of a shape by estimate: what fits comes first, then time.
type score struct {
	stepS float64
	over  int64
}

func (a score) better(b score) bool {
	if a.over != b.over && (a.over > 0 || b.over > 0) {
		return a.over < b.over
	}
	return a.stepS < b.stepS*(1-1e-9)
}

func (s *search) score(h *shape) score {
	s.estimates++
	step, over := s.estimate(h)
	return score{step, max(0, over)}
}

// improve takes moves that estimate prefers until none is left, the budget of estimates is
// spent or ctx is over.
func (s *search) improve(ctx context.Context, h *shape, budget int) (*shape, score) {
	best, value := h, s.score(h)
	end := s.estimates + budget
	for again := true; again; {
		again = false
		s.neighbours(best, func(next *shape) bool {
			if v := s.score(next); v.better(value) {
				best, value, again = next, v, true
				return false // go on from there
			}
			return s.estimates < end && ctx.Err() == nil
		})
		if s.estimates >= end || ctx.Err() != nil {
			break
		}
	}
	return best, value
}

// neighbours are the shapes one move away: cuts, devices between stages, stages merged and
// split, places of devices that differ, recompute, depths, the micro-batch.
func (s *search) neighbours(h *shape, yield func(*shape) bool) {
	open := true
	try := func(change func(next *shape) bool) {
		if !open {
			return
		}
		next := h.clone()
		if change(next) {
			open = yield(next)
		}
	}
	S := h.stages()
	if s.Fix.Split == nil {
		for _, by := range []int{1, -1, 3, -3, 9, -9} {
			for i := 1; i < S; i++ {
				try(func(n *shape) bool {
					n.cuts[i] += by
					return n.cuts[i] > n.cuts[i-1] && n.cuts[i] < n.cuts[i+1]
				})
			}
		}
	}
	s.deviceMoves(h, try)
	s.depthMoves(h, try)
	if _, fixed, _ := s.Fix.FixedRecompute(); !fixed {
		for i := range S {
			for _, again := range alternatives(h.cuts[i+1] - h.cuts[i]) {
				if again != h.again[i] {
					try(func(n *shape) bool { n.again[i] = again; return true })
				}
			}
		}
	}
	for i, size := range s.sizes {
		if size != h.size {
			continue
		}
		for _, k := range []int{i - 1, i + 1} {
			if k >= 0 && k < len(s.sizes) {
				try(func(n *shape) bool {
					n.size = s.sizes[k]
					m := s.Batch / n.size
					for i := range n.depth {
						if n.depth[i] = min(n.depth[i], m); s.families[h.family].Deepest {
							n.depth[i] = m
						}
					}
					return true
				})
			}
		}
	}
}

// redo gives a shape whose devices have moved the depths that its family has for them.
func (s *search) redo(n *shape) bool {
	m := s.Batch / n.size
	f, ok := s.families[n.family]
	switch {
	case s.Fix.Warmup != nil && len(s.Fix.Warmup) == n.stages():
		n.depth = slices.Clone(s.Fix.Warmup)
	case n.stages() == 1:
		n.depth = []int{1}
	case ok:
		n.depth = depths(n.counts, n.split, f.Warmup, m)
	case len(n.depth) != n.stages():
		return false // stages where the schedule that is fixed has one
	}
	return true
}

func (s *search) deviceMoves(h *shape, try func(func(*shape) bool)) {
	S, spare := h.stages(), len(h.order)-h.used()
	if s.replicas() {
		for i := range S {
			for j := range S {
				if i != j {
					try(func(n *shape) bool {
						n.counts[i]--
						n.counts[j]++
						return n.counts[i] > 0 && s.redo(n)
					})
				}
			}
			try(func(n *shape) bool { n.counts[i]++; return spare > 0 && s.redo(n) })
			try(func(n *shape) bool { n.counts[i]--; return n.counts[i] > 0 && s.redo(n) })
		}
	}
	if s.Fix.Stages == 0 && s.Fix.Split == nil && s.Fix.Warmup == nil {
		for i := 0; i+1 < S; i++ {
			try(func(n *shape) bool { // merge
				n.cuts = slices.Delete(n.cuts, i+1, i+2)
				n.counts[i] += n.counts[i+1]
				n.counts = slices.Delete(n.counts, i+1, i+2)
				n.again = slices.Delete(n.again, i+1, i+2)
				if !s.replicas() {
					n.counts[i] = 1
				}
				if S == 2 {
					n.family, n.split = s.undivided.Name, false
				}
				return (S > 2 || s.Fix.Schedule == "") && s.redo(n)
			})
		}
		for i := range S {
			try(func(n *shape) bool { // split in the middle
				from, to := n.cuts[i], n.cuts[i+1]
				if to-from < 2 || n.counts[i] < 2 && spare == 0 {
					return false
				}
				half := max(1, n.counts[i]/2)
				if n.counts[i] > 1 {
					n.counts[i] -= half
				}
				n.cuts = slices.Insert(n.cuts, i+1, (from+to)/2)
				n.counts = slices.Insert(n.counts, i+1, half)
				n.again = slices.Insert(n.again, i+1, n.again[i])
				if n.family == s.undivided.Name {
					n.family = s.pipelines.Name
				}
				return (s.replicas() || n.used() == n.stages()) && s.redo(n)
			})
		}
	}
	if s.mixed {
		// Devices that differ change places, where at least one of them is used.
		for a := range h.used() {
			for b := a + 1; b < len(h.order); b++ {
				if !s.same(h.order[a], h.order[b]) {
					try(func(n *shape) bool { n.order[a], n.order[b] = n.order[b], n.order[a]; return true })
				}
			}
		}
	}
}

// depthMoves changes how many micro-batches stages have in hand. AFAB or P_B with other depths than
// theirs is neither any more, but 1F1B with these.
func (s *search) depthMoves(h *shape, try func(func(*shape) bool)) {
	if s.Fix.Warmup != nil || s.Fix.Schedule != "" || h.stages() == 1 {
		return
	}
	m := s.Batch / h.size
	general := s.families[h.family].General
	if general == "" {
		general = h.family
	}
	for _, by := range []int{1, -1} {
		for i := range h.depth {
			try(func(n *shape) bool {
				n.family = general
				n.depth[i] += by
				return n.depth[i] >= 1 && n.depth[i] <= m && (i == 0 || n.depth[i] <= n.depth[i-1]) &&
					(i+1 == len(n.depth) || n.depth[i] >= n.depth[i+1])
			})
		}
		try(func(n *shape) bool {
			n.family = general
			for i := range n.depth {
				n.depth[i] = min(max(1, n.depth[i]+by), m)
			}
			return true
		})
	}
}

// same says whether it makes no difference which of two devices a stage is on, its
// neighbours apart.
func (s *search) same(a, b int) bool {
	return s.Cluster.Devices[a] == s.Cluster.Devices[b] && s.Cluster.MemoryBytes(a) == s.Cluster.MemoryBytes(b)
}
