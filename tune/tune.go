package tune

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/tune/predict"
	"github.com/millrace-ml/millrace/tune/roles"
)

// longest is how long a search of a fixed amount of work may go on.
const longest = 10 * time.Second

// shortest is how long a search for other hardware may go on.
const shortest = time.Second

// Search looks for the plan with the shortest simulated step among all those that fit.
//
// It begins with what is always there (one worker, data parallelism, a straight pipeline,
// equal stages, model parallelism), asks every planner in plan's registry beside that, cuts
// the layers by dynamic programming for every micro-batch size, number of stages, replication and
// family of schedule's registry, and moves what looks best about: cuts, devices between
// stages, which device takes which stage, depths, recompute, micro-batches; of plans with
// several stages a worker or without a flush cuts, recompute and micro-batches. Estimates rank, the
// simulator decides. Once the time is over, or ctx's, the best so far is the answer, so more
// time never gives a worse one; what a planner returned in time has been simulated too, so
// it is never worse than those either; but a plan of millions of instructions (oftenPlayed) only where there is time
// for that. A search whose ctx is cancelled has no answer: its error is the cause.
func Search(ctx context.Context, r Request) (*Result, error) {
	s, err := newSearch(r)
	if err != nil {
		return nil, err
	}
	limit := cmp.Or(r.Time, r.Longest, longest)
	if r.start != nil {
		limit = cmp.Or(r.Longest, shortest)
		if s.start = s.shapeOf(r.start); s.start != nil {
			s.pool = append(s.pool, seed{s.start, s.score(s.start), kindOf(s.start)})
		}
	}
	caller := ctx
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	s.deadline, _ = ctx.Deadline()
	others := s.ask(ctx)
	if err := s.baselines(ctx); err != nil {
		return nil, err
	}
	planting, done := context.WithTimeout(ctx, limit*2/5) // the rest is for judging
	s.seeds(planting)
	done()
	s.judge(ctx)
	for p := range others {
		s.hear(p)
	}
	s.exhausted = s.exhaust(ctx)
	if !s.exhausted {
		s.refine(ctx)
	}
	s.others(ctx)
	s.polish(ctx)
	if r.Time > 0 && !s.exhausted {
		s.wander(ctx)
	}
	if err := cancelled(caller); err != nil {
		return nil, err
	}
	return s.result()
}

// cancelled is the cause of a ctx that its caller cancelled. Time that ran out is none: the best so far is what
// was asked for.
func cancelled(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return context.Cause(ctx)
	}
	return nil
}

// candidate kinds that are not families.
const (
	oneWorker        = "one worker"
	dataParallelism  = "data parallelism"
	straightPipeline = "straight pipeline"
	modelParallel    = "model parallel"
	equalSplit       = "equal split"
)

type search struct {
	Request
	sizes     []int // micro-batch sizes to try
	families  map[string]family.Family
	pipelines family.Family // takes any depths; the families above are choices of its depths or have their own
	undivided family.Family // has the whole model on every worker
	tables    *tables
	mixed     bool // devices differ
	estimator estimator
	estimates int
	sums      map[*int]*sums // by order
	orders    [][]int
	seen      map[string]candidate // plans simulated
	best      map[string]candidate
	top       candidate // best of all
	leanest   candidate // that takes the least memory, of tryLean's
	notes     map[string]string
	failed    map[string]string // planners and families that gave nothing, and why
	skipped   string            // why the last plan that was passed over was not simulated; "" where none was
	pool      []seed
	start     *shape // of a search for other hardware, the plan for the present one
	tried     int
	exhausted bool      // every plan of the space was looked at
	deadline  time.Time // of the search; zero: none
}

// seed is a shape that is worth simulating.
type seed struct {
	shape *shape
	score score
	kind  string
}

func newSearch(r Request) (*search, error) {
	if len(r.Cluster.Devices) == 0 {
		return nil, fmt.Errorf("tune: cluster %s has no devices", r.Cluster.Name)
	}
	if err := r.Check(); err != nil {
		return nil, err
	}
	if r.Fix.Schedule != "" {
		f, err := family.Lookup(r.Fix.Schedule)
		if err != nil {
			return nil, fmt.Errorf("tune: %w", err)
		}
		r.Fix.Schedule = f.Name
	}
	if err := r.settleWeights(); err != nil {
		return nil, err
	}
	s := &search{
		Request: r, pipelines: roles.Pipelines(), undivided: roles.Undivided(), best: map[string]candidate{}, seen: map[string]candidate{}, families: map[string]family.Family{},
		tables: newTables(r.Profile), sums: map[*int]*sums{}, notes: map[string]string{}, failed: map[string]string{},
	}
	var err error
	if s.sizes, err = s.microBatches(); err != nil {
		return nil, err
	}
	for d := range r.Cluster.Devices {
		s.mixed = s.mixed || !s.same(0, d)
	}
	s.orders = s.deviceOrders()
	for _, f := range family.Families() {
		if f.Warmup != nil && f.Chunks >= 0 && f.Chunks <= 1 && (!f.Streaming || s.streams()) && (s.Fix.Schedule == "" || s.Fix.Schedule == f.Name) && s.admits(f) {
			s.families[f.Name] = f
		}
	}
	return s, nil
}

