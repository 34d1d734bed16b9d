package tune

import (
	"context"
	"math"
	"slices"

	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/sim"
	"github.com/millrace-ml/millrace/tune/predict"
	"github.com/millrace-ml/millrace/tune/roles"
)

// mostInstructions is the size of the largest space that exhaust examines: roughly the number of forwards and backwards
// of one step, summed over all plans of the space.
const mostInstructions = 400_000

// mostExhausted is the largest number of layers, and of devices, for which a space's plans are counted.
const mostExhausted = 12

// exhaust simulates every plan of a small space that can be the fastest. For orders by depths, it takes every cut into
// stages, every set of devices for each stage, every way to replicate, every micro-batch size, and all depths K_i that
// these orders allow. If memory is limited it also takes every choice of recompute in alternatives. For other families
// with one stage a worker it takes the same stages with the family's own depths; general families also get all these
// depths. For a family that places stages itself, it takes all cuts for each number of chunks. It skips a plan if the
// work of the plan's devices (least) takes at least as long as the best plan so far.
//
// If a schedule or the number of stages is fixed, it takes the plans of the space that have these. It returns true if
// it examined the whole space, and no plan of the space is faster than the answer. It returns false if the search is
// brief, if anything other than the micro-batches, the schedule and the number of stages is fixed, if the space has no
// plan of the schedule, if nothing fits yet, if costs vary, if the space is too large, or if ctx ended.
func (s *search) exhaust(ctx context.Context) bool {
	if s.varies() || !s.few() || !s.every.everyPlan(ctx, s.atMost(mostInstructions)) {
		return false
	}
	return s.every.everyPlan(ctx, func(h *shape) bool {
		if s.every.least(h) < s.top.predicted.StepS*(1-1e-9) {
			s.tryAny(h)
		}
		return true
	})
}

// few reports whether the search may examine all plans of the space, and there are few enough layers and devices to
// count them.
func (all *candidates) few() bool {
	free := all.Fix
	free.MicroBatch, free.MicroBatches, free.Schedule, free.Stages = 0, 0, "", 0
	return !all.brief && enumeration{all.space}.lists(all.Fix.Schedule) && free.none() && all.fit() &&
		len(all.Profile.Layers) <= mostExhausted && len(all.Cluster.Devices) <= mostExhausted
}

// tryAny simulates a shape of any family. A shape without depths gets the depths of its family. A shape that its family
// cannot schedule is skipped.
func (s *search) tryAny(h *shape) {
	if _, searched := s.families[h.family]; searched || h.stages() == 1 {
		s.record(s.tryShape(kindOf(h), h))
		return
	}
	pl := s.plan(h)
	if f, err := family.Lookup(h.family); err == nil {
		place(pl, f, len(s.Cluster.Devices))
		_, err = s.try(f.Name, pl)
		s.record(candidate{}, false, err)
	}
}

// exhaustSizes simulates every plan that can be the best of its kind, for micro-batch sizes with few enough plans. A
// search in which such a size is fixed examines all these plans. Without exhaustSizes, it could find a faster plan than
// a search in which nothing is fixed. Where costs vary it takes fewer plans, because each of their predictions takes
// several simulations. Otherwise exhaustSizes does nothing where exhaust would do nothing, or if exhaust examined all
// sizes together.
func (s *search) exhaustSizes(ctx context.Context) {
	if s.exhausted || s.inner && !s.forRivals || !s.few() {
		return
	}
	most := mostInstructions / s.repeats()
	for _, size := range s.sizes {
		one := *s.space
		one.sizes = []int{size}
		every := enumeration{&one}
		if !every.everyPlan(ctx, s.atMost(most)) {
			continue
		}
		every.everyPlan(ctx, func(h *shape) bool {
			if every.least(h) < s.fastest(s.kindOfAny(h))*(1-tie) {
				s.tryAny(h)
			}
			return true
		})
	}
}

// atMost returns a function that adds up the forwards and backwards in a step of each plan given to it. The function
// returns true while they are at most `left`.
func (s *space) atMost(left int) func(*shape) bool {
	return func(h *shape) bool {
		left -= 2 * (s.Batch / h.size) * max(h.stages(), h.used())
		return left >= 0
	}
}

// repeats returns how much more there is to simulate in a prediction if costs vary. It is 1 if they do not.
func (all *candidates) repeats() int {
	costs, err := sim.CostsOf(all.Profile, all.Cluster, all.top.plan)
	if err != nil || !costs.Noise.Varies() {
		return 1
	}
	return predict.Steps(costs) / predict.Steps(sim.Costs{}) * costs.Plays(len(all.Cluster.Devices))
}

// enumeration lists all plans of a space.
type enumeration struct{ *space }

