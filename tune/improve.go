package tune

import (
	"context"
	"math/rand/v2"
)

// estimatesPerSeed is the largest number of estimates that are made to improve one seed.
const estimatesPerSeed = 4000

// improveSeeds simulates one seed of each kind. It then improves the seeds by estimates, most promising first, and
// simulates the results. Finally, it looks for the plan with the least memory, if nothing fits.
func (s *search) improveSeeds(ctx context.Context) {
	s.pool.sort()
	// First try one seed of each kind unchanged, so that even a short search has all kinds.
	done := map[string]bool{}
	for _, n := range s.pool {
		if !done[n.kind] && (ctx.Err() == nil || s.top.plan == nil) {
			done[n.kind] = true
			s.record(s.tryShape(n.kind, n.shape))
		}
	}
	for i, n := range s.pool {
		if ctx.Err() != nil {
			return
		}
		budget := estimatesPerSeed
		if i >= 4 || s.brief { // rivals need to be good, not the best
			budget /= 8
		}
		s.pool[i].shape, s.pool[i].score = improveSeed(ctx, s, n.shape, budget)
	}
	s.minimiseMemory(ctx)
}

// mostSpared is how often the search for one seed is repeated with less memory than the devices have.
const mostSpared = 3

// improveSeed improves a shape by estimates, and simulates the result. The estimates leave out workspace and messages
// in flight. If a shape therefore fits by its estimate only, it is improved further with less memory: what the
// simulation lacked is spared.
func improveSeed(ctx context.Context, s *search, h *shape, budget int) (*shape, score) {
	defer func() { s.estimator.spared = 0 }()
	h, v := s.move.improve(ctx, s.estimator, h, budget)
	for range mostSpared {
		c, fresh, err := s.tryShape(kindOf(h), h)
		s.record(c, fresh, err)
		if err != nil || v.over > 0 || c.over(s.Cluster) == 0 || ctx.Err() != nil {
			return h, v
		}
		s.estimator.spared += c.over(s.Cluster)
		h, v = s.move.improve(ctx, s.estimator, h, budget)
	}
	s.record(s.tryShape(kindOf(h), h))
	return h, v
}

// improve makes moves that the estimate prefers, until there is none, the budget of estimates is spent or ctx ends.
func (m mover) improve(ctx context.Context, e *estimator, h *shape, budget int) (*shape, score) {
	best, value := h, e.score(h)
	end := e.made + budget
	for again := true; again; {
		again = false
		m.neighbours(best, func(next *shape) bool {
			if v := e.score(next); v.better(value) {
				best, value, again = next, v, true
				return false // the search continues from `next`
			}
			return e.made < end && ctx.Err() == nil
		})
		if e.made >= end || ctx.Err() != nil {
			break
		}
	}
	return best, value
}

// minimiseMemory looks for the plan with the least memory, if nothing fits so far. It does nothing if a split or a
// single stage is fixed. If all devices have the same memory limit, the result does not depend on the limit. So a
// search with the limit that a MemoryError names finds the same plan.
func (s *search) minimiseMemory(ctx context.Context) {
	if s.fit() || s.Fix.Split != nil || s.Fix.Stages == 1 {
		return
	}
	for _, S := range s.stageCounts() {
		for _, size := range s.sizes {
			for _, name := range []string{s.pipelines.Name, s.Fix.Schedule} {
				f, ok := s.families[name]
				if !ok {
					continue
				}
				for _, again := range s.recomputes() {
					w := want{stages: S, devices: S, size: size, order: s.orders[0], replicas: []int{1}, family: f, again: again,
						leanest: true}
					found := s.cut.partition(w)
					if found == nil {
						continue
					}
					h := found[0]
					s.settleDepths(h)
					if s.Fix.Schedule == "" && s.Fix.Warmup == nil {
						for i := range h.depth {
							h.depth[i] = 1
						}
					}
					s.record(s.tryLeast(kindOf(h), h))
					if ctx.Err() != nil && s.fit() {
						return
					}
				}
			}
		}
	}
}

// instructionsOfRefining limits the moves from one plan. They may simulate a quarter of this number of instructions,
// and in any case 20 plans.
const instructionsOfRefining = 3_000_000

// refine applies moves to the best plan of each kind, except plans that fit and are much slower than the best of all.
// It does nothing in a brief search, or if split and schedule are both fixed. The simulator judges the moves, because
// estimates count contention for links and cores only roughly.
func (s *search) refine(ctx context.Context) {
	if s.brief {
		return
	}
	for _, kind := range s.ranked() {
		c := s.best[kind]
		h := s.shapeOf(c.plan)
		if h == nil || s.Fix.Split != nil && s.Fix.Schedule != "" ||
			c.predicted.StepS > 1.25*s.top.predicted.StepS && c.over(s.Cluster) == 0 {
			continue
		}
		s.climb(ctx, c, h)
	}
}

func (s *search) climb(ctx context.Context, best candidate, h *shape) {
	each := 18 * best.plan.MicroBatches * max(2, h.used())
	budget := max(20, instructionsOfRefining/each/4)
	for again := true; again; {
		again = false
		value := s.estimator.score(h)
		s.move.neighbours(h, func(next *shape) bool {
			// Skip the simulation if the estimate is much worse.
			if v := s.estimator.score(next); v.stepS > 1.05*value.stepS ||
				v.over > value.over && v.over > 0 && best.over(s.Cluster) == 0 {
				return ctx.Err() == nil
			}
			budget--
			c, fresh, err := s.tryShape(kindOf(next), next)
			if err == nil && (best.over(s.Cluster) > 0 || c.predicted.StepS <= best.predicted.StepS*(1+tie)) {
				c, err = s.whole(c)
			}
			if s.record(c, fresh, err) && c.better(best, s.Cluster) {
				best, h, again = c, next, true
				return false
			}
			return budget > 0 && ctx.Err() == nil
		})
		if budget <= 0 || ctx.Err() != nil {
			return
		}
	}
}

// explore continues the search, for as long as there is time, from shapes a few moves away from a seed or the best
// plan.
func (s *search) explore(ctx context.Context) {
	if s.Fix.Split != nil || len(s.pool) == 0 {
		return
	}
	rng := rand.New(rand.NewPCG(1, 1))
	for ctx.Err() == nil {
		h := s.pool[rng.IntN(len(s.pool))].shape
		if own := s.shapeOf(s.top.plan); own != nil && rng.IntN(2) == 0 {
			h = own
		}
		for range 1 + rng.IntN(6) {
			var next []*shape
			s.move.neighbours(h, func(n *shape) bool { next = append(next, n); return true })
			if len(next) == 0 {
				return
			}
			h = next[rng.IntN(len(next))]
		}
		h, v := s.move.improve(ctx, s.estimator, h, estimatesPerSeed/4)
		if v.over == 0 && v.stepS < 1.02*s.top.predicted.StepS {
			s.record(s.tryShape(kindOf(h), h))
		}
	}
}
