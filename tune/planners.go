package tune

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/millrace-ml/millrace/internal/crash"
	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/plan"
	_ "github.com/millrace-ml/millrace/plan/planners" // for lookup by name
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/tune/predict"
)

type answer struct {
	planner string
	plan    *plan.Plan
	err     error
}

// queryPlanners runs every registered planner, two at a time. It closes the channel once all have answered or ctx ends.
// If the search is brief, or the request fixes a setting or is Runnable, it runs none.
func (s *search) queryPlanners(ctx context.Context) <-chan answer {
	list := plan.Planners()
	out := make(chan answer, len(list))
	if s.Runnable || s.brief || !s.Fix.none() || len(list) == 0 {
		close(out)
		return out
	}
	work := make(chan plan.Planner, len(list))
	for _, p := range list {
		work <- p
	}
	close(work)
	answers := make(chan answer, len(list))
	var all sync.WaitGroup
	for range 2 {
		all.Go(crash.Caught(func() {
			for p := range work {
				if ctx.Err() != nil {
					return
				}
				pl, err := p.Plan(ctx, plan.Request{Profile: s.Profile, Cluster: s.Cluster, Batch: s.Batch,
					Boundary: s.Fix.Boundary})
				answers <- answer{p.Name, pl, err}
			}
		}))
	}
	crash.Go(func() { all.Wait(); close(answers) })
	crash.Go(func() {
		defer close(out)
		for {
			select {
			case a, open := <-answers:
				if !open {
					return
				}
				out <- a
			case <-ctx.Done():
				return // do not wait for a planner that does not stop
			}
		}
	})
	return out
}

// collect simulates a planner's plan. If the plan updates without a flush, it is simulated with a flush, and its stages
// get 1F1B's depths. With Async, it is also simulated as a stream.
func (s *search) collect(a answer) {
	if a.err != nil {
		s.failed[a.planner] = a.err.Error()
		return
	}
	pl := *a.plan
	if !schedule.Policy(pl.Weights).Synchronous() {
		if s.Async {
			stream := pl
			defer s.collectAsync(a.planner, &stream) // after the plan with a flush, which is simulated faster
		}
		pl.Stages = append([]plan.Stage(nil), pl.Stages...)
		counts := make([]int, len(pl.Stages))
		for i, st := range pl.Stages {
			counts[i] = len(st.Devices)
		}
		pl.Schedule, pl.Weights = s.pipelines.Name, string(schedule.Sync)
		if len(counts) == 1 {
			pl.Schedule = s.undivided.Name
		}
		s.wholeBatch(&pl)
		if f, ok := s.families[s.pipelines.Name]; ok {
			for i, k := range depths(counts, pl.Replication == string(schedule.Split), f.Warmup, pl.MicroBatches) {
				pl.Stages[i].Warmup = k
				if len(counts) == 1 {
					pl.Stages[i].Warmup = 1
				}
			}
		}
	}
	if pl.Batch() != s.Batch {
		s.failed[a.planner] = fmt.Sprintf("its plan has %s a step, not %d", terminal.Count(pl.Batch(), "sample"), s.Batch)
		return
	}
	if late := s.late(&pl); late != nil && predict.CheckWork(&pl, predict.OftenPlayed) != nil {
		s.failed[a.planner] = "its own was not simulated: " + late.Error()
		return
	}
	c, err := s.try(a.planner, &pl)
	if err != nil {
		s.failed[a.planner] = err.Error()
		return
	}
	if h := s.shapeOf(c.plan); h != nil {
		s.pool = append(s.pool, seed{h, s.estimator.score(h), kindOf(h)})
	}
}

// wholeBatch turns a stream of minibatches into one step of the requested batch. Micro-batches get another size if a
// micro-batch is the whole batch, or if the profile has no costs for their size.
func (s *space) wholeBatch(pl *plan.Plan) {
	if pl.MicroBatch > 0 && s.Batch%pl.MicroBatch == 0 {
		pl.MicroBatches = s.Batch / pl.MicroBatch
	}
	if _, _, err := s.Profile.At(s.Cluster.Devices[0], pl.MicroBatch); err != nil || pl.MicroBatch == s.Batch {
		for _, size := range s.sizes { // largest size with two micro-batches for each device; otherwise the smallest
			if s.Batch/size >= 2*len(s.Cluster.Devices) || size == s.sizes[0] {
				pl.MicroBatch, pl.MicroBatches = size, s.Batch/size
			}
		}
	}
}

// collectAsync simulates a planner's plan as a stream without a flush. The minibatches are the planner's own, unless
// they are of another size than the request's batch, or if there is no time to simulate so long a stream.
func (s *search) collectAsync(planner string, pl *plan.Plan) {
	tooLong := func() error {
		return cmp.Or(s.late(pl), predict.CheckWork(pl, predict.OftenPlayed))
	}
	if pl.Batch() != s.Batch || tooLong() != nil {
		s.wholeBatch(pl)
	}
	if err := tooLong(); err != nil {
		s.failed[planner+" async"] = "its own was not simulated: " + err.Error()
		return
	}
	if _, err := s.try(planner+" async", pl); err != nil {
		s.failed[planner+" async"] = err.Error()
	}
}

// otherLimits are the parts of the devices' memory with which planners are asked again. Planners count memory as their
// papers do. So a planner may choose a plan that does not fit, or none, and for another limit one that does.
var otherLimits = []float64{15. / 16, 7. / 8, 13. / 16, 3. / 4, 5. / 8, 1. / 2, 17. / 16, 9. / 8, 5. / 4, 3. / 2, 2}

// askAgain asks planners whose own plan does not fit for plans within other limits, and simulates these with the real
// limit. A planner is not asked further once a plan of it fits.
func askAgain(ctx context.Context, s *search) {
	if s.Runnable || s.brief || !s.Fix.none() || !limited(s.Cluster) {
		return
	}
	for _, p := range plan.Planners() {
		for _, part := range otherLimits {
			c, there := s.best[p.Name]
			if fits := there && c.over(s.Cluster) == 0; fits || ctx.Err() != nil {
				break
			}
			why := s.failed[p.Name]
			pl, err := p.Plan(ctx, plan.Request{Profile: s.Profile, Batch: s.Batch, Boundary: s.Fix.Boundary,
				Cluster: s.Cluster.WithMemory(func(own int64) int64 { return int64(part * float64(own)) })})
			if err != nil && !errors.Is(err, plan.ErrMemory) {
				break // memory is not what it lacks
			}
			if err == nil {
				pl.Cluster = s.Cluster.Name
				s.collect(answer{p.Name, pl, nil})
			}
			if c, there := s.best[p.Name]; why == "" || there && c.over(s.Cluster) == 0 {
				delete(s.failed, p.Name)
			} else {
				s.failed[p.Name] = why
			}
		}
	}
}
