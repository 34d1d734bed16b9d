package predict

import (
	"context"
	"math"
	"testing"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/plan"
	_ "github.com/millrace-ml/millrace/plan/bapipe" // registers the planner
	"github.com/millrace-ml/millrace/profile"
)

// TestDividedLayersTakeWhatTheTableSays: BaPipe's Table II gives the step time of 1F1B-SNO with M micro-batches on N
// stages. It is (M+N-1)(F+B) + (N+M-2-ceil((M-1)/N)) 2 SR. The simulator predicts the same time. Dividing a layer
// between neighbours makes F + B equal on all stages. SR is the time of a message across the boundary inside the layer.
// The message contains the layer's input, and the part of its output that the earlier stage computed (§3.3.2).
func TestDividedLayersTakeWhatTheTableSays(t *testing.T) {
	type layer struct {
		f, b float64
		out  int64
	}
	for _, k := range []struct {
		name    string
		layers  []layer
		devices int
		parts   []float64 // of the divided layer, by stage
		want    float64
	}{
		// F + B = 15/2 s: stage 0 computes 4.5 of layer 1's 12 s. 300 B take 1 s. A step takes 9 x 7.5 + 4 x 2 x 1.
		{"nothing made of it is sent", []layer{{1, 2, 300}, {4, 8, 0}}, 2, []float64{0.375, 0.625}, 75.5},
		// F + B = 18/2 s: stage 0 computes half of layer 1. 300 B and half of 120 B take 1.2 s. A step takes 9 x 9 + 4
		// x 2 x 1.2.
		{"half of its output is sent too", []layer{{1, 2, 300}, {4, 8, 120}, {1, 2, 0}}, 2, []float64{0.5, 0.5}, 90.6},
		// F + B = 24/3 s: the stages compute 5, 8 and 5 of layer 1's 18 s. 300 B take 1 s at both boundaries. A step
		// takes 10 x 8 + 6 x 2 x 1.
		{"three stages share it", []layer{{1, 2, 300}, {6, 12, 0}, {1, 2, 0}}, 3, []float64{5. / 18, 8. / 18, 5. / 18}, 92},
	} {
		t.Run(k.name, func(t *testing.T) {
			p := &profile.Profile{Version: profile.Version, Model: "divided", ModelID: "x", Source: "roofline"}
			for i, l := range k.layers {
				p.Layers = append(p.Layers, profile.Layer{Name: string(rune('a' + i)), Kind: "linear",
					From: []int{i - 1}, TiedTo: -1,
					Costs: []profile.Cost{{Device: "d", MicroBatch: 1, ForwardS: l.f, BackwardS: l.b, OutputBytes: l.out}}})
			}
			c := &cluster.Cluster{Name: "chain", DeviceTypes: map[string]cluster.DeviceType{"d": {}},
				Levels: []cluster.Level{{Name: "chain", Size: k.devices, BandwidthBytesPerSecond: 300, FullDuplex: true}}}
			for range k.devices {
				c.Devices = append(c.Devices, "d")
			}
			bapipe, err := plan.LookupPlanner("bapipe")
			if err != nil {
				t.Fatal(err)
			}
			pl, err := bapipe.Plan(context.Background(), plan.Request{Profile: p, Cluster: c, Batch: 8, MicroBatch: 1,
				Set: map[string]string{"schedule": "1F1B-SNO", "dp": "off"}})
			if err != nil {
				t.Fatal(err)
			}
			for s, part := range k.parts {
				st := &pl.Stages[s]
				if got := st.FirstFraction + st.LastFraction; math.Abs(got-part) > 1e-6 {
					t.Errorf("stage %d computes %v of the divided layer, want %v: %+v", s, got, part, st)
				}
			}
			predicted, err := Plan(p, c, pl, false)
			if err != nil {
				t.Fatal(err)
			}
			if math.Abs(pl.Objective.Value-k.want) > 1e-6 || math.Abs(predicted.StepS-k.want) > 1e-6 {
				t.Errorf("the table gives %v s, the simulator %v s; by hand it is %v", pl.Objective.Value, predicted.StepS, k.want)
			}
		})
	}
}

// TestChainsTakeWhatTheTableSays: there are two chains of two stages. Each stage has 2 layers, of 1 s forward and 2 s
// backward each, so F + B = 6 s. Each chain has 4 of the 8 micro-batches. A message of 300 B at 300 B/s takes SR = 1 s.
// By Table II, 1F1B-SNO takes (4+2-1) 6 + (2+4-2-ceil(3/2)) 2 = 34 s, and SO takes 30 + 2 s. Then the two chains sum
// their gradients: 600 B at 300 B/s take 2 s. In the simulator, a part of that sum overlaps with the last backward.
func TestChainsTakeWhatTheTableSays(t *testing.T) {
	for _, k := range []struct {
		schedule   string
		parameters int64
		want, sum  float64
	}{{"1F1B-SNO", 0, 34, 0}, {"1F1B-SO", 0, 32, 0}, {"1F1B-SNO", 300, 36, 2}} {
		p := &profile.Profile{Version: profile.Version, Model: "chains", ModelID: "x", Source: "roofline"}
		for i := range 4 {
			p.Layers = append(p.Layers, profile.Layer{Name: string(rune('a' + i)), Kind: "linear", From: []int{i - 1},
				TiedTo: -1, ParameterBytes: k.parameters,
				Costs: []profile.Cost{{Device: "d", MicroBatch: 1, ForwardS: 1, BackwardS: 2, OutputBytes: 300}}})
		}
		c := &cluster.Cluster{Name: "four", DeviceTypes: map[string]cluster.DeviceType{"d": {}},
			Devices: []string{"d", "d", "d", "d"}, Levels: []cluster.Level{{Name: "chain", Size: 4,
				BandwidthBytesPerSecond: 300, FullDuplex: true}}}
		bapipe, err := plan.LookupPlanner("bapipe")
		if err != nil {
			t.Fatal(err)
		}
		pl, err := bapipe.Plan(context.Background(), plan.Request{Profile: p, Cluster: c, Batch: 8, MicroBatch: 1,
			Set: map[string]string{"schedule": k.schedule, "dp": "off", "chains": "2", "fractions": "off"}})
		if err != nil {
			t.Fatal(err)
		}
		predicted, err := Plan(p, c, pl, false)
		if err != nil {
			t.Fatal(err)
		}
		if got := pl.Objective.Value; math.Abs(got-k.want) > 1e-6 {
			t.Errorf("%s: the planner's formula gives %v s, by hand %v", k.schedule, got, k.want)
		}
		if got := predicted.StepS; got > k.want+1e-6 || got < k.want-k.sum-1e-6 {
			t.Errorf("%s: simulated in %v s, by hand %v of which %v are sums", k.schedule, got, k.want, k.sum)
		}
	}
}
