// Package tune finds the plan with the best simulated step.
//
// Input: a profile, a cluster, a batch, a time limit, and the user's overrides. Output: a Plan with Predicted,
// LowerBound and Why, the ranked rivals, and an explanation: memory by use, the bottleneck, and the effect of better
// hardware. Unless the request is Runnable, a search without fixed settings runs every planner of package plan. It cuts
// layers itself for every family registered in package schedule/family. Guided by estimates it moves cuts, devices,
// depths, recompute and micro-batches; the simulator decides. Families without a flush are tried on request. For a run
// on this machine, Request.Runnable restricts a search to plans that package run executes. Package tune does not import
// package run.
//
// The code asks families and weight policies for properties. It contains no family's name, and only one policy's:
// schedule.Sync.
//
//	tune/predict   the simulator's prediction for one plan, and how much work simulating that plan is
//	tune/avgpipe   AvgPipe's two degrees, micro-batches and parallel pipelines
//	tune/contest   every order under every weight policy on the same stages, ranked
//
// Errors: a batch that no profiled micro-batch size divides, device types without costs, memory limits that no
// candidate meets (with the smallest limit that one would meet), overrides that contradict each other.
package tune

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/schedule"
)

// longest is how long a search with a fixed amount of work may take by default.
const longest = 10 * time.Second

// shortest is how long a search that starts from a plan may take by default.
const shortest = time.Second

// Search looks for the plan with the shortest simulated step among all those that fit.
//
// It begins with the baselines: one worker, data parallelism, a straight pipeline, equal stages, model parallelism, and
// hybrid parallelism without pipelining. Meanwhile every planner in plan's registry runs, unless the request is
// Runnable or fixes a setting. Then Search cuts the layers by dynamic programming, for every micro-batch size, number
// of stages, replication and family. It applies moves to the best shapes. A move changes cuts, how many devices the
// stages have, which device has which stage, depths, recompute, or micro-batches. Plans with several stages a worker,
// plans without a flush and plans with split backwards start from the best shapes of each number of stages. They have
// fewer moves: whatever their order leaves open of cuts, devices, recompute, depths and micro-batches. If there are few
// layers and devices, some micro-batch sizes have few enough plans that Search examines all of them. Estimates rank the
// plans, and the simulator decides among the first.
//
// When the time is over or ctx ends, the result is the best plan so far. So more time never gives a worse result.
// Planners' plans that arrived in time are simulated too, so the result is never worse than those. A plan of millions
// of instructions (predict.OftenPlayed) is simulated only if there is time. If a schedule, a number of stages, a
// micro-batch or recompute is fixed, a search without it comes first and may take as long again. Its best plans with
// what is fixed become candidates. It is left out if the user fixes all stages and workers, or if weights are not
// synchronous. If ctx is cancelled, the error is the cause of ctx, together with the best plan so far if there is one.
func Search(ctx context.Context, r Request) (*Result, error) {
	began := time.Now()
	s, err := newSearch(r)
	if err != nil {
		return nil, err
	}
	limit := r.limit()
	if r.start != nil {
		limit = cmp.Or(r.Longest, shortest)
		if s.start = s.shapeOf(r.start); s.start != nil {
			s.pool = append(s.pool, seed{s.start, s.estimator.score(s.start), kindOf(s.start)})
		}
	}
	s.likeRivals(ctx)
	caller, whole := ctx, limit
	if r.Time > 0 {
		limit -= time.Since(began)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	s.deadline, _ = ctx.Deadline()
	limit = min(limit, time.Until(s.deadline)) // ctx may end earlier
	answers := s.queryPlanners(ctx)
	if err := s.baselines.simulate(ctx); err != nil && cancelled(caller) == nil && s.top.plan == nil {
		return nil, err
	}
	seeding, done := context.WithTimeout(ctx, limit*2/5) // the rest of the time is for improving the seeds
	s.seeds(seeding)
	done()
	improving, done := context.WithDeadline(ctx, s.deadline.Add(-limit/4)) // the rest is for families not yet tried
	s.improveSeeds(improving)
	for a := range answers {
		s.collect(a)
	}
	s.exhausted = s.exhaust(improving)
	if !s.exhausted {
		s.refine(improving)
		relaxation{s}.goOn(improving)
	}
	late := improving.Err() != nil
	done()
	s.tryOthers(ctx)
	s.improvePlans(ctx)
	s.exhaustSizes(ctx)
	s.searchAgain(ctx)
	if (late || s.cutAt > 0 || ctx.Err() != nil) && cancelled(caller) == nil {
		s.cutAt = whole
	}
	if askAgain(ctx, s); r.Time > 0 {
		searchFewer(ctx, s)
	} else {
		searchFewer(caller, s)
	}
	if r.Time > 0 && !s.exhausted {
		s.explore(ctx)
	}
	found, err := s.result()
	var memory *MemoryError
	if errors.As(err, &memory) && r.start == nil && !r.inner {
		lean, done := context.WithTimeout(ctx, time.Since(began)) // as long as this search took
		err = leanest(lean, s, memory)
		done()
	}
	if stopped := cancelled(caller); stopped != nil {
		return found, stopped
	}
	return found, err
}

// limit returns how long a search that does not start from a plan may take.
func (r *Request) limit() time.Duration { return cmp.Or(r.Time, r.Longest, longest) }

// cancelled returns the cause if ctx was cancelled by its caller. It returns nil if time ran out, because the best plan
// so far is then the answer.
func cancelled(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return context.Cause(ctx)
	}
	return nil
}