// everyPlan calls `yield` for each plan until `yield` or ctx stops it. It says whether it reached the end.
func (e enumeration) everyPlan(ctx context.Context, yield func(*shape) bool) bool {
	on := true
	give := func(h *shape) bool {
		on = on && ctx.Err() == nil && yield(h)
		return on
	}
	n, W := len(e.Profile.Layers), len(e.Cluster.Devices)
	placed, own := e.placing()
	for _, size := range e.sizes {
		everyCut(n, W, func(cuts []int) bool {
			S := len(cuts) - 1
			if !e.wantsStages(S) || S == 1 && !e.wants(e.undivided) ||
				S > 1 && !e.wants(e.pipelines) && !slices.ContainsFunc(own, e.wants) {
				return on // no plan with these cuts is wanted
			}
			e.everyPlaces(S, func(counts, order []int) bool {
				e.everyRecompute(cuts, func(again []plan.Recompute) bool {
					for _, split := range []bool{false, true} {
						if split && (e.Whole || slices.Max(counts) == 1) {
							continue
						}
						h := &shape{cuts: cuts, counts: counts, order: order, again: again, size: size, split: split,
							family: e.pipelines.Name}
						e.everyDepth(h, own, give)
					}
					return on
				})
				return on
			})
			return on
		})
		for _, f := range placed {
			for v := 1; v <= n && on && e.wants(f); v++ {
				if (v > 1) != roles.SeveralStages(f) || f.Chunks > 1 && v != f.Chunks {
					continue
				}
				at := f.Placement(W, v)
				if len(at) > n {
					break
				}
				if !e.wantsStages(len(at)) {
					continue
				}
				counts, order := make([]int, len(at)), slices.Concat(at...)
				for i := range at {
					counts[i] = len(at[i])
				}
				everyCut(n, len(at), func(cuts []int) bool {
					if len(cuts)-1 == len(at) {
						e.everyRecompute(cuts, func(again []plan.Recompute) bool {
							give(&shape{cuts: cuts, counts: counts, order: order, depth: make([]int, len(at)), again: again, size: size,
								family: f.Name})
							return on
						})
					}
					return on
				})
			}
		}
	}
	return on
}

// wants reports whether plans of a family keep to the fixed schedule.
func (e enumeration) wants(f family.Family) bool {
	return e.Fix.Schedule == "" || e.Fix.Schedule == f.Name
}

// wantsStages reports whether plans with S stages keep to the fixed number of stages.
func (e enumeration) wantsStages(S int) bool { return e.Fix.Stages == 0 || e.Fix.Stages == S }

// placing lists the registry's synchronous families that suit the devices and have no searched depths. `placed` holds
// those that place their stages themselves, `own` those with one stage for each worker.
func (e enumeration) placing() (placed, own []family.Family) {
	for _, f := range family.All() {
		if e.searched(f) || !e.suits(f) || !slices.Contains(e.policies(f), schedule.Sync) {
			continue
		}
		if f.Place != nil {
			placed = append(placed, f)
		} else {
			own = append(own, f)
		}
	}
	return placed, own
}

// lists reports whether everyPlan has plans of a schedule; "" means any schedule.
func (e enumeration) lists(name string) bool {
	placed, own := e.placing()
	return name == "" || name == e.pipelines.Name || slices.ContainsFunc(slices.Concat(placed, own),
		func(f family.Family) bool { return f.Name == name })
}

// everyDepth passes `give` a copy of the shape for each list of depths that do not grow from stage to stage. It does so
// under the family that takes any depths, and under the general families in `own`. Then it passes a copy under each
// family in `own`, with that family's own depths. The families in `own` have one stage on each worker. If a schedule is
// fixed, it leaves out all other families.
func (e enumeration) everyDepth(h *shape, own []family.Family, give func(*shape) bool) {
	S, m := h.stages(), e.Batch/h.size
	as := func(family string, depth []int) bool {
		n := *h
		n.family, n.depth = family, depth
		return give(&n)
	}
	if S == 1 {
		as(e.undivided.Name, []int{1})
		return
	}
	general := []family.Family{e.pipelines}
	for _, f := range own {
		if f.IsGeneral() {
			general = append(general, f)
		}
	}
	unwanted := func(f family.Family) bool { return !e.wants(f) }
	general, own = slices.DeleteFunc(general, unwanted), slices.DeleteFunc(slices.Clone(own), unwanted)
	if len(general) > 0 && (e.replicas() || h.used() == S) {
		everyFalling(S, m, func(depth []int) bool {
			on := true
			for _, f := range general {
				on = on && as(f.Name, depth)
			}
			return on
		})
	}
	for _, f := range own {
		as(f.Name, make([]int, S))
	}
}

