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
)

// longest is how long a search of a fixed amount of work may go on.
const longest = 10 * time.Second

// shortest is how long a search for other hardware may go on.
const shortest = time.Second

// Search looks for the plan with the shortest simulated step among all those that fit.
//
// It begins with what is always there (one worker, data parallelism, a straight pipeline, equal
// stages, model parallelism), asks every planner in plan's registry beside that, cuts the layers by
// dynamic programming for every micro-batch size, number of stages, replication and family of
// schedule's registry, and moves what looks best about: cuts, devices between stages, which device
// takes which stage, depths, recompute, micro-batches; of plans with several stages a worker or
// without a flush cuts, recompute and micro-batches. Estimates rank, the simulator decides. Once
// the time is over, or ctx's, the best so far is the answer, so more time never gives a worse one;
// what a planner returned in time has been simulated too, so it is never worse than those either;
// but a plan of millions of instructions (predict.OftenPlayed) only where there is time for that. A search
// whose ctx is cancelled has no answer: its error is the cause.
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
	answers := s.queryPlanners(ctx)
	if err := s.baselines(ctx); err != nil {
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
	}
	s.tryOthers(ctx)
	s.improvePlans(ctx)
	if r.Time > 0 && !s.exhausted {
		s.explore(ctx)
	}
	if err := cancelled(caller); err != nil {
		return nil, err
	}
	return s.result()
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
	equalSplit       = "equal split"
)

// search is a Search under way: a space, what was simulated of it, and what goes on from there.
type search struct {
	*space
	*candidates
	cut       cutter
	move      mover
	every     enumeration
	estimator *estimator
	pool      pool
	start     *shape // of a search for other hardware, the plan for the present one
	exhausted bool   // every plan of the space was looked at
}

func newSearch(r Request) (*search, error) {
	all, err := newSpace(r)
	if err != nil {
		return nil, err
	}
	return &search{
		space: all, cut: cutter{all}, move: mover{all}, every: enumeration{all}, estimator: &estimator{space: all},
		candidates: &candidates{space: all, seen: map[string]candidate{}, best: map[string]candidate{},
			failed: map[string]string{}},
	}, nil
}
