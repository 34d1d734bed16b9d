package predict

import (
	"errors"
	"testing"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
)

// TestMoreThanIsSimulatedIsRefused: a plan that is too long to simulate is refused, and the error says how long it
// is.
func TestMoreThanIsSimulatedIsRefused(t *testing.T) {
	c, err := cluster.Preset("pipedream-a:2x2")
	if err != nil {
		t.Fatal(err)
	}
	pl := &plan.Plan{
		Version: plan.Version, Model: "imported", Replication: "round_robin", MicroBatch: 1, MicroBatches: 100_000_000,
		Schedule: "1f1b", Weights: "sync",
		Stages: []plan.Stage{{FirstLayer: 0, LastLayer: 1, Devices: []int{0}},
			{FirstLayer: 2, LastLayer: 4, Devices: []int{1}}},
	}
	p := &profile.Profile{Version: profile.Version, Model: "imported", Source: "imported"}
	for i := range 5 {
		p.Layers = append(p.Layers, profile.Layer{
			Name: string(rune('a' + i)), Kind: "linear", From: []int{i - 1}, TiedTo: -1, ParameterBytes: 1 << 20,
			Costs: []profile.Cost{{Device: profile.AnyDevice, MicroBatch: 64, ForwardS: 0.01, BackwardS: 0.02,
				OutputBytes: 1 << 10, SavedBytes: 1 << 10}},
		})
	}
	_, err = Plan(p, c, pl, false)
	var work *WorkError
	if !errors.As(err, &work) || work.MicroBatches != 100_000_000 || work.Stages != 2 ||
		work.Instructions != 3_600_000_000 {
		t.Errorf("got %v", err)
	}
}
