package prepare

import (
	"errors"
	"testing"

	"github.com/spf13/cobra"
	"pgregory.net/rapid"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/plan"
	_ "github.com/millrace-ml/millrace/plan/planners"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/tune/predict"
)

// The profile has costs for everything that a planner chooses for a described cluster, also for a replica's slice of a
// micro-batch.
func TestWhatPlannersChooseHasCosts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		j := job.Default()
		j.Model.Name = rapid.SampledFrom([]string{"gpt", "mlp", "convnet", "lstm"}).Draw(t, "model")
		j.Machine.Cluster = rapid.SampledFrom(cluster.Presets()).Draw(t, "cluster")
		j.Plan.Batch = rapid.OneOf(rapid.IntRange(1, 600), rapid.SampledFrom([]int{128, 256, 512})).Draw(t, "batch")
		if sizes := plan.Divisors(j.Plan.Batch); rapid.Bool().Draw(t, "fixed") {
			j.Plan.MicroBatch = rapid.SampledFrom(sizes).Draw(t, "micro-batch")
		}
		m, err := LoadModel(&j)
		if err == nil {
			err = j.Complete()
		}
		if err != nil {
			t.Fatal(err)
		}
		p := &Prepared{Job: &j, Model: m}
		if err := p.Hardware(&cobra.Command{}); err != nil {
			t.Fatal(err)
		}
		for _, planner := range plan.Planners() {
			pl, err := planner.Plan(t.Context(), plan.Request{Profile: p.Profile, Cluster: p.Cluster, Batch: j.Plan.Batch,
				MicroBatch: j.Plan.MicroBatch})
			if err == nil && predict.CheckWork(pl, 1) == nil {
				_, err = predict.Plan(p.Profile, p.Cluster, pl, false)
			}
			if missing := new(profile.MissingError); errors.As(err, &missing) {
				t.Errorf("%s: %v", planner.Name, err)
			}
		}
	})
}
