package tune

import (
	"context"
	"testing"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/plan/plantest"
	"github.com/millrace-ml/millrace/schedule"
)

// TestAsynchronousDataParallelismIsPlanned: asynchronous data parallelism is planned if its schedule is fixed, with or
// without the number of stages or of micro-batches.
func TestAsynchronousDataParallelismIsPlanned(t *testing.T) {
	for _, fix := range []Overrides{{Schedule: "dp-async"}, {Schedule: "dp-async", Stages: 1},
		{Schedule: "dp-async", MicroBatches: 4}} {
		r, err := Search(context.Background(), Request{Profile: plantest.Chain(6, 1, 2),
			Cluster: cluster.Local("cpu", 2, 0, 0, 0, 1e9, 1e9), Batch: 8, Fix: fix, Runnable: true})
		if err != nil {
			t.Fatal(err)
		}
		if b := r.Best; b.Schedule != "dp-async" || b.Weights != string(schedule.DoubleBuffered) || len(b.Stages) != 1 ||
			len(b.Stages[0].Devices) != 2 {
			t.Errorf("%+v: %+v", fix, b)
		}
	}
}

// TestPostValidationIsPlanned: a search with PostValidate returns a plan that validates updates later, but only if
// gradients are clipped and a step ends in a flush.
func TestPostValidationIsPlanned(t *testing.T) {
	for _, c := range []struct {
		schedule string
		clip     bool
		want     bool
	}{{"zb-h1", true, true}, {"zb-h1", false, false}, {"1f1b-rr", true, false}, {"dp", true, true}} {
		plan := func(later bool) *Result {
			r, err := Search(context.Background(), Request{
				Profile: plantest.Chain(6, 1, 2), Cluster: cluster.Local("cpu", 2, 0, 0, 0, 1e9, 1e9), Batch: 8, Clip: c.clip,
				Runnable: true,
				Fix: Overrides{Schedule: c.schedule, PostValidate: later, MicroBatches: 4,
					Weights: map[string]schedule.Policy{"1f1b-rr": schedule.DoubleBuffered}[c.schedule]},
			})
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		waits, later := plan(false), plan(true)
		if waits.Best.PostValidate || later.Best.PostValidate != c.want {
			t.Errorf("%s, clip %v: validated later %v where it was not asked for, %v where it was", c.schedule, c.clip,
				waits.Best.PostValidate, later.Best.PostValidate)
		}
		if a, b := waits.Best.Predicted.MemoryBytes[0], later.Best.Predicted.MemoryBytes[0]; (b > a) != c.want {
			t.Errorf("%s, clip %v: %d bytes, and %d with what an update is taken back to", c.schedule, c.clip, a, b)
		}
	}
}

// TestAServerIsPlannedWhereItIsAskedFor: a request for schedule asp, policy asp or a staleness gives a plan with a
// server. The plan uses all workers, and a minibatch is the whole batch in one micro-batch. A request that names none
// of these gives no such plan and no such rival, although it allows orders without a flush.
func TestAServerIsPlannedWhereItIsAskedFor(t *testing.T) {
	for _, c := range []struct {
		fix  Overrides
		want bool
	}{
		{Overrides{Schedule: "asp", MicroBatches: 1}, true},
		{Overrides{Weights: schedule.ASP, MicroBatches: 1}, true},
		{Overrides{Staleness: new(2), MicroBatches: 1}, true},
		{Overrides{MicroBatches: 1}, false},
	} {
		r, err := Search(context.Background(), Request{Profile: plantest.Chain(6, 1, 2), Async: true,
			Cluster: cluster.Local("cpu", 3, 0, 0, 0, 1e9, 1e9), Batch: 2, Fix: c.fix, Runnable: true})
		if err != nil {
			t.Fatal(err)
		}
		b := r.Best
		if is := b.Schedule == "asp"; is != c.want {
			t.Errorf("%+v: %+v", c.fix, b)
		} else if is && (len(b.Stages[0].Devices) != 3 || b.Batch() != 2 || b.MicroBatches != 1 ||
			(b.Staleness == nil) != (c.fix.Staleness == nil)) {
			t.Errorf("%+v: %+v", c.fix, b)
		}
		for _, rival := range r.Rivals {
			if !c.want && rival.Plan != nil && rival.Plan.Schedule == "asp" {
				t.Errorf("%+v: a rival is %+v", c.fix, rival.Plan)
			}
		}
	}
	if _, err := Search(context.Background(), Request{Profile: plantest.Chain(6, 1, 2), Batch: 2, Runnable: true,
		Cluster: cluster.Local("cpu", 3, 0, 0, 0, 1e9, 1e9), Fix: Overrides{Schedule: "dp", Staleness: new(1)}}); err == nil {
		t.Error("a staleness of dp is taken")
	}
}
