package run

import (
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/plan"
)

// Plans that can be made but not executed here are refused before a run, with the reason.
func TestPlansThatAreNotExecuted(t *testing.T) {
	m, err := model.Build("mlp", nil)
	if err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(p *plan.Plan){
		"":                             func(*plan.Plan) {},
		"(shard zero1)":                func(p *plan.Plan) { p.Shard = plan.ZeRO1 },
		"(gradients behind)":           func(p *plan.Plan) { p.Gradients = plan.GradientsBehind },
		"stage 0 recomputes blocks":    func(p *plan.Plan) { p.Stages[0].Recompute = plan.Blocks },
		"stage 0 recomputes selective": func(p *plan.Plan) { p.Stages[0].Recompute = plan.Selective },
	} {
		p := &plan.Plan{Model: m.Name, MicroBatch: 1, MicroBatches: 2, Schedule: "dp", Replication: "round_robin",
			Gradients: "bucket=1MiB", Stages: []plan.Stage{{LastLayer: len(m.Layers) - 1, Devices: []int{0, 1}}}}
		change(p)
		err := CheckPlan(p, m, false)
		if want == "" {
			if err != nil {
				t.Errorf("sums in buckets: %v", err)
			}
			c := &Config{Plan: p}
			if c.defaults(); c.Wire.BucketBytes != 1<<20 {
				t.Errorf("%d bytes are summed at once, and the plan says 1 MiB", c.Wire.BucketBytes)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "not executed here") {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
