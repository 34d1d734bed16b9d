// Package tune finds the plan that the simulator likes best.
//
// In: a profile, a cluster, a batch, a time and whatever the user fixes. Out: a Plan with
// Predicted, LowerBound and Why filled in, the ranked rivals, and what explains it: memory by
// use, the bottleneck, what better hardware would do. It asks every planner of package plan,
// cuts layers itself for every family of schedule's registry, moves cuts, devices, depths,
// recompute and micro-batches by estimates, and lets sim decide; it never looks inside run.
// Families that update without a flush join where the request says so; for this machine only
// what run executes is looked at (Request.Runnable).
//
// Families and weight policies are asked for properties, never for names.
//
//	tune/predict   what the simulator says of one plan, and how much work that is
//	tune/avgpipe   AvgPipe's two degrees, micro-batches and parallel pipelines
//	tune/contest   every order under every weight policy on the same stages, ranked
//
// Refused: a batch that no profiled micro-batch size divides, device types without costs,
// memory limits that no candidate meets (with the smallest that would), overrides that
// contradict each other.
package tune

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/schedule"
)

// longest is how long a search of a fixed amount of work may go on.
const longest = 10 * time.Second

// shortest is how long a search for other hardware may go on.
const shortest = time.Second

// Search looks for the plan with the shortest simulated step among all those that fit.
//
// It begins with what is always there (one worker, data parallelism, a straight pipeline, equal stages, model
// parallelism, hybrid parallelism without pipelining), asks every planner in plan's registry beside that,
// cuts the layers by dynamic programming for every micro-batch size, number of stages, replication and family
// of schedule's registry, and moves what looks best about: cuts, devices between stages, which device takes
// which stage, depths, recompute, micro-batches; of plans with several stages a worker or without a flush
// cuts, recompute and micro-batches. Estimates rank, the simulator decides. Once the time is over, or ctx's,
// the best so far is the answer, so more time never gives a worse one; what a planner returned in time has
// been simulated too, so it is never worse than those either; but a plan of millions of instructions
// (predict.OftenPlayed) only where there is time for that. Where a schedule is fixed the search without that
// comes first, so that the schedule is never slower than as a rival of others. A search whose ctx is
// cancelled gives the cause as its error, beside the best so far if there is one.
func Search(ctx context.Context, r Request) (*Result, error) {
	s, err := newSearch(r)
	if err != nil {
		return nil, err
	}
	limit := cmp.Or(r.Time, r.Longest, longest)
	if r.start != nil {
		limit = cmp.Or(r.Longest, shortest)
		if s.start = s.shapeOf(r.start); s.start != nil {
			s.pool = append(s.pool, seed{s.start, s.estimator.score(s.start), kindOf(s.start)})
		}
	}
	caller := ctx
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	s.deadline, _ = ctx.Deadline()
	if err := s.likeRivals(ctx, limit/2); err != nil {
		return nil, err
	}
	answers := s.queryPlanners(ctx)
	if err := s.baselines.simulate(ctx); err != nil && cancelled(caller) == nil {
		return nil, err
	}
	seeding, done := context.WithTimeout(ctx, limit*2/5) // the rest is for improving them
	s.seeds(seeding)
	done()
	s.improveSeeds(ctx)
	for a := range answers {
		s.collect(a)
	}
	s.exhausted = s.exhaust(ctx)
	if !s.exhausted {
		s.refine(ctx)
		relaxation{s}.goOn(ctx)
	}
	s.tryOthers(ctx)
	s.improvePlans(ctx)
	s.searchAgain(ctx)
	if ctx.Err() != nil && cancelled(caller) == nil {
		s.cutAt = limit
	}
	if r.Time > 0 && !s.exhausted {
		s.explore(ctx)
	}
	found, err := s.result()
	if stopped := cancelled(caller); stopped != nil {
		return found, stopped
	}
	return found, err
}

// cancelled is the cause of a ctx that its caller cancelled. Time that ran out is none: the best so
// far is what was asked for.
func cancelled(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return context.Cause(ctx)
	}
	return nil
}

// The kinds of candidates that are not families.
const (
	oneWorker        = "one worker"
	dataParallelism  = "data parallelism"
	straightPipeline = "straight pipeline"
	modelParallel    = "model parallel"
	hybridParallel   = "hybrid parallelism"
	equalSplit       = "equal split"
)

