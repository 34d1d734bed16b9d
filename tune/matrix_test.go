package tune

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/tune/predict"
)

// workloads lists the papers' models, by their names in model's registry.
var workloads = []string{"vgg16", "bert-48", "gnmt-16", "alexnet", "resnet50", "xlnet-36", "awd-lm", "bert-large",
	"amoebanet-36", "gnmt-8", "vgg19", "s2vt"}

// TestNeverWorseThanAnyPlanner: in simulation, auto's plan is at least as fast as the plan of every planner that
// answers in time, if that plan fits. The test takes every preset of a cluster, with one of the papers' models each. If
// MILLRACE_SOAK is set, it takes all models with each preset.
func TestNeverWorseThanAnyPlanner(t *testing.T) {
	t.Parallel()
	for i, preset := range cluster.Presets() {
		names := workloads[i%len(workloads) : i%len(workloads)+1]
		if os.Getenv("MILLRACE_SOAK") != "" {
			names = workloads
		}
		for _, name := range names {
			t.Run(preset+"/"+name, func(t *testing.T) {
				c, err := cluster.Preset(preset)
				if err != nil {
					t.Fatal(err)
				}
				m, err := model.Build(name, nil)
				if err != nil {
					t.Fatal(err)
				}
				p, err := profile.Analytic(m, c.DeviceTypes, []int{1, 2, 4, 8}, "adam", 2)
				if err != nil {
					t.Fatal(err)
				}
				neverWorse(t, p, c, 64)
			})
		}
	}
}

func neverWorse(t *testing.T, p *profile.Profile, c *cluster.Cluster, batch int) {
	began := time.Now()
	found, err := Search(context.Background(), Request{Profile: p, Cluster: c, Batch: batch, Time: 150 * time.Millisecond})
	if err != nil {
		t.Log(err) // too large for these devices, which is a valid answer
		return
	}
	best := found.Best
	t.Logf("%s: %v, step %.4g s, gap %.3g, after %v", p.Model, shapeText(best), best.Predicted.StepS,
		best.LowerBound.Gap, time.Since(began).Round(time.Millisecond))
	if best.LowerBound.Gap < 0 {
		t.Errorf("%v is below its bound %v", best.Predicted.StepS, best.LowerBound.StepS)
	}
	finished := map[string]bool{}
	for _, r := range found.Rivals {
		finished[r.Kind] = true
		if r.Fits && r.Note == "" && r.Predicted.StepS < best.Predicted.StepS*(1-1e-9) {
			t.Errorf("%s takes %v s, the best %v s", r.Kind, r.Predicted.StepS, best.Predicted.StepS)
		}
	}
	for _, planner := range plan.Planners() {
		if !finished[planner.Name] {
			t.Logf("%s gave nothing to compare with in time", planner.Name)
			continue
		}
		pl, err := planner.Plan(context.Background(), plan.Request{Profile: p, Cluster: c, Batch: batch})
		if err != nil || pl.Weights != "sync" || pl.Batch() != batch {
			continue
		}
		alone, err := predict.Plan(p, c, pl, false)
		if err == nil && (candidate{plan: pl, predicted: alone}).over(c) == 0 && alone.StepS < best.Predicted.StepS*(1-1e-9) {
			t.Errorf("%s alone takes %v s, auto %v s", planner.Name, alone.StepS, best.Predicted.StepS)
		}
	}
}

// shapeText returns the number of devices of each stage.
func shapeText(pl *plan.Plan) (counts []int) {
	for _, st := range pl.Stages {
		counts = append(counts, len(st.Devices))
	}
	return counts
}