// The kinds of candidates other than families.
const (
	oneWorker        = "one worker"
	dataParallelism  = "data parallelism"
	straightPipeline = "straight pipeline"
	modelParallel    = "model parallel"
	hybridParallel   = "hybrid parallelism"
	equalSplit       = "equal split"
)

// search is the state of a Search: a space, the candidates simulated so far, and the shapes from which it continues.
type search struct {
	*space
	*candidates
	cut           cutter
	move          mover
	every         enumeration
	baselines     baselines
	reasons       reasons
	estimator     *estimator
	pool          pool
	seedsByStages pool   // by number of stages and kind of replication, not by family
	start         *shape // the plan from which a brief search starts, if it has a shape
	exhausted     bool   // every plan of the space was examined
	proven        proven
	unlike        Result        // counts the plans of searches without fixed settings (likeRivals)
	cutAt         time.Duration // the time limit, if the search reached it; 0 means that it did not
}

func newSearch(r Request) (*search, error) {
	if n := len(r.Fix.Split); n > 0 && r.Fix.Stages == 0 {
		r.Fix.Stages = n + 1
	}
	all, err := newSpace(r)
	if err != nil {
		return nil, err
	}
	s := &search{
		space: all, cut: cutter{all}, move: mover{all}, every: enumeration{all}, estimator: &estimator{space: all},
		candidates: &candidates{space: all, seen: map[string]candidate{}, best: map[string]candidate{},
			byStages: map[staged]candidate{}, failed: map[string]string{}, layouts: map[string]bool{}}, reasons: reasons{all},
	}
	s.baselines = baselines{space: all, candidates: s.candidates, cut: s.cut, estimator: s.estimator}
	return s, nil
}

// own says whether the user fixes the cuts and the schedule, and has one worker for each stage. Then the workers are
// fixed too.
func (s *space) own() bool {
	return s.Fix.Schedule != "" && s.Fix.Split != nil && len(s.Fix.Split)+1 == len(s.Cluster.Devices)
}

// likeRivals searches without some of the fixed settings (freed). That search may find rivals that have them. This
// search then starts from their plans, so its result is no worse than these. likeRivals does nothing in a brief search
// or for weights that are not synchronous, or if the plan is the user's own.
//
// That search may take as long as any other, so that it finds the same rivals. Only if the request has a time, it gets
// a third of that.
func (s *search) likeRivals(ctx context.Context) {
	free := s.Request
	var frees bool
	if free.Fix, frees = freed(s.space); !frees || s.own() || s.brief ||
		s.Fix.Weights != "" && !s.Fix.Weights.Synchronous() {
		return
	}
	free.Simulated, free.inner, free.forRivals = s.together(), true, true
	free.Time = s.Time / 3
	found, _ := Search(ctx, free)
	if found == nil {
		return // nothing fits, or nothing is possible: the search with what is fixed will report it
	}
	s.tried, s.estimator.made = s.tried+found.Tried, s.estimator.made+found.Estimated
	s.cutAt = found.search.cutAt
	s.unlike = Result{Tried: s.tried, Estimated: s.estimator.made}
	for _, pl := range found.search.bestThat(func(pl *plan.Plan) bool { return keeps(s.space, pl) }) {
		if s.consider(pl); ctx.Err() != nil {
			return
		}
	}
}

