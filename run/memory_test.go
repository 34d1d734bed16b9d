package run

import (
	"math"
	"slices"
	"testing"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/run/optim"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/sim"
)

// What each worker holds at most is what the simulator says from layers measured one at a time, under
// synchronous orders and streams, with updates that are kept to be taken back, and with two sets of
// gradients. Where stages do not wait for each other's messages they agree to a fraction of a percent.
func TestMemoryIsAsPredicted(t *testing.T) {
	e := torchEngine(t)
	const micro = 2
	for _, family := range []struct {
		name     string
		settings map[string]any
		classes  int
		o        optim.Settings
	}{
		{"gpt", map[string]any{"layers": 3, "width": 64, "heads": 2, "context": 32, "vocabulary": 50}, 50, optim.Settings{Kind: optim.Adam, Beta1: 0.9, Beta2: 0.99, Epsilon: 1e-8}},
		{"convnet", map[string]any{"image": []int{1, 16, 16}, "widths": []int{16, 32}, "dense": []int{64}, "batch_norm": true}, 10, optim.Settings{Kind: optim.SGD, Momentum: 0.9, WeightDecay: 0.01}},
	} {
		m := build(t, family.name, family.settings)
		timer, err := NewTimer(e, noise{model: m, classes: family.classes, rows: 1000}, family.o)
		if err != nil {
			t.Fatal(err)
		}
		costs, err := profile.Measure(t.Context(), m, timer, profile.Options{MicroBatches: []int{micro}, Concurrency: 2})
		if err != nil {
			t.Fatal(err)
		}
		for _, order := range []struct {
			schedule  string
			weights   schedule.Policy
			validated bool
		}{
			{"1f1b", schedule.Sync, false}, {"1f1b", schedule.Sync, true}, {"zb-h1", schedule.Sync, false}, {"zb-h2", schedule.Sync, true},
			{"1f1b-rr", schedule.Stash, false}, {"dp", schedule.Sync, false}, {"dp", schedule.Sync, true}, {"dp-async", schedule.DoubleBuffered, false},
		} {
			pl := planOf(m, evenCuts(len(m.Layers), 2), micro, 6, order.schedule)
			if order.schedule == "dp" || order.schedule == "dp-async" {
				pl.Stages = []plan.Stage{{LastLayer: len(m.Layers) - 1, Devices: []int{0, 1}}}
			}
			if order.weights == schedule.Stash {
				pl.MicroBatches = 1
			}
			pl.Weights, pl.PostValidate = string(order.weights), order.validated
			c := basic(t, e, m, pl, family.classes, 6)
			c.Optimizer, c.Clip = family.o, 1e9
			p, err := ProgramOf(pl, m, true, c.Steps)
			if err != nil {
				t.Fatal(err)
			}
			stages, err := sim.CostsOf(costs, cluster.Local(2, 0, 0, 1e-5, 1e10, 1e9), pl)
			if err != nil {
				t.Fatal(err)
			}
			_, want, err := sim.Run(p, stages, sim.Options{})
			if err != nil {
				t.Fatal(err)
			}
			got := train(t, c)
			// How many messages are on their way at once depends on clocks that are not the real ones.
			messages := float64(6 * stages.Stages[0][0].ActivationBytes)
			off, excess := 0.0, 0.0
			for w, n := range want.PeakBytes {
				away := math.Abs(float64(got.PeakBytes[w] - n))
				off, excess = max(off, away/float64(n)), max(excess, (away-messages)/float64(n))
			}
			t.Logf("%s %s %s, validated later %v: %v bytes, predicted %v, off by %.2f %%", m.Name, order.schedule, order.weights, order.validated, got.PeakBytes, want.PeakBytes, 100*off)
			if excess > 0.015 || !slices.Equal(got.Timeline.PeakActivations, want.PeakActivations) {
				t.Errorf("%s %s %s, validated later %v: %v bytes and %v micro-batches held; predicted %v and %v", m.Name, order.schedule, order.weights, order.validated,
					got.PeakBytes, got.Timeline.PeakActivations, want.PeakBytes, want.PeakActivations)
			}
		}
	}
}
