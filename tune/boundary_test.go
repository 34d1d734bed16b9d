package tune

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/internal/packing"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/plan/plantest"
	"github.com/millrace-ml/millrace/profile"
	"pgregory.net/rapid"
)

// format draws a format for tensors between stages, and sets the packing rates of a profile's machine.
func format(t *rapid.T, p *profile.Profile) packing.Format {
	f := rapid.SampledFrom([]packing.Format{packing.Whole, packing.F16, packing.I8}).Draw(t, "boundary")
	if p.Transfer == nil {
		p.Transfer = &profile.Transfer{}
	}
	p.Transfer.Packing = []profile.Packing{{Format: f, PackBytesPerSecond: rapid.Float64Range(5, 100).Draw(t, "packs"),
		UnpackBytesPerSecond: rapid.Float64Range(5, 100).Draw(t, "unpacks")}}
	return f
}

// TestBoundaryDecidesBetweenPlans works out by hand: two layers of 1 s forward and 2 s backward run on two workers,
// with two micro-batches. One worker takes 12 s. Two stages take 9 s plus the time to send the last micro-batch both
// ways. The link carries 10 B/s. So 20 bytes take 2 s each way, and the step takes 9 + 2 x 2 = 13 s. In 16 bits they
// take 1 s each way, and the step takes 9 + 2 x 1 = 11 s. The last micro-batch is packed or unpacked four times. If
// packing 20 B takes a second, the step takes 4 s more, and one worker is best again.
func TestBoundaryDecidesBetweenPlans(t *testing.T) {
	r := plantest.EvenChain(2, 2, 10)
	for i := range r.Profile.Layers {
		r.Profile.Layers[i].Costs[0].OutputBytes = 20
	}
	for _, x := range []struct {
		format packing.Format
		rate   float64 // bytes packed in a second; 0 means unknown, and packing takes no time
		stages int
		stepS  float64
	}{{packing.Whole, 0, 1, 12}, {packing.F16, 0, 2, 11}, {packing.F16, 20, 1, 12}} {
		r.Profile.Transfer = &profile.Transfer{}
		if x.rate > 0 {
			r.Profile.Transfer.Packing = []profile.Packing{{Format: packing.F16, PackBytesPerSecond: x.rate,
				UnpackBytesPerSecond: x.rate}}
		}
		found, err := Search(context.Background(), Request{Profile: r.Profile, Cluster: r.Cluster, Batch: 2,
			Fix: Overrides{Boundary: x.format}})
		if err != nil {
			t.Fatal(err)
		}
		if pl := found.Best; len(pl.Stages) != x.stages || math.Abs(pl.Predicted.StepS-x.stepS) > 1e-9 {
			t.Errorf("%s, packing at %v bytes a second: %d stages in %v s; wanted %d in %v s", x.format, x.rate,
				len(pl.Stages), pl.Predicted.StepS, x.stages, x.stepS)
		}
		for _, rival := range found.Rivals {
			if pl := rival.Plan; pl != nil && pl.Boundary.Packs() != (x.format.Packs() && len(pl.Stages) > 1) {
				t.Errorf("%s of %d stages: boundary %q of %s asked for", rival.Kind, len(pl.Stages), pl.Boundary, x.format)
			}
		}
	}
}

// TestPlannersSeePackedBytes: planners see the packed bytes. PipeDream makes two stages on a slow link, and its
// objective, the time of the transfers between them, falls with fewer bits.
func TestPlannersSeePackedBytes(t *testing.T) {
	planner, err := plan.LookupPlanner("pipedream")
	if err != nil {
		t.Fatal(err)
	}
	r := plantest.EvenChain(2, 2, 10)
	var objective []float64
	for _, f := range []packing.Format{packing.Whole, packing.I8} {
		for i := range r.Profile.Layers {
			r.Profile.Layers[i].Costs[0].OutputBytes, r.Profile.Layers[i].ParameterBytes = 80, 1<<20
		}
		r.Boundary = f
		pl, err := planner.Plan(context.Background(), r)
		if err != nil {
			t.Fatal(err)
		}
		if pl.Boundary.Packs() != f.Packs() || len(pl.Stages) != 2 {
			t.Errorf("%s: boundary %q of %d stages", f, pl.Boundary, len(pl.Stages))
		}
		objective = append(objective, pl.Objective.Value)
	}
	// By hand: 2 * 80 B / (10 B/s), and in 8 bits 2 * (20 + 4) B / (10 B/s).
	if math.Abs(objective[0]-16) > 1e-9 || math.Abs(objective[1]-4.8) > 1e-9 {
		t.Errorf("PipeDream's slowest of stages and transfers takes %v s; by hand 16 and 4.8", objective)
	}
}

// TestBoundaryIsOfSeveralStages: a boundary format is refused if no tensors cross between stages, and the error names
// the setting.
func TestBoundaryIsOfSeveralStages(t *testing.T) {
	for _, c := range []struct {
		fix  Overrides
		says string
	}{
		{Overrides{Stages: 1}, "one stage sends no other its activations"},
		{Overrides{Schedule: "dp"}, "under schedule dp a worker has the whole model"},
		{Overrides{Schedule: "dp-async"}, "under schedule dp-async"},
		{Overrides{Weights: "asp"}, "under schedule asp"},
	} {
		c.fix.Boundary = packing.I8
		var refused *SettingError
		err := c.fix.CheckNames()
		if !errors.As(err, &refused) || refused.Key != "boundary" || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %v; wanted a refusal of boundary that says %q", c.fix, err, c.says)
		}
		c.fix.Boundary = packing.Whole
		if err := c.fix.CheckNames(); err != nil {
			t.Errorf("%+v: %v", c.fix, err)
		}
	}
}
