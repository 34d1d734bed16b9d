package tune

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/tune/predict"
	"github.com/millrace-ml/millrace/tune/roles"
)

// tryOthers simulates the families whose depths are not searched. These are families with split backwards, without a
// flush (if requested), for boards (if the devices are boards), and with several stages a worker. Their plans have the
// stages of the best plans so far, and the most promising ones for each number of stages. The layers are cut anew for
// several stages a worker, for streams, or if no family's depths are searched. A family that does not allow the stages
// is skipped.
func (s *search) tryOthers(ctx context.Context) {
	if s.Fix.Stages == 1 && s.Fix.Schedule == "" || s.brief && !s.others {
		return
	}
	bases := s.bases()
	if len(s.families) == 0 {
		bases = s.cut.cutAnew(ctx)
	}
	more := distinct(slices.Concat(bases, promising(s)))
	streams := bases
	if s.Async && len(s.families) > 0 { // the best stages with a flush need not be the best without
		streams = distinct(slices.Concat(bases, s.cut.cutAnew(ctx)))
		slices.SortStableFunc(streams, func(a, b *shape) int { return cmp.Compare(s.computes(a), s.computes(b)) })
	}
	for _, f := range family.All() {
		if s.searched(f) {
			continue
		}
		if s.Fix.Schedule != "" && s.Fix.Schedule != f.Name ||
			s.Fix.Schedule == "" && !s.suits(f) {
			continue
		}
		shapes := streams
		switch {
		case s.Fix.Split != nil && (f.Place != nil || len(bases) == 0):
			shapes = s.cut.splitAsGiven(f)
		case f.Place != nil:
			if shapes = s.cut.placed(f); len(shapes) == 0 {
				tooFewLayers(s, f)
			}
		case slices.Contains(s.policies(f), schedule.Sync):
			shapes = more
		}
		s.tryFamily(ctx, f, shapes)
	}
}

const (
	// promisingOfAKind is the number of shapes that promising keeps for each number of stages and kind of replication.
	promisingOfAKind = 2
	// promisingWithin is how many times as long as the best step an estimate may be. Estimates are those of 1F1B; orders
	// with split backwards have shorter steps on the same stages.
	promisingWithin = 1.5
)

// promising returns the seeds with the best estimates for each number of stages and kind of replication.
func promising(s *search) (out []*shape) {
	s.seedsByStages.sort()
	count := map[string]int{}
	for _, n := range s.seedsByStages {
		if s.fit() && n.score.stepS > promisingWithin*s.top.predicted.StepS {
			continue
		}
		if count[n.kind]++; count[n.kind] <= promisingOfAKind {
			out = append(out, n.shape)
		}
	}
	slices.SortStableFunc(out, func(a, b *shape) int { return b.stages() - a.stages() })
	return out
}

// distinct leaves out shapes that differ from others in depth and family only.
func distinct(all []*shape) (out []*shape) {
	seen := map[string]bool{}
	for _, h := range all {
		key := fmt.Sprint(h.cuts, h.devices(), h.again, h.size, h.split && h.replicated())
		if !seen[key] {
			seen[key] = true
			out = append(out, h)
		}
	}
	return out
}

// stagesOf names a shape's number of stages and kind of replication.
func stagesOf(h *shape) string { return fmt.Sprint(h.stages(), h.replicated(), h.split) }

// fewestPipelines is the default number of pipelines for elastic averaging.
const fewestPipelines = 2

