package tune

import (
	"context"
	"testing"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/profile"
)

// TestNoiseMovesABestPlan: with the terms of a machine's noise, convnet with batch 16 on two workers is fastest as one
// replicated stage (dp). If any one of the terms is left out, it is fastest as dp-overlap. So each term changes which
// plan is the best, and belongs in a profile. The terms' sizes are chosen to show this; those of real machines vary.
func TestNoiseMovesABestPlan(t *testing.T) {
	types := map[string]cluster.DeviceType{"cpu": {PeakFLOPS: 40e9, MemoryBandwidthBytesPerSecond: 10e9}}
	m, err := model.Build("convnet", nil)
	if err != nil {
		t.Fatal(err)
	}
	for without, want := range map[string]string{"": "dp", "dispatch": "dp-overlap", "spread": "dp-overlap",
		"pace": "dp-overlap"} {
		p, err := profile.Analytic(m, types, []int{1, 2, 4, 8, 16}, "adam", 2)
		if err != nil {
			t.Fatal(err)
		}
		p.Transfer = &profile.Transfer{LatencyS: 20e-6, BandwidthBytesPerSecond: 4e9, AllReduceBytesPerSecond: 1e9,
			AllReduceWorkers: 2, SendS: 15e-6, ReceiveS: 10e-6}
		if without != "dispatch" {
			p.Transfer.DispatchS = 60e-6
		}
		if without != "pace" {
			p.PaceSpread = 0.08
		}
		for l := range p.Layers {
			for i := range p.Layers[l].Costs {
				if without != "spread" {
					p.Layers[l].Costs[i].Spread = 0.08
				}
			}
		}
		best, least := "", 0.0
		for _, schedule := range []string{"dp", "dp-overlap", "chimera", "1f1b"} {
			fix := Overrides{Schedule: schedule, MicroBatches: 2}
			if schedule == "dp" {
				fix.Stages = 1
			}
			r, err := Search(context.Background(), Request{Profile: p, Cluster: cluster.Local("cpu", 2, 0, 0, 20e-6,
				4e9, 1e9),
				Batch: 16, Runnable: true, Fix: fix})
			if err != nil {
				t.Fatal(err)
			}
			if s := r.Best.Predicted.StepS; best == "" || s < least {
				best, least = schedule, s
			}
		}
		if best != want {
			t.Errorf("without %q the best plan is %s, %v s; want %s", without, best, least, want)
		}
	}
}
