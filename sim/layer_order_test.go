package sim

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
)

// TestAPlansOwnOrder: a plan that runs layers in its own order has the same costs as on a profile in that order.
func TestAPlansOwnOrder(t *testing.T) {
	p := &profile.Profile{Version: profile.Version, Model: "diamond", Source: profile.SourceImported}
	for l, from := range [][]int{{-1}, {0}, {0}, {2, 1}} {
		p.Layers = append(p.Layers, profile.Layer{Name: fmt.Sprint("n", l), From: from, TiedTo: -1,
			ParameterBytes: int64(8 << l),
			Costs: []profile.Cost{{Device: profile.AnyDevice, MicroBatch: 4, ForwardS: float64(int(1) << l),
				BackwardS: 2, OutputBytes: int64(100 << l), SavedBytes: 16}}})
	}
	c := &cluster.Cluster{Name: "two", Devices: []string{"gpu", "gpu"},
		Levels: []cluster.Level{{Size: 2, BandwidthBytesPerSecond: 1e9}}}
	pl := &plan.Plan{Version: plan.Version, Model: "diamond", Replication: "split", MicroBatch: 4, MicroBatches: 2,
		Schedule: "1f1b", Weights: "sync",
		Order: []int{0, 2, 1, 3}, Stages: []plan.Stage{{FirstLayer: 0, LastLayer: 1, Devices: []int{0}},
			{FirstLayer: 2, LastLayer: 3, Devices: []int{1}}}}
	costs, err := CostsOf(p, c, pl)
	if err != nil {
		t.Fatal(err)
	}
	// Layers 0 and 2 are before the cut; both of their outputs cross it.
	if first := costs.Stages[0][0]; first.ForwardS != 1+4 || first.ActivationBytes != 100+400 ||
		costs.Stages[1][0].ForwardS != 2+8 {
		t.Errorf("%+v\n%+v", first, costs.Stages[1][0])
	}
	if of := pl.StageOf(len(p.Layers)); !reflect.DeepEqual(of, []int{0, 1, 0, 1}) {
		t.Errorf("stages of the layers: %v", of)
	}
	ordered, err := p.Ordered(pl.Order)
	if err != nil {
		t.Fatal(err)
	}
	plain := *pl
	plain.Order = nil
	same, err := CostsOf(ordered, c, &plain)
	if err != nil || !reflect.DeepEqual(same.Stages, costs.Stages) {
		t.Errorf("on the ordered profile %+v, %v\nwant %+v", same.Stages, err, costs.Stages)
	}
	pl.Order = []int{0, 3, 1, 2}
	if _, err := CostsOf(p, c, pl); err == nil ||
		!strings.Contains(err.Error(), "layer 3 (n3) at position 1, before layer 2") {
		t.Errorf("an order that is none: %v", err)
	}
	pl.Order = []int{0, 1, 1, 2}
	if err := pl.Validate(); err == nil || !strings.Contains(err.Error(), "order: layer 1 is at positions 1 and 2") {
		t.Errorf("a layer twice: %v", err)
	}
}
