package tune

import (
	"context"
	"slices"

	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/tune/predict"
)

// polish moves the best plan about of every family and weight policy that has no shapes to refine: those
// whose workers hold several stages, and those that update without a flush. Where the
// stages lie, how many there are and their depths are the family's; what moves are cuts, what is
// computed again, and the micro-batch where the plan is a step of the batch.
func (s *search) polish(ctx context.Context) {
	if s.brief || s.exhausted {
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
		if done[own] || s.notes[kind] != "" || !movable(c.plan) || c.over(s.Cluster) > 0 || c.predicted.StepS > 1.25*s.top.predicted.StepS {
			continue
		}
		done[own] = true
		s.polishOne(ctx, own, c)
	}
}

// movable says whether a plan has several stages of whole layers in the profile's order.
func movable(pl *plan.Plan) bool {
	return len(pl.Stages) > 1 && pl.Order == nil && !slices.ContainsFunc(pl.Stages, func(st plan.Stage) bool { return st.FirstFraction != 0 || st.LastFraction != 0 })
}

// worthMoving is what a move must gain, relatively: stages in balance are not given up for a step
// that nobody could measure.
const worthMoving = 1e-3

func (s *search) polishOne(ctx context.Context, kind string, best candidate) {
	budget := max(20, instructionsOfRefining/(18*best.plan.MicroBatches*len(best.plan.Stages))/4)
	for again := true; again; {
		again = false
		s.nearby(best.plan, func(next *plan.Plan) bool {
			budget--
			predicted, rough, err := predict.PlanIf(s.Profile, s.Cluster, next, s.Clip, func(stepS float64) bool {
				return stepS < best.predicted.StepS*(1-worthMoving)
			})
			s.tried++
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

// nearby are the plans one move away from one.
func (s *search) nearby(pl *plan.Plan, yield func(*plan.Plan) bool) {
	open := true
	try := func(change func(next *plan.Plan) bool) {
		if !open {
			return
		}
		next := *pl
		next.Stages = slices.Clone(pl.Stages)
		if change(&next) {
			open = yield(&next)
		}
	}
	if s.Fix.Split == nil {
		for _, by := range []int{1, -1, 3, -3} {
			for i := 1; i < len(pl.Stages); i++ {
				try(func(next *plan.Plan) bool {
					before, behind := &next.Stages[i-1], &next.Stages[i]
					before.LastLayer += by
					behind.FirstLayer += by
					return before.FirstLayer <= before.LastLayer && behind.FirstLayer <= behind.LastLayer
				})
			}
		}
	}
	if _, fixed, _ := s.Fix.FixedRecompute(); !fixed {
		for i, st := range pl.Stages {
			for _, again := range alternatives(st.LastLayer - st.FirstLayer + 1) {
				if again != st.Recompute {
					try(func(next *plan.Plan) bool { next.Stages[i].Recompute = again; return true })
				}
			}
		}
	}
	if pl.Batch() != s.Batch {
		return
	}
	at := slices.Index(s.sizes, pl.MicroBatch)
	for _, k := range []int{at - 1, at + 1} {
		if at >= 0 && k >= 0 && k < len(s.sizes) {
			try(func(next *plan.Plan) bool {
				next.MicroBatch, next.MicroBatches = s.sizes[k], s.Batch/s.sizes[k]
				for i := range next.Stages {
					next.Stages[i].Warmup = min(next.Stages[i].Warmup, next.MicroBatches)
				}
				return true
			})
		}
	}
}