// tryFamily simulates shapes under one family and each requested weight policy.
func (s *search) tryFamily(ctx context.Context, f family.Family, shapes []*shape) {
	worked, why := false, ""
	var others []int // numbers of stages that the family could have instead
	// A named family that places its stages itself may have other numbers of stages, unless it can have this one.
	mayDiffer := s.Fix.Schedule != "" && roles.SeveralStages(f) && s.Fix.Stages <= len(s.Cluster.Devices) &&
		!slices.ContainsFunc(shapes, func(h *shape) bool { return h.stages() == s.Fix.Stages })
	for _, policy := range s.policies(f) {
		kind := f.Name
		if !policy.Synchronous() {
			kind += " " + string(policy)
		}
		for _, h := range shapes {
			if ctx.Err() != nil {
				return
			}
			if c, there := s.best[kind]; there && f.Place == nil && c.over(s.Cluster) == 0 &&
				s.computes(h) >= c.predicted.StepS*(1-tie) {
				continue
			}
			if n := s.Fix.Stages; n > 0 && h.stages() != n && !mayDiffer {
				others = append(others, h.stages())
				continue
			}
			pl := s.plan(h)
			pl.Schedule, pl.Weights = f.Name, string(policy)
			if policy.Averages() {
				pl.Elastic = cmp.Or(s.Fix.Elastic, plan.NewElastic(fewestPipelines))
			}
			if policy.Served() {
				pl.Staleness = s.Fix.Staleness
			}
			for i := range pl.Stages {
				pl.Stages[i].Warmup = 0 // 0 means the family's own
			}
			place(pl, f, len(s.Cluster.Devices))
			err := s.late(pl)
			if err == nil {
				_, err = s.try(kind, pl)
			}
			if err != nil {
				why = err.Error()
				continue
			}
			worked = true
		}
	}
	if why == "" && len(others) > 0 {
		slices.Sort(others)
		why = fmt.Sprintf("it has %s on %s, not %d", stagesInWords(slices.Compact(others)),
			terminal.Count(len(s.Cluster.Devices), "worker"), s.Fix.Stages)
	}
	if !worked && why != "" {
		s.failed[f.Name] = why
	}
}

// tooFewLayers notes that a family that places its stages itself has more of them than there are layers, if so.
func tooFewLayers(s *search, f family.Family) {
	W, v := len(s.Cluster.Devices), max(1, f.Chunks)
	if v == 1 && roles.SeveralStages(f) {
		v = 2
	}
	if S := len(f.Placement(W, v)); S > len(s.Profile.Layers) {
		s.failed[f.Name] = fmt.Sprintf("it has %s at least on %s, and %s has %s", terminal.Count(S, "stage"),
			terminal.Count(W, "worker"), s.Profile.Model, terminal.Count(len(s.Profile.Layers), "layer"))
	}
}

// computes returns how long a shape's busiest device computes in a step. No order of the shape has a shorter step.
func (s *space) computes(h *shape) (busiest float64) {
	for i, on := range h.devices() {
		for _, d := range on {
			t := s.tables.of(s.Cluster.Devices[d], h.rows(len(on)))
			if t == nil {
				return 0
			}
			each := float64(s.Batch/h.size) * t.least(h.cuts[i], h.cuts[i+1], h.again[i])
			if !h.split {
				each /= float64(len(on))
			}
			busiest = max(busiest, each)
		}
	}
	return busiest
}

// stagesInWords names several numbers of stages, of which one is to be chosen.
func stagesInWords(numbers []int) string {
	last := terminal.Count(numbers[len(numbers)-1], "stage")
	if len(numbers) == 1 {
		return last
	}
	words := make([]string, len(numbers)-1)
	for i := range words {
		words[i] = strconv.Itoa(numbers[i])
	}
	return strings.Join(words, ", ") + " or " + last
}

// bases returns the shapes of the best plans so far: at most four straight and four replicated ones, each of several
// stages.
func (all *candidates) bases() []*shape {
	var straight, replicated []*shape
	for _, kind := range all.ranked() {
		h := all.shapeOf(all.best[kind].plan)
		if h == nil || h.stages() < 2 {
			continue
		}
		if h.replicated() {
			replicated = append(replicated, h)
		} else {
			straight = append(straight, h)
		}
	}
	return slices.Concat(straight[:min(4, len(straight))], replicated[:min(4, len(replicated))])
}

