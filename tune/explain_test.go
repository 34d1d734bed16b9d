package tune

import (
	"testing"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/schedule"
)

// TestWhatFillsADevice counts by hand what two workers with half of a model each hold. A stage has
// two layers of 100 B of parameters; with one optimizer state that is 200 B of weights, of
// gradients and of states for every set of weights that is updated.
func TestWhatFillsADevice(t *testing.T) {
	for _, of := range []struct {
		schedule                               string
		weights                                schedule.Policy
		weight, version, gradients, optimizers int64 // sets on the first device, of 200 B
	}{
		{"1f1b", schedule.Sync, 1, 0, 1, 1},
		{"1f1b-rr", schedule.Stash, 1, 1, 1, 1},          // two in flight: one older version
		{"1f1b-rr", schedule.DoubleBuffered, 1, 1, 1, 1}, // never more than one
		{"1f1b-rr", schedule.Latest, 1, 0, 1, 1},
		{"elastic", schedule.Elastic, 3, 0, 2, 2}, // two pipelines and the reference, which has neither
	} {
		t.Run(of.schedule+" "+string(of.weights), func(t *testing.T) {
			p := chain(4, 1)
			p.OptimizerStates = 1
			r := Request{Profile: p, Cluster: cluster.Local("cpu", 2, 0, 0, 0, 1e9, 1e9), Batch: 4,
				Fix: Overrides{Stages: 2, Split: []int{2}, Schedule: of.schedule, Weights: of.weights, MicroBatch: 1}}
			found, err := Search(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			e, err := Explain(t.Context(), r, found.Best, false)
			if err != nil {
				t.Fatal(err)
			}
			m := e.Memory[0]
			got := []int64{m.WeightBytes, m.VersionBytes, m.GradientBytes, m.OptimizerBytes}
			for i, sets := range []int64{of.weight, of.version, of.gradients, of.optimizers} {
				if got[i] != 200*sets {
					t.Errorf("holds %d B of weights, older versions, gradients and states, in flight %d; want %d sets of %d",
						got, m.MicrosInFlight, sets, i)
				}
			}
			if sum := got[0] + got[1] + got[2] + got[3] + m.ActivationBytes + m.BufferBytes; sum != m.PeakBytes {
				t.Errorf("the parts %+v make %d", m, sum)
			}
		})
	}
}
