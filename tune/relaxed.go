package tune

import (
	"context"
	"slices"

	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/plan/bound"
)

// mostRelaxed is the largest number of a bound's paths that a search starts from.
const mostRelaxed = 3

// relaxation continues a search from the paths of its bound.
type relaxation struct{ *search }

// goOn starts from the paths that the bound cannot rule out. A path has stages, devices and micro-batches like a plan,
// so moves can improve it. goOn also continues from the best plan with other depths.
func (s relaxation) goOn(ctx context.Context) {
	if s.brief || s.exhausted || !s.Fix.sizesAtMost() || s.top.plan == nil || s.late(s.top.plan) != nil {
		return
	}
	bases := []*shape{s.shapeOf(s.top.plan)}
	for _, proof := range s.proven.of(ctx, s.space, s.boundKind(s.top.plan)) {
		if h := s.proven.shape(s.space, proof); h != nil && len(bases) <= mostRelaxed {
			bases = append(bases, h)
		}
	}
	for _, h := range bases {
		if h != nil && ctx.Err() == nil {
			s.deepen(ctx, h)
		}
	}
}

// deepen simulates two shapes, each with several depths: the given one, and the one that improve makes of it by
// estimates. It then applies moves to the best result.
func (s relaxation) deepen(ctx context.Context, h *shape) {
	var best candidate
	var from *shape
	improved, _ := s.move.improve(ctx, s.estimator, h, estimatesPerSeed)
	for _, h := range []*shape{h, improved} {
		all := s.Batch / h.size
		var tried []*shape
		for more := range mostDeeper + 1 {
			tried = append(tried, deeper(h, more, all, s.pipelines.Name))
		}
		for _, apart := range []int{1, 2, 3, all} {
			tried = append(tried, stepped(h, apart, all, s.pipelines.Name))
		}
		for _, next := range tried {
			c, fresh, err := s.tryShape(kindOf(next), next)
			if s.record(c, fresh, err) && (from == nil || c.predicted.StepS < best.predicted.StepS) {
				best, from = c, next
			}
		}
	}
	if from == nil {
		return
	}
	if c, err := s.whole(best); err == nil {
		s.climb(ctx, c, from)
	}
}

// mostDeeper is the largest number of micro-batches that are added to the depth of a path's first stage.
const mostDeeper = 4

// deeper returns a shape whose first stage has `more` additional micro-batches in flight, up to a total of `all`. The
// increase shrinks towards the last stage. Estimates ignore waits at links that several pairs of devices share; deeper
// stages can hide such waits.
func deeper(h *shape, more, all int, family string) *shape {
	n := h.clone()
	if more == 0 || n.stages() == 1 {
		return n
	}
	n.family = family
	for i := range n.depth {
		n.depth[i] = min(h.depth[i]+more*(len(n.depth)-1-i)/(len(n.depth)-1), all)
	}
	return n
}

// stepped returns a shape whose last stage has one micro-batch in flight on each device. Each earlier stage has `apart`
// more than the stage after it. In a family's depths, the replicas of a stage share the micro-batches in flight. If
// links are slow, each device of a replicated stage then has too few of them.
func stepped(h *shape, apart, all int, family string) *shape {
	n := h.clone()
	if n.stages() == 1 {
		return n
	}
	n.family = family
	for i := range n.depth {
		n.depth[i] = min(1+apart*(n.stages()-1-i), all)
	}
	return n
}

// proven caches the bounds for a kind of plans.
type proven struct {
	kind bound.Kind
	all  []bound.Proof
}

func (p *proven) of(ctx context.Context, s *space, kind bound.Kind) []bound.Proof {
	if p.all == nil || !p.kind.Same(kind) {
		p.all, p.kind = bound.Proofs(ctx, s.Profile.Packed(s.Fix.Boundary), s.Cluster, kind), kind
	}
	return p.all
}

// shape places a path's stages on devices. Each stage is in as many groups as on the path, preferably in the groups of
// the stage before. It returns nil if the path has fewer than two stages, if it divides micro-batches that must stay
// whole, or if the shape is not allowed (settleDepths).
func (p *proven) shape(s *space, proof bound.Proof) *shape {
	if len(proof.Path) < 2 || proof.Split && s.Whole || !slices.Contains(s.sizes, proof.MicroBatch) {
		return nil
	}
	S := len(proof.Path)
	h := &shape{cuts: []int{0}, again: slices.Repeat([]plan.Recompute{s.recomputes()[0]}, S), size: proof.MicroBatch,
		split: proof.Split, family: s.pipelines.Name}
	inside := s.Cluster.Levels[0].Size
	free := make([][]int, (len(s.Cluster.Devices)+inside-1)/inside)
	for d := range s.Cluster.Devices {
		free[d/inside] = append(free[d/inside], d)
	}
	last := make([]int, len(free)) // devices of the previous stage, by group
	for _, run := range proof.Path {
		groups := slices.Clone(run.Groups)
		if groups == nil {
			groups = []int{run.Devices}
		}
		on := inGroups(free, last, groups)
		h.cuts, h.counts, h.order = append(h.cuts, run.LastLayer+1), append(h.counts, len(on)), append(h.order, on...)
	}
	for _, left := range free {
		h.order = append(h.order, left...)
	}
	if !s.settleDepths(h) {
		return nil
	}
	return h
}

// inGroups takes devices for a stage: for each number in `counts`, it takes that many devices from one group. If no
// group has enough, it takes the devices from several groups. Groups with the most devices of the previous stage come
// first.
func inGroups(free [][]int, last, counts []int) (on []int) {
	order := make([]int, len(free))
	for g := range order {
		order[g] = g
	}
	slices.SortStableFunc(order, func(a, b int) int {
		if last[a] != last[b] {
			return last[b] - last[a]
		}
		return len(free[b]) - len(free[a])
	})
	clear(last)
	taken := make([]bool, len(free))
	take := func(g, n int) {
		on, free[g], last[g], taken[g] = append(on, free[g][:n]...), free[g][n:], last[g]+n, true
	}
	lacking := 0
	for _, n := range counts {
		at := slices.IndexFunc(order, func(g int) bool { return !taken[g] && len(free[g]) >= n })
		if at < 0 {
			lacking += n
			continue
		}
		take(order[at], n)
	}
	for _, g := range order {
		n := min(lacking, len(free[g]))
		lacking -= n
		take(g, n)
	}
	return on
}
