package curves

import (
	"fmt"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/schedule"
)

func TestReadMethods(t *testing.T) {
	all, err := ReadMethods([]string{"stash", "elastic:3",
		"elastic:2:lr=1:alpha=0.25:momentum=0.5:beta1=0.7:warmup=4:order=printed", "sync", "stash"})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 4 || all[0].Name != "sync" || all[1].Policy != schedule.Stash || all[1].LR != 1 {
		t.Fatalf("%+v", all)
	}
	j := &job.Job{Data: job.Data{Seed: 1}}
	j.Train.Rate.Base, j.Train.Rate.Warmup, j.Train.Optimizer.Momentum = 0.1, 20, 0.9
	// With N pipelines the rate is multiplied by N, and the warm-up covers the same number of samples.
	three := all[2].Job(j, 7)
	if all[2].Pipelines() != 3 || three.Train.Rate.Base != j.Train.Rate.Base*3 || three.Train.Rate.Warmup != 6 ||
		three.Train.Optimizer.Momentum != 0.9 || three.Data.Seed != 7 || all[2].Elastic.Alpha != 1./3 {
		t.Errorf("elastic:3: %+v of %+v", three, all[2].Elastic)
	}
	own := all[3].Job(j, 7)
	if want := (plan.Elastic{Pipelines: 2, Alpha: 0.25, Order: plan.UpdateFirst}); *all[3].Elastic != want ||
		own.Train.Rate.Base != 0.1 || own.Train.Rate.Warmup != 4 || own.Train.Optimizer.Momentum != 0.5 ||
		own.Train.Optimizer.Beta1 != 0.7 {
		t.Errorf("with settings: %+v of %+v", own, all[3].Elastic)
	}
}

// With `split`, each of N pipelines takes 1/N of a batch. The warm-up then has as many steps as that of one pipeline
// with whole batches. Rate and alpha are those of --lr-scale split.
func TestSplitMethod(t *testing.T) {
	m, err := ReadMethod("elastic:4:split")
	if err != nil {
		t.Fatal(err)
	}
	j := &job.Job{Data: job.Data{Seed: 1}, Plan: job.Plan{Batch: 32}}
	j.Train.Rate.Base, j.Train.Rate.Warmup, j.Train.Optimizer.Kind = 0.1, 20, "sgd"
	own := m.Job(j, 7)
	if own.Plan.Batch != 8 || own.Train.Rate.Base != 0.1 || own.Train.Rate.Warmup != 20 || m.Elastic.Alpha != 0.375 {
		t.Errorf("%+v of %+v", own, m.Elastic)
	}
	j.Train.Clip = 1
	if own := m.Job(j, 7); own.Train.Rate.Base != 0.2 {
		t.Errorf("clipped: a rate of %v; want the root of 4 times as large", own.Train.Rate.Base)
	}
	base := &plan.Plan{Stages: []plan.Stage{{}}}
	if pl := m.Plan(base, own.Plan.Batch, 1); pl.StepSamples() != 32 {
		t.Errorf("an iteration trains on %d samples, not on a batch of 32", pl.StepSamples())
	}
	if m, _ := ReadMethod("elastic:2:split:lr=3:alpha=0.5"); m.Factor(j) != 3 || m.Elastic.Alpha != 0.5 {
		t.Errorf("a rate and alpha of its own became %v and %v", m.Factor(j), m.Elastic.Alpha)
	}
	if _, err := ReadMethod("stash:split"); err == nil || !strings.Contains(err.Error(), `"split"`) {
		t.Errorf("stash:split: %v", err)
	}
	whole, _ := ReadMethod("elastic:4")
	methods := []Method{whole, m}
	if got, ok := MethodOf(methods, schedule.Elastic, 4, true); !ok || got.Name != m.Name {
		t.Errorf("split among 4: %+v, %v", got, ok)
	}
	if _, ok := MethodOf(methods[:1], schedule.Elastic, 4, true); ok {
		t.Error("whole batches stand for split ones")
	}
}

func TestMethodPlans(t *testing.T) {
	base := &plan.Plan{Stages: []plan.Stage{{Warmup: 5}, {FirstLayer: 1, LastLayer: 1, Warmup: 5}}}
	for word, want := range map[string]string{
		"sync": "1f1b 4x4", "stash": "1f1b-rr 1x16", "vertical": "1f1b-rr 1x16", "latest": "1f1b-rr 1x16",
		"2bw": "1f1b-rr 4x4", "elastic:2": "elastic 4x4",
	} {
		m, err := ReadMethod(word)
		if err != nil {
			t.Fatal(err)
		}
		pl := m.Plan(base, 16, 4)
		if got := fmt.Sprintf("%s %dx%d", pl.Schedule, pl.MicroBatches, pl.MicroBatch); got != want ||
			pl.Weights != string(m.Policy) || pl.Stages[0].Warmup != 0 {
			t.Errorf("%s: %s, policy %s, warm-up %d; want %s", word, got, pl.Weights, pl.Stages[0].Warmup, want)
		}
	}
	if base.Stages[0].Warmup != 5 {
		t.Error("the base is changed")
	}
	two := Method{Policy: schedule.DoubleBuffered}
	if pl := two.Plan(base, 16, 1); pl.MicroBatches != 2 {
		t.Errorf("2bw in %d micro-batches over two stages", pl.MicroBatches)
	}
}
