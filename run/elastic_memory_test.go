package run

import (
	"slices"
	"testing"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/run/optim"
	"github.com/millrace-ml/millrace/sim"
)

// TestElasticMemoryIsAsPredicted: the N models with their optimizer states, the reference and the
// queue are in the prediction, and it is what the allocator counts, to less than what one
// step in the queue holds.
func TestElasticMemoryIsAsPredicted(t *testing.T) {
	e := torchEngine(t)
	const micro = 2
	adam, err := optim.Default(optim.Adam)
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range []struct {
		name     string
		settings map[string]any
		classes  int
		o        optim.Settings
	}{
		{"gpt", map[string]any{"layers": 3, "width": 64, "heads": 2, "context": 32, "vocabulary": 50}, 50, adam},
		{"convnet", map[string]any{"image": []int{1, 16, 16}, "widths": []int{16, 32}, "dense": []int{64}, "batch_norm": true}, 10, optim.Settings{Kind: optim.SGD, Momentum: 0.9}},
	} {
		m := build(t, family.name, family.settings)
		timer, err := NewTimer(e, noise{model: m, classes: family.classes, rows: 1000}, family.o)
		if err != nil {
			t.Fatal(err)
		}
		measured, err := profile.Measure(t.Context(), m, timer, profile.Options{MicroBatches: []int{micro}, Concurrency: 2})
		if err != nil {
			t.Fatal(err)
		}
		for _, pipelines := range []int{1, 2, 4} {
			pl := planOf(m, evenCuts(len(m.Layers), 2), micro, 3, "elastic")
			pl.Weights, pl.Elastic = "elastic", plan.NewElastic(pipelines)
			c := basic(t, e, m, pl, family.classes, 8)
			c.Optimizer = family.o
			p, err := ProgramOf(pl, m, false, c.Steps)
			if err != nil {
				t.Fatal(err)
			}
			costs, err := sim.CostsOf(measured, cluster.Local(2, 0, 0, 1e-5, 1e10, 1e9), pl)
			if err != nil {
				t.Fatal(err)
			}
			_, want, err := sim.Run(p, costs, sim.Options{})
			if err != nil {
				t.Fatal(err)
			}
			got := train(t, c)
			// How many messages are on their way at once depends on clocks that are not the real ones.
			messages := int64(pipelines*3) * costs.Stages[0][0].ActivationBytes
			for w, n := range want.PeakBytes {
				step := costs.Stages[w][0].ReferenceBytes
				t.Logf("%s, %d pipelines, worker %d: %d bytes, predicted %d (%.2f %%); a step of the queue is %d, messages at most %d",
					m.Name, pipelines, w, got.PeakBytes[w], n, 100*(float64(got.PeakBytes[w])/float64(n)-1), step, messages)
				if off := max(got.PeakBytes[w]-n, n-got.PeakBytes[w]) - messages; off > n/50 || pipelines > 1 && off >= step {
					t.Errorf("%s, %d pipelines: worker %d holds %d bytes; predicted %d", m.Name, pipelines, w, got.PeakBytes[w], n)
				}
			}
			if !slices.Equal(got.Timeline.PeakActivations, want.PeakActivations) {
				t.Errorf("%s, %d pipelines: %v micro-batches held; predicted %v", m.Name, pipelines, got.Timeline.PeakActivations, want.PeakActivations)
			}
		}
	}
}
