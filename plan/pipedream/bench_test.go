package pipedream_test

import (
	"fmt"
	"testing"

	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/plan/plantest"
	"github.com/millrace-ml/millrace/profile"
)

// BenchmarkPipeDream measures the planner on cases for which the published optimizer's times are known, and on 1,000
// layers and 1,024 devices.
func BenchmarkPipeDream(b *testing.B) {
	planner, err := plan.LookupPlanner("pipedream")
	if err != nil {
		b.Fatal(err)
	}
	four := []float64{12e9, 1.25e9}
	for _, formula := range []string{"paper", "artifact"} {
		for _, c := range []struct {
			file  string
			batch int
		}{{"pipedream-vgg16.txt", 128}, {"pipedream-resnet50.txt", 128}, {"pipedream-gnmt.txt", 32},
			{"pipedream-gnmt_large.txt", 128}, {"pipedream-inception_v3.txt", 128}} {
			for _, sizes := range [][]int{{4, 4}, {16}} {
				b.Run(fmt.Sprintf("%s/%s/%v", formula, c.file, sizes), func(b *testing.B) {
					r := plan.Request{Profile: plantest.ReadProfile(b, c.file, c.batch), Cluster: levels(sizes, four),
						Batch: c.batch, Formula: formula}
					for b.Loop() {
						if _, err := planner.Plan(b.Context(), r); err != nil {
							b.Fatal(err)
						}
					}
				})
			}
		}
		b.Run(formula+"/1000 layers on 4x8x4x8", func(b *testing.B) {
			r := plan.Request{Profile: uneven(1000),
				Cluster: levels([]int{4, 8, 4, 8}, []float64{100e9, 25e9, 5e9, 1e9}), Batch: 64, Formula: formula}
			for b.Loop() {
				if _, err := planner.Plan(b.Context(), r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// uneven returns a chain of n layers, all different, with most weights near the end.
func uneven(n int) *profile.Profile {
	p := &profile.Profile{Version: profile.Version, Model: "uneven", Source: "measured"}
	x := uint32(1)
	next := func() float64 {
		x = x*1664525 + 1013904223
		return float64(x>>8) / (1 << 24)
	}
	for i := range n {
		at := float64(i) / float64(n)
		p.Layers = append(p.Layers, profile.Layer{
			Name: fmt.Sprint("layer", i), Kind: "linear", From: []int{i - 1}, TiedTo: -1,
			ParameterBytes: int64(8e6 * at * at * next()),
			Costs: []profile.Cost{{Device: "gpu", MicroBatch: 64, ForwardS: 1e-3 * next(), BackwardS: 2e-3 * next(),
				OutputBytes: int64(20e6 * (1.1 - at) * next()), SavedBytes: int64(20e6 * (1.1 - at))}},
		})
	}
	return p
}
