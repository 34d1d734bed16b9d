package pipedream_test

import (
	"math"
	"slices"
	"testing"

	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/plan/plantest"
)

// TestKnownNumbers compares the planner with published answers of which only rounded numbers exist. They must agree to
// the last digit. The test also compares the numbers of replicas with those of shipped configurations.
func TestKnownNumbers(t *testing.T) {
	planner, err := plan.LookupPlanner("pipedream")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		file       string
		batch      int
		sizes      []int
		bandwidths []float64
		objective  float64 // seconds, as published with four decimals
		replicas   []int   // nil if plans tie
	}{
		{"pipedream-gnmt_large.txt", 128, []int{4, 4}, []float64{12e9, 1.25e9}, 0.0421, nil},
		{"pipedream-gnmt_large.txt", 128, []int{16}, []float64{1.25e9}, 0.0590, nil},
		{"pipedream-gnmt_large.txt", 128, []int{16}, []float64{3.125e9}, 0.0421, nil},
		{"pipedream-gnmt_large.txt", 128, []int{8}, []float64{25e9}, 0.0772, nil},
		{"pipedream-resnet50.txt", 128, []int{4, 4}, []float64{12e9, 1.25e9}, 0.0432, nil},
		{"pipedream-resnet50.txt", 128, []int{4, 4}, []float64{6e9, 1.25e9}, 0.0433, []int{8, 4, 4}},
		{"pipedream-resnet50.txt", 128, []int{8, 2}, []float64{25e9, 3.125e9}, 0.0320, nil},
		{"pipedream-gnmt.txt", 32, []int{4, 3}, []float64{6e9, 1.25e9}, 0.0139, nil},
		{"pipedream-gnmt.txt", 32, []int{8, 2}, []float64{25e9, 3.125e9}, 0.0099, nil},
	} {
		pl, err := planner.Plan(t.Context(), plan.Request{Profile: plantest.ReadProfile(t, c.file, c.batch),
			Cluster: levels(c.sizes, c.bandwidths), Batch: c.batch, Formula: "artifact"})
		if err != nil {
			t.Fatal(err)
		}
		var replicas []int
		for _, st := range pl.Stages {
			replicas = append(replicas, len(st.Devices))
		}
		if math.Abs(pl.Objective.Value-c.objective) > 0.51e-4 {
			t.Errorf("%s on %v: %.6f, published %.4f", c.file, c.sizes, pl.Objective.Value, c.objective)
		}
		if c.replicas != nil && !slices.Equal(replicas, c.replicas) {
			t.Errorf("%s on %v: replicas %v, shipped %v", c.file, c.sizes, replicas, c.replicas)
		}
	}
}
