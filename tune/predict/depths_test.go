package predict

import (
	"slices"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
)

// pair returns two layers that save 10 B for each sample, two devices with `memory` bytes of memory each, and a plan.
// Each device has a layer, and micro-batches have one sample.
func pair(schedule string, memory int64) (*profile.Profile, *cluster.Cluster, *plan.Plan) {
	p := &profile.Profile{Version: profile.Version, Model: "pair", Source: "imported"}
	for i := range 2 {
		p.Layers = append(p.Layers, profile.Layer{
			Name: string(rune('a' + i)), Kind: "linear", From: []int{i - 1}, TiedTo: -1, ParameterBytes: 100,
			Costs: []profile.Cost{{Device: profile.AnyDevice, MicroBatch: 1, ForwardS: 1, BackwardS: 2, OutputBytes: 1,
				SavedBytes: 10}},
		})
	}
	pl := &plan.Plan{Version: plan.Version, Model: "pair", Replication: "round_robin", MicroBatch: 1, MicroBatches: 6,
		Schedule: schedule, Weights: "sync"}
	for i := range 2 {
		pl.Stages = append(pl.Stages, plan.Stage{FirstLayer: i, LastLayer: i, Devices: []int{i}, Warmup: 2 - i})
	}
	return p, cluster.Local("cpu", 2, 0, memory, 0, 1e9, 1e9), pl
}

// TestAdvanced: forwards in advance deepen the first stage, and leave the given plan unchanged. Families without depths
// refuse forwards in advance.
func TestAdvanced(t *testing.T) {
	p, c, pl := pair("1f1b", 0)
	deeper, err := Advanced(p, c, pl, false, 2)
	if err != nil {
		t.Fatal(err)
	}
	depths := []int{deeper.Stages[0].Warmup, deeper.Stages[1].Warmup}
	if depths[0] != 4 || depths[1] > depths[0] || pl.Stages[0].Warmup != 2 {
		t.Errorf("depths %v, of the plan given %v", depths, pl.Stages)
	}
	if deeper.Predicted == nil || deeper.Predicted.PeakActivations[0] != 4 {
		t.Errorf("predicted %+v", deeper.Predicted)
	}
	pl.Schedule = "zb-h1"
	if _, err := Advanced(p, c, pl, false, 2); err == nil || !strings.HasSuffix(err.Error(), "are for 1f1b and elastic") {
		t.Errorf("got %v", err)
	}
}

// TestOver: if several devices exceed their memory equally, Over finds the first of them, and the bytes over its limit.
// DepthsFit tells which depths fit.
func TestOver(t *testing.T) {
	p, c, pl := pair("1f1b", 0)
	q, err := Plan(p, c, pl, false)
	if err != nil {
		t.Fatal(err)
	}
	if _, over := Over(c, pl, &q); over != 0 {
		t.Errorf("%d B over no limit", over)
	}
	needs := q.Needs()
	most := slices.Max(needs)
	_, small, _ := pair("1f1b", most-7)
	if device, over := Over(small, pl, &q); device != slices.Index(needs, most) || over != 7 {
		t.Errorf("device %d is %d B over; of needs %v it is the first with the most, 7", device, over, needs)
	}
	_, enough, _ := pair("1f1b", most)
	if !DepthsFit(p, enough, pl, false, []int{2, 1}) || DepthsFit(p, enough, pl, false, []int{6, 6}) {
		t.Errorf("depths 2, 1 must fit %d B, and 6, 6 must not", most)
	}
}
