package avgpipe

import (
	"testing"

	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/plan/plantest"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/sim"
	"github.com/millrace-ml/millrace/tune"
)

// again returns workload() with stages that recompute. A forward that keeps nothing takes 0.1 s plus 0.1 s for each
// sample. Backwards with recompute take 0.5 s plus 0.3 s for each sample. Layer 0 takes 0.05 s for each sample to copy
// its input.
func again() *Workload {
	w := workload()
	for i := range w.Base.Stages {
		w.Base.Stages[i].Recompute = plan.KeepInput
	}
	for l := range w.Profile.Layers {
		for i := range w.Profile.Layers[l].Costs {
			c := &w.Profile.Layers[l].Costs[i]
			rows := float64(c.MicroBatch)
			c.BareForwardS, c.AgainS = new(0.1+0.1*rows), new(0.5+0.3*rows)
			if l == 0 {
				c.FeedS = 0.05 * rows
			}
		}
	}
	return w
}

// passes returns the seconds of each stage's forward and backward, for one pipeline's micro-batch of `rows` samples.
// The profile has eight layers.
func passes(t *testing.T, w *Workload, p *profile.Profile, rows int) (forward, backward [2]float64) {
	t.Helper()
	pl := w.plan(Degrees{MicroBatches: 1, Pipelines: 1}, 0)
	pl.MicroBatch = rows
	costs, err := sim.CostsOf(p, w.Cluster, pl)
	if err != nil {
		t.Fatal(err)
	}
	for s := range costs.Stages {
		forward[s], backward[s] = costs.Stages[s][0].ForwardS, costs.Stages[s][0].BackwardS
	}
	return forward, backward
}

// TestComputingAgainIsWorkedOutToo: the times of recompute are scaled, strained and extrapolated like all other times.
func TestComputingAgainIsWorkedOutToo(t *testing.T) {
	check := func(what string, w *Workload, p *profile.Profile, rows int, forward, backward [2]float64) {
		t.Helper()
		f, b := passes(t, w, p, rows)
		for s := range f {
			if !near(f[s], forward[s]) || !near(b[s], backward[s]) {
				t.Errorf("%s: stage %d takes %v and %v s, want %v and %v", what, s, f[s], b[s], forward[s], backward[s])
			}
		}
	}
	w := again()
	check("as it is", w, w.Profile, 2, [2]float64{4*0.3 + 0.1, 4 * 0.3}, [2]float64{4 * 1.1, 4 * 1.1})
	slower := []StageFactors{
		{Update: 1, Elastic: 1, Reference: 1, At: []SizeFactors{{2, 3, 5}}},
		{Update: 1, Elastic: 1, Reference: 1, At: []SizeFactors{{2, 7, 0.5}}},
	}
	check("scaled", w, w.scaled(slower, 1), 2, [2]float64{3 * (4*0.3 + 0.1), 7 * 4 * 0.3},
		[2]float64{5 * 4 * 1.1, 0.5 * 4 * 1.1})
	check("strained", w, w.strained().Profile, 2, [2]float64{4*(Strain*0.1+0.2) + 0.1, 4 * (Strain*0.1 + 0.2)},
		[2]float64{4 * (Strain*0.5 + 0.6), 4 * (Strain*0.5 + 0.6)})
	check("extrapolated", w, Extrapolated(w.Profile, []int{32}), 32, [2]float64{4*3.3 + 1.6, 4 * 3.3},
		[2]float64{4 * 10.1, 4 * 10.1})
	check("as it was", w, w.Profile, 2, [2]float64{4*0.3 + 0.1, 4 * 0.3}, [2]float64{4 * 1.1, 4 * 1.1})
}

// TestExtrapolatedInProportion: from a profile of one size, everything grows with the samples. That includes the
// halves of backwards and the bytes that they keep.
func TestExtrapolatedInProportion(t *testing.T) {
	p := plantest.Chain(1, 2)
	p.Layers[0].Costs[0].BackwardInputS, p.Layers[0].Costs[0].BackwardWeightS = new(3.), new(1.)
	p.Layers[0].Costs[0].PendingBytes = new(int64(7))
	c := Extrapolated(p, []int{6}).Layers[0].Costs[1]
	if c.MicroBatch != 6 || c.ForwardS != 6 || c.BackwardS != 12 || c.SavedBytes != 60 {
		t.Errorf("%+v; want times and bytes of six samples", c)
	}
	if c.BackwardInputS == nil || c.BackwardWeightS == nil || *c.BackwardInputS != 9 || *c.BackwardWeightS != 3 {
		t.Errorf("halves take %v and %v s, want 9 and 3", c.BackwardInputS, c.BackwardWeightS)
	}
	if c.PendingBytes == nil || *c.PendingBytes != 21 {
		t.Errorf("%v bytes are kept for the weights' half, want 21", c.PendingBytes)
	}
}

// TestPlansOfAStageThatValidatesLater: the base plan validates updates later. Every setting and every rival is still a
// valid plan. Only the settings with one pipeline validate later.
func TestPlansOfAStageThatValidatesLater(t *testing.T) {
	w := workload()
	w.Clip, w.Base.PostValidate, w.Base.Weights = true, true, "sync"
	w.Base.Planner, w.Base.Schedule = "auto", "1f1b"
	for n := range 3 {
		pl := w.plan(Degrees{MicroBatches: 4, Pipelines: n + 1}, 0)
		if err := pl.Validate(); err != nil || pl.PostValidate != (n == 0) {
			t.Errorf("%d pipelines, validated later %v: %v", n+1, pl.PostValidate, err)
		}
	}
	baselines, err := w.Baselines(t.Context(), 4)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range baselines {
		if err := b.Plan.Validate(); err != nil || b.Plan.PostValidate {
			t.Errorf("%s, validated later %v: %v", b.Name, b.Plan.PostValidate, err)
		}
	}
}

// TestPartitionLeavesTheSplit: Partition does not change the caller's cuts.
func TestPartitionLeavesTheSplit(t *testing.T) {
	w := workload()
	split := []int{4, 6}
	base, err := Partition(t.Context(), w, tune.Overrides{Split: split[:1]})
	if err != nil || len(base.Stages) != 2 || base.Stages[1].LastLayer != 7 {
		t.Fatalf("%+v, %v", base, err)
	}
	if split[1] != 6 {
		t.Errorf("what is behind the split is %d now", split[1])
	}
}
