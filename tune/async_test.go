package tune

import (
	"context"
	"testing"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/plan/plantest"
	"github.com/millrace-ml/millrace/schedule"
)

// Asynchronous data parallelism can be asked for, and is among the plans where updates may go
// without a flush.
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

// Plans are simulated with updates that are validated later where that is asked for, and only where
// a step ends in a flush.
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