// improvePlans applies moves to the plans of families and weight policies that the method refine does not handle. These
// have several stages a worker, split backwards, or no flush. It improves the best plan of each, and some with other
// numbers of stages or micro-batches. A plan must fit and not be much slower than the best. The family sets the places
// and the number of the stages, if it places them itself. It also sets their depths, unless it takes any depths. The
// moves change cuts, recompute, and what the family leaves open. If a step of the plan computes the requested batch,
// the moves also change the micro-batch.
func (s *search) improvePlans(ctx context.Context) {
	if s.brief && !s.others || s.exhausted {
		return
	}
	done := map[string]bool{}
	for _, kind := range s.ranked() {
		c := s.best[kind]
		own := c.plan.Schedule
		if !schedule.Policy(c.plan.Weights).Synchronous() {
			own += " " + c.plan.Weights
		} else if _, searched := s.families[c.plan.Schedule]; searched {
			continue
		}
		if done[own] || !movable(c.plan) || c.over(s.Cluster) > 0 || c.predicted.StepS > 1.25*s.top.predicted.StepS {
			continue
		}
		done[own] = true
		s.improvePlan(ctx, own, c, instructionsOfRefining)
		for _, c := range s.otherStages(kind, c) {
			s.improvePlan(ctx, own, c, instructionsOfRefining/2)
		}
	}
}

// othersWithin is how many times as long as its family's best step a plan with other stages or micro-batches may take
// to be improved.
const othersWithin = 1.1

// mostOthers is the largest number of such plans that are improved, for each family and weight policy.
const mostOthers = 3

// otherStages returns a kind's best plans for other stages, replication or micro-batches than those of `than`, the
// fastest first. It leaves out those that do not fit or are much slower.
func (all *candidates) otherStages(kind string, than candidate) (out []candidate) {
	for at, c := range all.byStages {
		if at.kind == kind && at != stagedAs(kind, than.plan) && c.over(all.Cluster) == 0 &&
			c.predicted.StepS <= othersWithin*than.predicted.StepS {
			out = append(out, c)
		}
	}
	slices.SortFunc(out, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.predicted.StepS, b.predicted.StepS), len(a.plan.Stages)-len(b.plan.Stages),
			a.plan.MicroBatch-b.plan.MicroBatch, cmp.Compare(a.plan.Replication, b.plan.Replication))
	})
	return out[:min(mostOthers, len(out))]
}

// movable says whether a plan has several stages of whole layers in the profile's order.
func movable(pl *plan.Plan) bool {
	return len(pl.Stages) > 1 && pl.Order == nil && !slices.ContainsFunc(pl.Stages,
		func(st plan.Stage) bool { return st.FirstFraction != 0 || st.LastFraction != 0 })
}

// worthMoving is the fraction by which a move must shorten a step to be made. Smaller gains cannot be measured, and
// without them the stages stay balanced.
const worthMoving = 1e-3

func (s *search) improvePlan(ctx context.Context, kind string, best candidate, instructions int) {
	budget := max(20, instructions/(18*best.plan.MicroBatches*len(best.plan.Stages))/4)
	for again := true; again; {
		again = false
		s.move.nearby(best.plan, func(next *plan.Plan) bool {
			budget--
			predicted, rough, err := predict.PlanIf(s.Profile, s.Cluster, next, s.Clip, func(stepS float64) bool {
				return stepS < best.predicted.StepS*(1-worthMoving)
			})
			s.counted(next)
			if c := (candidate{plan: next, predicted: predicted}); err == nil && !rough && c.over(s.Cluster) == 0 {
				if c, err = s.try(kind, next); err == nil {
					best, again = c, true
					return false
				}
			}
			return budget > 0 && ctx.Err() == nil
		})
		if budget <= 0 || ctx.Err() != nil {
			return
		}
	}
}