// freed returns the settings for the search of likeRivals, and whether they differ from the request's. They leave out a
// fixed schedule and number of stages. If there is none, they leave out fixed micro-batches and recompute, provided
// that there is a choice.
func freed(s *space) (Overrides, bool) {
	fix := s.Fix
	if fix.Schedule = ""; fix.Split == nil && fix.Warmup == nil && fix.Stages > 1 {
		fix.Stages = 0
	}
	if fix.Schedule != s.Fix.Schedule || fix.Stages != s.Fix.Stages {
		return fix, true
	}
	if fix.Split != nil || fix.Warmup != nil || fix.Stages > 0 {
		return fix, false
	}
	again, recompute, _ := fix.FixedRecompute()
	if recompute = recompute && again != plan.Selective; recompute { // the profile of selective recompute is another one
		fix.Recompute = ""
	}
	size := fix.MicroBatch > 0 && len(s.Profile.Sizes(s.Cluster.Devices[0])) > 1
	if size {
		fix.MicroBatch, fix.MicroBatches = 0, 0
	}
	return fix, size || recompute
}

// keeps says whether a plan of another search has what this search fixes and the other does not.
func keeps(s *space, pl *plan.Plan) bool {
	again, recompute, _ := s.Fix.FixedRecompute()
	return schedule.Policy(pl.Weights).Synchronous() &&
		(s.Fix.Schedule == "" || pl.Schedule == s.Fix.Schedule) &&
		(s.Fix.Stages == 0 || len(pl.Stages) == s.Fix.Stages) &&
		(s.Fix.MicroBatch == 0 || pl.MicroBatch == s.Fix.MicroBatch) &&
		!slices.ContainsFunc(pl.Stages, func(st plan.Stage) bool { return recompute && st.Recompute != again })
}

// together returns a callback for a search inside this one. It reports the plans of both searches together.
func (s *search) together() func(plans int) {
	if s.Simulated == nil {
		return nil
	}
	before := s.tried
	return func(plans int) { s.Simulated(before + plans) }
}

// consider simulates a plan that another search found, and makes this search continue from it.
func (s *search) consider(found *plan.Plan) {
	pl := *found
	pl.Predicted, pl.LowerBound, pl.Why, pl.Rivals = nil, nil, nil, nil
	pl.Cluster = s.Cluster.Name
	pl.Planner, pl.Objective = "auto", plan.Objective{Name: "simulated step", Unit: "s"}
	kind := pl.Schedule
	h := s.shapeOf(&pl)
	if h != nil {
		kind = kindOf(h)
	}
	if s.record(s.simulated(kind, &pl)) && h != nil {
		s.pool = append(s.pool, seed{h, s.estimator.score(h), kind})
	}
}

// simulated does the same as try, except that it refuses plans for which there is no time.
func (s *search) simulated(kind string, pl *plan.Plan) (candidate, bool, error) {
	if err := s.late(pl); err != nil {
		return candidate{}, false, err
	}
	c, err := s.try(kind, pl)
	return c, err == nil, err
}

// idle is the bubble above which fewer devices may be as fast.
const idle = 0.5

// searchFewer searches the first groups of the devices, if the answer leaves devices unused or idle. A plan on some of
// the devices is a plan of the cluster too, and a search with fewer devices looks at more of them. These searches
// together may take half as long as a search, and end with ctx.
func searchFewer(ctx context.Context, s *search) {
	levels, W := s.Cluster.Levels, len(s.Cluster.Devices)
	if s.brief || s.inner || s.exhausted || s.Fix.Split != nil || s.top.plan == nil {
		return
	}
	group := W / levels[len(levels)-1].Size
	least := (len(s.top.plan.Devices()) + group - 1) / group * group
	if least >= W {
		if least = W / 2 / group * group; least == 0 || s.top.predicted.Bubble < idle {
			return
		}
	}
	ctx, cancel := context.WithTimeout(ctx, s.limit()/2)
	defer cancel()
	defer func(before time.Time) { s.deadline = before }(s.deadline)
	s.deadline, _ = ctx.Deadline()
	for _, n := range slices.Compact([]int{least, (least + W) / 2 / group * group, W - group}) {
		fewer, err := s.Cluster.First(n)
		if err != nil || ctx.Err() != nil {
			continue
		}
		some := s.Request
		some.Cluster, some.inner, some.Time, some.Simulated = fewer, true, 0, s.together()
		some.Longest = s.limit() / 6
		if found, err := Search(ctx, some); err == nil {
			s.tried, s.estimator.made = s.tried+found.Tried, s.estimator.made+found.Estimated
			s.consider(found.Best)
		}
	}
}

// mostAgain limits how often a search continues from its own answer.
const mostAgain = 3

// searchAgain runs up to mostAgain brief searches that start from the answer, until they find nothing better. Later,
// what-if questions for other hardware run such searches too. If searchAgain had not run them, these could find a
// better plan for this hardware.
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
		maps.Copy(s.layouts, found.search.layouts)
		if s.consider(found.Best); s.top.predicted.StepS >= before*(1-worthMoving) {
			return
		}
	}
}