// admits says whether a family gives two stages on two workers a synchronous order.
func (s *search) admits(f family.Family) bool {
	if !s.Fix.Weights.Synchronous() {
		return false
	}
	_, err := family.Generate(f.Name, schedule.Settings{Placement: [][]int{{0}, {1}}, MicroBatches: 4, Weights: schedule.Sync})
	return err == nil
}

// streams says whether all devices compute and transfer at once as FPGA boards do.
func (s *search) streams() bool {
	for _, t := range s.Cluster.Devices {
		if s.Cluster.DeviceTypes[t].FPGA == nil {
			return false
		}
	}
	return true
}

// replicas says whether stages of a pipeline may be on several devices.
func (s *search) replicas() bool { return s.Fix.Warmup == nil }

// deviceOrders are the orders of devices that partitions are tried in: the cluster's, and
// where devices differ the fastest first and the fastest last.
func (s *search) deviceOrders() [][]int {
	var own []int
	for d := range s.Cluster.Devices {
		own = append(own, d)
	}
	orders := [][]int{own}
	if !s.mixed {
		return orders
	}
	n, size := len(s.Profile.Layers), s.sizes[len(s.sizes)-1]
	speed := func(d int) float64 {
		t := s.tables.of(s.Cluster.Devices[d], size)
		return t.forward[n] + t.backward[n]
	}
	for _, sign := range []float64{1, -1} {
		by := slices.Clone(own)
		slices.SortStableFunc(by, func(a, b int) int {
			switch v := sign * (speed(a) - speed(b)); {
			case v < 0:
				return -1
			case v > 0:
				return 1
			}
			return 0
		})
		if !slices.ContainsFunc(orders, func(o []int) bool { return slices.Equal(o, by) }) {
			orders = append(orders, by)
		}
	}
	return orders
}

// sumsOf is the all-reduce times along one of the orders.
func (s *search) sumsOf(order []int) *sums {
	if s.sums[&order[0]] == nil {
		s.sums[&order[0]] = &sums{c: s.Cluster, have: map[[2]int][2]float64{}}
	}
	return s.sums[&order[0]]
}

// try simulates a plan and keeps it if it is the best of its kind.
func (s *search) try(kind string, pl *plan.Plan) (candidate, error) {
	pl.PostValidate = s.Fix.PostValidate && s.Clip && schedule.Policy(pl.Weights).Synchronous()
	before, ok := s.best[kind]
	predicted, rough, err := predict.PlanIf(s.Profile, s.Cluster, pl, s.Clip, func(stepS float64) bool {
		return !ok || before.over(s.Cluster) > 0 || stepS <= before.predicted.StepS*(1+tie)
	})
	if err != nil {
		return candidate{}, fmt.Errorf("tune: %s: %w", describe(s.Profile, pl), err)
	}
	s.tried++
	c := candidate{pl, predicted, rough}
	if rough {
		return c, nil
	}
	if !ok || c.better(before, s.Cluster) {
		s.best[kind] = c
	}
	if s.notes[kind] == "" && (s.top.plan == nil || c.better(s.top, s.Cluster)) {
		s.top = c
	}
	return c, nil
}

// whole is a candidate that is not rough.
func (s *search) whole(c candidate) (candidate, error) {
	if !c.rough {
		return c, nil
	}
	predicted, err := predict.Plan(s.Profile, s.Cluster, c.plan, s.Clip)
	if err != nil {
		return candidate{}, fmt.Errorf("tune: %s: %w", describe(s.Profile, c.plan), err)
	}
	return candidate{plan: c.plan, predicted: predicted}, nil
}

// tryShape simulates a shape unless the same was simulated before, or there is no time for it.
func (s *search) tryShape(kind string, h *shape) (c candidate, fresh bool, err error) {
	pl := s.plan(h)
	key := kind + fmt.Sprint(h.cuts, h.counts, h.order[:h.used()], h.depth, h.again, h.size, h.split, h.family)
	if before, ok := s.seen[key]; ok {
		return before, false, nil
	}
	if err = s.late(pl); err == nil {
		c, err = s.try(kind, pl)
	}
	if err == nil {
		s.seen[key] = c
	}
	return c, err == nil, err
}

// tryLean is tryShape for shapes that do not depend on how much memory there is: what a
// refusal names as the smallest limit must be found again under that limit.
func (s *search) tryLean(kind string, h *shape) (candidate, bool, error) {
	c, fresh, err := s.tryShape(kind, h)
	if err == nil {
		c, err = s.whole(c)
	}
	if err == nil && (s.leanest.plan == nil || slices.Max(c.predicted.Needs()) < slices.Max(s.leanest.predicted.Needs())) {
		s.leanest = c
	}
	return c, fresh, err
}

// kindOf names the kind of a shape.
func kindOf(h *shape) string {
	switch {
	case h.stages() == 1 && h.used() == 1:
		return oneWorker
	case h.stages() == 1:
		return dataParallelism
	case h.replicated():
		return "replicated " + h.family
	}
	return h.family
}
