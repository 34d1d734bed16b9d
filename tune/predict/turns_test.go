package predict

import (
	"math"
	"testing"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/sim"
)

// Equal replicas compute for equally long in a step of a stream, however many they are. A layer takes F + B = 3 s, and
// nothing else takes time. So r trainers of one layer (asp) complete a minibatch every 3/r s. Stages of 3 and 1
// replicas, with three layers and one layer, compute 9 s and 3 s for a minibatch, and end one every 3 s. If 5 replicas
// share 8 micro-batches of two layers, a minibatch takes 8 x 6 / 5 s.
func TestReplicasOfAStreamTakeTurns(t *testing.T) {
	for _, k := range []struct {
		name     string
		schedule string
		weights  string
		replicas []int // by stage
		layers   []int // by stage
		micros   int
		stepS    float64
		busyS    float64 // of each worker that computes
	}{
		{"three trainers", "asp", "asp", []int{4}, []int{1}, 1, 1, 1},
		{"seven trainers", "asp", "asp", []int{8}, []int{1}, 1, 3. / 7, 3. / 7},
		{"two stages", "1f1b-rr", "stash", []int{3, 1}, []int{3, 1}, 1, 3, 3},
		{"uneven micro-batches", "dp-async", "2bw", []int{5}, []int{2}, 8, 9.6, 9.6},
	} {
		p := &profile.Profile{Version: profile.Version, Model: "equal", ModelID: "x", Source: "imported"}
		pl := &plan.Plan{Version: plan.Version, Model: "equal", Replication: "round_robin", MicroBatch: 1,
			MicroBatches: k.micros, Schedule: k.schedule, Weights: k.weights}
		device := 0
		for s, n := range k.layers {
			stage := plan.Stage{FirstLayer: len(p.Layers), LastLayer: len(p.Layers) + n - 1}
			for range n {
				p.Layers = append(p.Layers, profile.Layer{Name: string(rune('a' + len(p.Layers))), Kind: "linear",
					From: []int{len(p.Layers) - 1}, TiedTo: -1,
					Costs: []profile.Cost{{Device: "d", MicroBatch: 1, ForwardS: 1, BackwardS: 2}}})
			}
			for range k.replicas[s] {
				stage.Devices = append(stage.Devices, device)
				device++
			}
			pl.Stages = append(pl.Stages, stage)
		}
		c := &cluster.Cluster{Name: "free", DeviceTypes: map[string]cluster.DeviceType{"d": {}},
			Levels: []cluster.Level{{Name: "link", Size: device, BandwidthBytesPerSecond: 1e12, FullDuplex: true}}}
		for range device {
			c.Devices = append(c.Devices, "d")
		}
		got, err := Plan(p, c, pl, false)
		if err != nil {
			t.Fatalf("%s: %v", k.name, err)
		}
		if math.Abs(got.StepS-k.stepS) > 1e-6*k.stepS {
			t.Errorf("%s: a step takes %v s, want %v", k.name, got.StepS, k.stepS)
		}
		for w, s := range got.BusyS {
			if server := k.schedule == "asp" && w == device-1; !server && math.Abs(s-k.busyS) > 1e-6*k.busyS {
				t.Errorf("%s: worker %d computes for %v s, want %v", k.name, w, s, k.busyS)
			}
		}
		costs, err := sim.CostsOf(p, c, pl)
		if err != nil {
			t.Fatal(err)
		}
		if shown := Shown(pl, costs); shown < 2*device/k.micros {
			t.Errorf("%s: %d steps are drawn; they do not fill and empty %d workers", k.name, shown, device)
		}
	}
}
