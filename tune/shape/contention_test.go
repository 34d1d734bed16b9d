package shape_test

import (
	"math"
	"testing"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/tune/shape"
)

// Closed forms and the simulator agree within a percent on the cost of contention. All stages and replicas are on
// different hosts of a slow network. In the wide model sums take longer than messages, in the narrow one messages take
// longer than sums. Without contention nothing is lost. With contention every step is longer by the loss that the
// prediction reports. The parts of a step add up to the step.
func TestContentionByClosedFormsAndSimulator(t *testing.T) {
	wide, narrow := gpt(t, 8, 512, 8, 128, 1024), gpt(t, 8, 64, 4, 1024, 256)
	for _, one := range []struct {
		m *model.Model
		s shape.Shape
	}{
		{wide, shape.Shape{MicroBatch: 2, Replicas: 2, Stages: 2, Behind: true}},
		{wide, shape.Shape{MicroBatch: 2, Replicas: 2, Stages: 4, Behind: true}},
		{wide, shape.Shape{MicroBatch: 2, Replicas: 2, Stages: 4}},
		{wide, shape.Shape{MicroBatch: 2, Replicas: 4, Stages: 2, Behind: true, Shard: "zero1"}},
		{wide, shape.Shape{MicroBatch: 2, Replicas: 2, Stages: 2, Tensor: 2, Behind: true}},
		{narrow, shape.Shape{MicroBatch: 8, Replicas: 2, Stages: 2, Behind: true}},
		{narrow, shape.Shape{MicroBatch: 8, Replicas: 2, Stages: 4, Behind: true}},
	} {
		m, s := one.m, one.s
		s.Batch, s.Precision, s.States = 16, "bf16", 2
		of := func(contention bool) (closed, simulated *shape.Prediction) {
			t.Helper()
			c := machines(8)
			c.Levels[0].Size, c.Levels[0].FullDuplex = max(1, s.Tensor), true
			c.Levels[1] = cluster.Level{Name: "net", Size: 8, BandwidthBytesPerSecond: 1e9, LatencyS: 1e-5, FullDuplex: true,
				Contention: contention}
			c.Devices = c.Devices[:8*c.Levels[0].Size]
			return bothWays(t, m, c, s)
		}
		closed, simulated := of(true)
		closedAlone, simulatedAlone := of(false)
		if closedAlone.Parts.ContentionS != 0 || simulatedAlone.Parts.ContentionS != 0 {
			t.Errorf("%v: %v and %v s are lost without contention", s, closedAlone.Parts, simulatedAlone.Parts)
		}
		for what, p := range map[string][2]*shape.Prediction{"closed forms": {closed, closedAlone},
			"the simulator": {simulated, simulatedAlone}} {
			lost := p[0].Parts.ContentionS
			if lost <= 0 || math.Abs(p[0].StepS-p[1].StepS-lost) > 1e-9 {
				t.Errorf("%v, by %s: %v s lost, and the step takes %v in place of %v", s, what, lost, p[0].StepS, p[1].StepS)
			}
			q := p[0].Parts
			sum := q.KernelsS + q.SumsS + q.AgainS + q.GatherS + q.BubbleS + q.TransfersS + q.ContentionS + q.GradientsS +
				q.UpdateS + q.FixedS
			if math.Abs(sum/p[0].StepS-1) > 1e-6 {
				t.Errorf("%v, by %s: parts are %v of %v", s, what, sum, p[0].StepS)
			}
		}
		if d := math.Abs(closed.Parts.ContentionS/simulated.Parts.ContentionS - 1); d > 0.01 {
			t.Errorf("%v: %v s lost by closed forms, %v simulated", s, closed.Parts.ContentionS, simulated.Parts.ContentionS)
		}
	}
}

// bothWays returns a shape's prediction by closed forms, and the simulation of its plan. Precision is bf16, and the
// optimizer has two states.
func bothWays(t *testing.T, m *model.Model, c *cluster.Cluster, s shape.Shape) (closed, simulated *shape.Prediction) {
	t.Helper()
	closed, err := shape.Explain(m, c, s)
	if err != nil {
		t.Fatal(err)
	}
	grouped, err := c.Grouped(closed.Shape.Tensor, s.SequenceParallel)
	if err != nil {
		t.Fatal(err)
	}
	pl, err := closed.Plan(m, c)
	if err != nil {
		t.Fatal(err)
	}
	simulated, _, err = shape.Planned{Model: m, Cluster: grouped, Plan: pl,
		Costs: func(c *cluster.Cluster) (*profile.Profile, error) {
			return profile.Analyze(m, c.DeviceTypes, profile.Analysis{Sizes: []int{s.MicroBatch}, Optimizer: "adam",
				States: 2, Precision: "bf16"})
		}}.Explain()
	if err != nil {
		t.Fatal(err)
	}
	return closed, simulated
}
