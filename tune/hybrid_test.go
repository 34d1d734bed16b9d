package tune

import (
	"context"
	"math"
	"testing"

	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/plan/plantest"
)

// TestHybridParallelismIsARival works out by hand: conv takes 1 s forward and 2 s backward for a sample, and has hardly
// any parameters. fc takes a third of that. It has so many parameters that one worker is best for it. conv is on three
// of four workers. A batch of 6 samples takes 2 s forward and 4 s backward on each of these workers, and the same on
// fc's worker. Without overlap that is 12 s, as 1 micro-batch of 6 samples or as 2 micro-batches of 3. Model
// parallelism on two workers takes 24 s.
func TestHybridParallelismIsARival(t *testing.T) {
	r := plantest.EvenChain(2, 4, 1e12)
	conv, fc := &r.Profile.Layers[0], &r.Profile.Layers[1]
	conv.ParameterBytes, fc.ParameterBytes = 0, 1<<20
	cost := conv.Costs[0]
	conv.Costs, fc.Costs = nil, nil
	for _, m := range []int{1, 2, 3, 6} {
		c := cost
		c.MicroBatch, c.ForwardS, c.BackwardS = m, float64(m), 2*float64(m)
		conv.Costs = append(conv.Costs, c)
		c.ForwardS, c.BackwardS = c.ForwardS/3, c.BackwardS/3
		fc.Costs = append(fc.Costs, c)
	}
	found, err := Search(context.Background(), Request{Profile: r.Profile, Cluster: r.Cluster, Batch: 6})
	if err != nil {
		t.Fatal(err)
	}
	steps := map[string]*plan.Plan{}
	for _, rival := range found.Rivals {
		if rival.Plan != nil {
			steps[rival.Kind] = rival.Plan
		}
	}
	hybrid, mp := steps[hybridParallel], steps[modelParallel]
	if hybrid == nil || mp == nil {
		t.Fatalf("kinds of rivals: %v", steps)
	}
	if got := hybrid.Predicted.StepS; math.Abs(got-12) > 1e-6 {
		t.Errorf("hybrid parallelism takes %v s; by hand 12", got)
	}
	if got := mp.Predicted.StepS; math.Abs(got-24) > 1e-6 {
		t.Errorf("model parallelism takes %v s; by hand 24", got)
	}
	if on := hybrid.Stages[0].Devices; len(hybrid.Stages) != 2 || len(on) != 3 || hybrid.Replication != "split" {
		t.Errorf("hybrid parallelism is %s, %s", hybrid.Layout(), hybrid.Replication)
	}
	// Without pipelining, each stage has only one micro-batch in flight.
	for _, in := range hybrid.Predicted.PeakActivations {
		if in != 1 {
			t.Errorf("micro-batches in flight: %v", hybrid.Predicted.PeakActivations)
		}
	}
	whole, err := Search(context.Background(), Request{Profile: r.Profile, Cluster: r.Cluster, Batch: 6, Whole: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, rival := range whole.Rivals {
		if rival.Kind == hybridParallel {
			t.Errorf("a model that normalises over its micro-batches is %s", rival.Plan.Layout())
		}
	}
}
