package shape_test

import (
	"errors"
	"math"
	"testing"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/tune/shape"
)

// TestPlansAreTakenApart: Planned.Explain breaks a plan down by simulation. Its parts match the closed forms for the
// same shape (Explain). Both list the same assumptions. Both take the kernels' costs from the same package, but each
// counts messages, sums and waits in its own way.
func TestPlansAreTakenApart(t *testing.T) {
	m := gpt(t, 8, 512, 8, 128, 1024)
	c := machines(1)
	for _, s := range []shape.Shape{
		{Stages: 4},
		{Stages: 2, Tensor: 2, Recompute: "full"},
		{Replicas: 4, Behind: true, Recompute: "selective"},
		{Replicas: 2, Stages: 2, Behind: true, Shard: "zero1"},
		{Replicas: 4, Shard: "zero1"}, // scatters are hidden, gathers of weights are not
		{Replicas: 4, Shard: "zero3", Recompute: "full"},
	} {
		s.Batch, s.MicroBatch, s.Precision, s.States = 32, 1, "bf16", 2
		want, err := shape.Explain(m, c, s)
		if err != nil {
			t.Fatal(err)
		}
		grouped, err := c.Grouped(want.Shape.Tensor, false)
		if err != nil {
			t.Fatal(err)
		}
		pl, err := want.Plan(m, c)
		if err != nil {
			t.Fatal(err)
		}
		planned := shape.Planned{Model: m, Cluster: grouped, Plan: pl,
			Costs: func(c *cluster.Cluster) (*profile.Profile, error) {
				return profile.Analyze(m, c.DeviceTypes, profile.Analysis{Sizes: []int{1}, Optimizer: "adam", States: 2,
					Precision: "bf16"})
			}}
		got, sensitive, err := planned.Explain()
		if err != nil {
			t.Fatal(err)
		}
		near := func(what string, got, of, step float64) {
			if math.Abs(got-of) > 0.01*step {
				t.Errorf("%v: %s is %v s, by closed forms %v, of a step of %v", want.Shape, what, got, of, step)
			}
		}
		near("step", got.StepS, want.StepS, want.StepS)
		a, b := got.Parts, want.Parts
		sum := a.KernelsS + a.SumsS + a.AgainS + a.GatherS + a.BubbleS + a.TransfersS + a.GradientsS + a.UpdateS
		near("all parts", sum, got.StepS, 1e-7*got.StepS)
		for what, pair := range map[string][2]float64{"products": {a.ProductsS, b.ProductsS},
			"attention": {a.AttentionS, b.AttentionS}, "memory": {a.MemoryS, b.MemoryS},
			"launches": {a.LaunchesS, b.LaunchesS}, "sums of groups": {a.SumsS, b.SumsS}, "again": {a.AgainS, b.AgainS},
			"gathers": {a.GatherS, b.GatherS}, "transfers": {a.TransfersS, b.TransfersS}, "waits": {a.BubbleS, b.BubbleS},
			"gradients": {a.GradientsS, b.GradientsS}, "update": {a.UpdateS, b.UpdateS}} {
			near(what, pair[0], pair[1], want.StepS)
		}
		all, err := shape.Sensitivities(m, c, []*shape.Prediction{want}, shape.Others{})
		if err != nil {
			t.Fatal(err)
		}
		if len(all) != len(sensitive) {
			t.Fatalf("%v: %d assumptions, of a shape %d", want.Shape, len(sensitive), len(all))
		}
		for i, one := range sensitive {
			if one.Assumption != all[i].Assumption || !one.Fits {
				t.Errorf("%v: %+v, of a shape %+v", want.Shape, one, all[i])
			}
			near(one.Assumption, one.StepS, all[i].StepS, want.StepS)
		}
		pl.Weights, pl.Schedule, pl.Shard, pl.Gradients = "stash", "1f1b-rr", "", ""
		if _, _, err := planned.Explain(); !errors.Is(err, shape.ErrStream) {
			t.Errorf("a stream: %v", err)
		}
	}
}