// search is a Search under way: a space, the candidates simulated so far, and those from which it goes on.
type search struct {
	*space
	*candidates
	cut       cutter
	move      mover
	every     enumeration
	baselines baselines
	reasons   reasons
	estimator *estimator
	pool      pool
	start     *shape // of a search for other hardware, the plan for the present one
	exhausted bool   // every plan of the space was looked at
	proven    proven
	cutAt     time.Duration // when a search of a fixed amount of work was ended before it was done; 0: it was done
}

func newSearch(r Request) (*search, error) {
	all, err := newSpace(r)
	if err != nil {
		return nil, err
	}
	s := &search{
		space: all, cut: cutter{all}, move: mover{all}, every: enumeration{all}, estimator: &estimator{space: all},
		candidates: &candidates{space: all, seen: map[string]candidate{}, best: map[string]candidate{},
			failed: map[string]string{}}, reasons: reasons{all},
	}
	s.baselines = baselines{space: all, candidates: s.candidates, cut: s.cut, estimator: s.estimator}
	return s, nil
}

// likeRivals looks at what a schedule that is fixed comes to where it is not, as a rival: what is searched from
// there is not worse. Where the split is fixed too the plan is the user's own, and stays as it is.
func (s *search) likeRivals(ctx context.Context, limit time.Duration) error {
	if s.Fix.Schedule == "" || s.Fix.Split != nil || s.brief || s.Fix.Weights != "" && !s.Fix.Weights.Synchronous() {
		return nil
	}
	free := s.Request
	free.Fix.Schedule, free.Simulated = "", s.together()
	if free.Longest = limit; free.Time > 0 {
		free.Time = limit
	}
	found, err := Search(ctx, free)
	if err != nil {
		return cancelled(ctx) // nothing fits, or nothing can be had: the fixed schedule's own search says so
	}
	s.tried, s.estimator.made = s.tried+found.Tried, s.estimator.made+found.Estimated
	for _, r := range found.Rivals {
		if r.Plan != nil && r.Plan.Schedule == s.Fix.Schedule && schedule.Policy(r.Plan.Weights).Synchronous() {
			s.consider(r.Plan)
		}
	}
	return nil
}

// together counts the plans that a search within this one simulates behind those of this one.
func (s *search) together() func(plans int) {
	if s.Simulated == nil {
		return nil
	}
	before := s.tried
	return func(plans int) { s.Simulated(before + plans) }
}

// consider simulates a plan that another search found, and has this one go on from it.
func (s *search) consider(found *plan.Plan) {
	pl := *found
	pl.Predicted, pl.LowerBound, pl.Why, pl.Rivals = nil, nil, nil, nil
	pl.Cluster = s.Cluster.Name
	kind := pl.Schedule
	h := s.shapeOf(&pl)
	if h != nil {
		kind = kindOf(h)
	}
	if s.record(s.simulated(kind, &pl)) && h != nil {
		s.pool = append(s.pool, seed{h, s.estimator.score(h), kind})
	}
}

// simulated is try where there is time for it.
func (s *search) simulated(kind string, pl *plan.Plan) (candidate, bool, error) {
	if err := s.late(pl); err != nil {
		return candidate{}, false, err
	}
	c, err := s.try(kind, pl)
	return c, err == nil, err
}

// mostAgain bounds how often a search goes on from its own answer.
const mostAgain = 3

// searchAgain searches briefly from the answer, as what-if questions do of other hardware, until that finds
// nothing better: what such a search finds for this hardware is no advice but the answer.
func (s *search) searchAgain(ctx context.Context) {
	if s.brief || s.exhausted || s.Fix.Split != nil || s.top.plan == nil {
		return
	}
	for range mostAgain {
		before := s.top.predicted.StepS
		brief := s.Request
		brief.Fix = s.Fix
		brief.brief, brief.start, brief.Simulated = true, s.top.plan, s.together()
		found, err := Search(ctx, brief)
		if err != nil {
			return
		}
		s.tried, s.estimator.made = s.tried+found.Tried, s.estimator.made+found.Estimated
		if s.consider(found.Best); s.top.predicted.StepS >= before*(1-worthMoving) {
			return
		}
	}
}
