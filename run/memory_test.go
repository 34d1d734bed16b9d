package run

import (
	"math"
	"slices"
	"testing"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/run/optim"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/sim"
)

// sizedMicro is the micro-batch that sizedModels were measured at.
const sizedMicro = 2

// sizedModel is a model whose layers' memory has been measured one at a time.
type sizedModel struct {
	model     *model.Model
	classes   int
	optimizer optim.Settings
	profile   *profile.Profile
}

// sizedModels are a transformer with Adam, and a convnet that gathers statistics with momentum and weight decay.
func sizedModels(t *testing.T) []sizedModel {
	t.Helper()
	adam, err := optim.Default(optim.Adam)
	if err != nil {
		t.Fatal(err)
	}
	all := []sizedModel{
		{model: build(t, "gpt", map[string]any{"layers": 3, "width": 64, "heads": 2, "context": 32, "vocabulary": 50}), classes: 50, optimizer: adam},
		{model: build(t, "convnet", map[string]any{"image": []int{1, 16, 16}, "widths": []int{16, 32}, "dense": []int{64}, "batch_norm": true}), classes: 10,
			optimizer: optim.Settings{Kind: optim.SGD, Momentum: 0.9, WeightDecay: 0.01}},
	}
	for i := range all {
		s := &all[i]
		timer, err := NewTimer(torchEngine(t), noise{model: s.model, classes: s.classes, rows: 1000}, s.optimizer)
		if err != nil {
			t.Fatal(err)
		}
		if s.profile, err = profile.Measure(t.Context(), s.model, timer, profile.Options{MicroBatches: []int{sizedMicro}, Concurrency: 2}); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// held trains some steps of a plan, and has the simulator say what they hold.
func (s *sizedModel) held(t *testing.T, pl *plan.Plan, steps int, clip float64) (got *Result, want sim.Summary, costs sim.Costs) {
	t.Helper()
	c := basic(t, torchEngine(t), s.model, pl, s.classes, steps)
	c.Optimizer, c.Clip = s.optimizer, clip
	p, err := ProgramOf(pl, s.model, clip > 0, steps)
	if err != nil {
		t.Fatal(err)
	}
	if costs, err = sim.CostsOf(s.profile, cluster.Local(2, 0, 0, 1e-5, 1e10, 1e9), pl); err != nil {
		t.Fatal(err)
	}
	if _, want, err = sim.Run(p, costs, sim.Options{}); err != nil {
		t.Fatal(err)
	}
	return train(t, c), want, costs
}

// What each worker holds at most is what the simulator says from layers measured one at a time, under
// synchronous orders and streams, with updates that are kept to be taken back, and with two sets of
// gradients. Where stages do not wait for each other's messages they agree to a fraction of a percent.
func TestMemoryIsAsPredicted(t *testing.T) {
	for _, sized := range sizedModels(t) {
		m := sized.model
		for _, order := range []struct {
			schedule  string
			weights   schedule.Policy
			validated bool
		}{
			{"1f1b", schedule.Sync, false}, {"1f1b", schedule.Sync, true}, {"zb-h1", schedule.Sync, false}, {"zb-h2", schedule.Sync, true},
			{"1f1b-rr", schedule.Stash, false}, {"dp", schedule.Sync, false}, {"dp", schedule.Sync, true}, {"dp-async", schedule.DoubleBuffered, false},
		} {
			pl := planOf(m, evenCuts(len(m.Layers), 2), sizedMicro, 6, order.schedule)
			if order.schedule == "dp" || order.schedule == "dp-async" {
				pl.Stages = []plan.Stage{{LastLayer: len(m.Layers) - 1, Devices: []int{0, 1}}}
			}
			if order.weights == schedule.Stash {
				pl.MicroBatches = 1
			}
			pl.Weights, pl.PostValidate = string(order.weights), order.validated
			got, want, stages := sized.held(t, pl, 6, 1e9)
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