// everyFalling lists all sequences of n numbers from 1 to `most` that never grow, until `yield` returns false.
func everyFalling(n, most int, yield func([]int) bool) {
	on := true
	var walk func(have []int)
	walk = func(have []int) {
		if len(have) == n {
			on = yield(slices.Clone(have))
			return
		}
		top := most
		if len(have) > 0 {
			top = have[len(have)-1]
		}
		for k := top; k >= 1 && on; k-- {
			walk(append(have, k))
		}
	}
	walk(make([]int, 0, n))
}

// everyCut lists all ways to cut n layers into stages, at most `most` stages. Each list of cuts includes 0 and n.
func everyCut(n, most int, yield func(cuts []int) bool) {
	on := true
	var walk func(have []int)
	walk = func(have []int) {
		if on && len(have) <= most {
			on = yield(append(slices.Clone(have), n))
		}
		for k := have[len(have)-1] + 1; k < n && len(have) < most && on; k++ {
			walk(append(have, k))
		}
	}
	walk([]int{0})
}

// everyPlaces lists all ways to give devices to S stages. A stage's devices are ascending, and unused devices come
// last. If all devices are equal and on one level without a shared link, the ways differ only in the stages' numbers of
// devices.
func (e enumeration) everyPlaces(S int, yield func(counts, order []int) bool) {
	W, on := len(e.Cluster.Devices), true
	// If a link is shared, its direction depends on which device has the lower number.
	alike := !e.mixed && len(e.Cluster.Levels) == 1 && e.Cluster.Nodes == nil && !e.Cluster.Levels[0].Shared
	var walk func(counts, order []int, left []int)
	walk = func(counts, order, left []int) {
		if len(counts) == S {
			on = yield(slices.Clone(counts), slices.Concat(order, left))
			return
		}
		for r := 1; r <= len(left)-(S-1-len(counts)) && on; r++ {
			every := everySubset
			if alike {
				every = func(of []int, r int, yield func(in, out []int)) { yield(of[:r], of[r:]) }
			}
			every(left, r, func(in, out []int) {
				if on {
					walk(append(slices.Clip(counts), r), slices.Concat(order, in), out)
				}
			})
		}
	}
	all := make([]int, W)
	for d := range all {
		all[d] = d
	}
	walk(nil, nil, all)
}

// everySubset lists the ways to take r elements of a list. `in` holds the taken elements and `out` the others, both in
// the list's order.
func everySubset(of []int, r int, yield func(in, out []int)) {
	var walk func(i int, in, out []int)
	walk = func(i int, in, out []int) {
		switch {
		case len(in) == r:
			yield(in, slices.Concat(out, of[i:]))
		case len(of)-i >= r-len(in):
			walk(i+1, append(slices.Clip(in), of[i]), out)
			walk(i+1, in, append(slices.Clip(out), of[i]))
		}
	}
	walk(0, nil, nil)
}

// everyRecompute lists the choices of recompute for all stages. Without a memory limit the only choice is no recompute,
// because recompute only adds work.
func (e enumeration) everyRecompute(cuts []int, yield func([]plan.Recompute) bool) {
	S, on := len(cuts)-1, true
	limited := slices.ContainsFunc(e.orders[0], func(d int) bool { return e.Cluster.MemoryBytes(d) > 0 })
	var walk func(have []plan.Recompute)
	walk = func(have []plan.Recompute) {
		if len(have) == S {
			on = yield(slices.Clone(have))
			return
		}
		some := []plan.Recompute{plan.KeepAll}
		if limited {
			some = alternatives(cuts[len(have)+1] - cuts[len(have)])
		}
		for _, again := range some {
			if on {
				walk(append(have, again))
			}
		}
	}
	walk(make([]plan.Recompute, 0, S))
}

// least returns a lower bound on a shape's step for any order: each device does all its stages' work and updates. For
// families by depths, a replicated stage also sums its gradients before its next step. At best the sum overlaps the
// stage's last backward, unless workers share too few cores.
func (e enumeration) least(h *shape) float64 {
	busy := map[int]float64{}
	worst, m, at := 0.0, e.Batch/h.size, 0
	_, byDepth := e.families[h.family]
	for i, r := range h.counts {
		from, to, rows := h.cuts[i], h.cuts[i+1], h.rows(r)
		for k, d := range h.order[at : at+r] {
			t := e.tables.of(e.Cluster.Devices[d], rows)
			if t == nil {
				return math.Inf(1)
			}
			mine := (m - k + r - 1) / r
			if h.split {
				mine = m
			}
			busy[d] += float64(mine)*t.least(from, to, h.again[i]) + span(t.update, from, to)
			if byDepth && r > 1 && k == 0 {
				sumS := e.Cluster.AllReduceS(h.order[at:at+r], t.Gradients[to]-t.Gradients[from])
				if _, backward := t.time(from, to, h.again[i]); !e.Cluster.Crowded(h.used()) {
					sumS = max(0, sumS-backward)
				}
				busy[d] += sumS
			}
			worst = max(worst, busy[d])
		}
		at += r
	}
	return worst
}
