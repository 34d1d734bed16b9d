package avgpipe

import (
	"math"
	"testing"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/plan/plantest"
)

// TestSideBySideByHand has two stages of one layer each. A forward takes 1 s and a backward 2 s, whether a micro-batch
// has one sample or two, so one sample fills half of a device. A batch is two micro-batches of one sample, and messages
// take no time. One pipeline takes (M+K-1)(F+B) = 9 s with its flush, for M micro-batches on K stages. Two pipelines
// side by side also take 9 s, since 2 x 1/2 fills the device: 4.5 s for each batch. Four pipelines take 18 s, which is
// also 4.5 s for each batch. If a device computes only one thing at a time, two pipelines take at least 12 s, which is
// 6 s for each batch.
func TestSideBySideByHand(t *testing.T) {
	p := plantest.Chain(2, 1, 2)
	for i := range p.Layers {
		p.Layers[i].UpdateS = 0
		for j := range p.Layers[i].Costs {
			p.Layers[i].Costs[j].ForwardS, p.Layers[i].Costs[j].BackwardS = 1, 2
		}
	}
	w := &Workload{
		Profile: p, Cluster: cluster.Local("cpu", 2, 0, 0, 0, 1e18, 1e18), Batch: 2, SideBySide: true,
		Base: &plan.Plan{Replication: "round_robin", Model: "chain", Stages: []plan.Stage{
			{FirstLayer: 0, LastLayer: 0, Devices: []int{0}}, {FirstLayer: 1, LastLayer: 1, Devices: []int{1}}}},
	}
	for n, want := range map[int]float64{1: 9, 2: 4.5, 4: 4.5} {
		got, err := w.simulate(Degrees{2, n}, 0)
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(got.StepS-want) > 1e-6 {
			t.Errorf("%d pipelines side by side take %v s for a batch, want %v", n, got.StepS, want)
		}
		idle := 0.0
		for _, s := range got.IdleS {
			idle += s / float64(len(got.IdleS))
		}
		if math.Abs(got.Bubble-idle/got.StepS) > 1e-6 {
			t.Errorf("%d pipelines: idle for %v s of %v, and a bubble of %v", n, got.IdleS, got.StepS, got.Bubble)
		}
	}
	w.SideBySide = false
	turns, err := w.simulate(Degrees{2, 2}, 0)
	if err != nil {
		t.Fatal(err)
	}
	if turns.StepS < 6-1e-6 {
		t.Errorf("two pipelines that take turns take %v s for a batch, which has 6 s of work on a device", turns.StepS)
	}
}

// TestMessagesSideBySide: two pipelines send twice the bytes over one link. A batch is one micro-batch. A message takes
// 1 s, and so does its gradient. One pipeline's step takes 8 s: 3 s on each of two stages, and 2 s for the two
// messages. Side by side, the messages take 4 s, so the step takes 10 s.
func TestMessagesSideBySide(t *testing.T) {
	p := plantest.Chain(2, 1, 2)
	for i := range p.Layers {
		p.Layers[i].UpdateS = 0
		for j := range p.Layers[i].Costs {
			c := &p.Layers[i].Costs[j]
			c.ForwardS, c.BackwardS, c.OutputBytes = 1, 2, 100
		}
	}
	w := &Workload{
		Profile: p, Cluster: cluster.Local("cpu", 2, 0, 0, 0, 100, 100), Batch: 1,
		Base: &plan.Plan{Replication: "round_robin", Model: "chain", Stages: []plan.Stage{
			{FirstLayer: 0, LastLayer: 0, Devices: []int{0}}, {FirstLayer: 1, LastLayer: 1, Devices: []int{1}}}},
	}
	setting := &Pipelined{Scored: Scored{At: Degrees{1, 2}}, Plan: w.plan(Degrees{1, 2}, 0)}
	both, err := w.sideBySide(setting)
	if err != nil {
		t.Fatal(err)
	}
	alone, err := w.simulate(Degrees{1, 1}, 0)
	if err != nil {
		t.Fatal(err)
	}
	if math.Abs(alone.StepS-8) > 1e-6 || math.Abs(both.StepS-10) > 1e-6 {
		t.Errorf("alone %v s, want 8; two side by side %v, want 10", alone.StepS, both.StepS)
	}
}
