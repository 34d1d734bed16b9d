package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/cmd/internal/clitest"
	"github.com/millrace-ml/millrace/data"
	"github.com/millrace-ml/millrace/engine/torch"
	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/lab/curves"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/schedule"
)

func TestReadMethods(t *testing.T) {
	all, err := curves.ReadMethods([]string{"stash", "elastic:3", "elastic:2:lr=1:alpha=0.25:momentum=0.5:beta1=0.7:warmup=4:order=printed", "sync", "stash"})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 4 || all[0].Name != "sync" || all[1].Policy != schedule.Stash || all[1].LR != 1 {
		t.Fatalf("%+v", all)
	}
	j := &job.Job{Seed: 1}
	j.Rate.Base, j.Rate.Warmup, j.Optimizer.Momentum = 0.1, 20, 0.9
	// Of N pipelines the rate goes up with N, and they warm up over as many samples.
	three := all[2].Job(j, 7)
	if all[2].Pipelines() != 3 || three.Rate.Base != j.Rate.Base*3 || three.Rate.Warmup != 6 || three.Optimizer.Momentum != 0.9 || three.Seed != 7 || all[2].Elastic.Alpha != 1./3 {
		t.Errorf("elastic:3: %+v of %+v", three, all[2].Elastic)
	}
	own := all[3].Job(j, 7)
	if want := (plan.Elastic{Pipelines: 2, Alpha: 0.25, Order: plan.UpdateFirst}); *all[3].Elastic != want || own.Rate.Base != 0.1 || own.Rate.Warmup != 4 || own.Optimizer.Momentum != 0.5 || own.Optimizer.Beta1 != 0.7 {
		t.Errorf("with settings: %+v of %+v", own, all[3].Elastic)
	}
}

// Pipelines that split a batch take an N-th of it each, with the warm-up of one that takes it whole and the rate and alpha of
// --lr-scale split.
func TestSplitMethod(t *testing.T) {
	m, err := curves.ReadMethod("elastic:4:split")
	if err != nil {
		t.Fatal(err)
	}
	j := &job.Job{Seed: 1, Batch: 32}
	j.Rate.Base, j.Rate.Warmup, j.Optimizer.Kind = 0.1, 20, "sgd"
	own := m.Job(j, 7)
	if own.Batch != 8 || own.Rate.Base != 0.1 || own.Rate.Warmup != 20 || m.Elastic.Alpha != 0.375 {
		t.Errorf("%+v of %+v", own, m.Elastic)
	}
	j.Clip = 1
	if own := m.Job(j, 7); own.Rate.Base != 0.2 {
		t.Errorf("clipped: a rate of %v; want the root of 4 times as large", own.Rate.Base)
	}
	base := &plan.Plan{Stages: []plan.Stage{{}}}
	if pl := m.Plan(base, own.Batch, 1); pl.StepSamples() != 32 {
		t.Errorf("an iteration trains on %d samples, not on a batch of 32", pl.StepSamples())
	}
	if m, _ := curves.ReadMethod("elastic:2:split:lr=3:alpha=0.5"); m.Factor(j) != 3 || m.Elastic.Alpha != 0.5 {
		t.Errorf("a rate and alpha of its own became %v and %v", m.Factor(j), m.Elastic.Alpha)
	}
	if _, err := curves.ReadMethod("stash:split"); err == nil || !strings.Contains(err.Error(), `"split"`) {
		t.Errorf("stash:split: %v", err)
	}
	whole, _ := curves.ReadMethod("elastic:4")
	methods := []curves.Method{whole, m}
	if got, ok := methodOf(methods, schedule.Elastic, 4, true); !ok || got.Name != m.Name {
		t.Errorf("split among 4: %+v, %v", got, ok)
	}
	if _, ok := methodOf(methods[:1], schedule.Elastic, 4, true); ok {
		t.Error("whole batches stand for split ones")
	}
}

func TestMethodPlans(t *testing.T) {
	base := &plan.Plan{Stages: []plan.Stage{{Warmup: 5}, {FirstLayer: 1, LastLayer: 1, Warmup: 5}}}
	for word, want := range map[string]string{
		"sync": "1f1b 4x4", "stash": "1f1b-rr 1x16", "vertical": "1f1b-rr 1x16", "latest": "1f1b-rr 1x16", "2bw": "1f1b-rr 4x4", "elastic:2": "elastic 4x4",
	} {
		m, err := curves.ReadMethod(word)
		if err != nil {
			t.Fatal(err)
		}
		pl := m.Plan(base, 16, 4)
		if got := fmt.Sprintf("%s %dx%d", pl.Schedule, pl.MicroBatches, pl.MicroBatch); got != want || pl.Weights != string(m.Policy) || pl.Stages[0].Warmup != 0 {
			t.Errorf("%s: %s, policy %s, warm-up %d; want %s", word, got, pl.Weights, pl.Stages[0].Warmup, want)
		}
	}
	if base.Stages[0].Warmup != 5 {
		t.Error("the base is changed")
	}
	two := curves.Method{Policy: schedule.DoubleBuffered}
	if pl := two.Plan(base, 16, 1); pl.MicroBatches != 2 {
		t.Errorf("2bw in %d micro-batches over two stages", pl.MicroBatches)
	}
}

// halving is a training whose loss is 4 after half an epoch, then 2, then 1.
func halving(seed uint64, diverged string) curves.Training {
	t := curves.Training{Seed: seed, Diverged: diverged}
	if diverged == "" {
		t.Points = []curves.Point{{Epoch: 0.5, Loss: 4}, {Epoch: 1, Loss: 2}, {Epoch: 1.5, Loss: 1}}
	}
	return t
}

// rounds of a contender that always takes as long.
func constantly(s float64) []float64 { return slices.Repeat([]float64{s}, 6) }

func TestComparisonTables(t *testing.T) {
	methods, err := curves.ReadMethods([]string{"stash", "latest", "elastic:2"})
	if err != nil {
		t.Fatal(err)
	}
	m, err := model.Build("mlp", nil)
	if err != nil {
		t.Fatal(err)
	}
	half := data.Synthetic(1000, []int{64}, nil, false, 10)
	slow := curves.Training{Points: []curves.Point{{Epoch: 1, Loss: 3}, {Epoch: 1.25, Loss: 2}}}
	c := &comparison{
		learning: &learning{
			job: &job.Job{Model: "mlp", Data: "digits", Batch: 10, Workers: 2}, model: m, set: &data.Set{Train: half, Test: half}, methods: methods,
			base: &plan.Plan{Stages: []plan.Stage{{}, {FirstLayer: 2}}}, micros: 2, seeds: 2, evals: 2,
		},
		metric: curves.Loss, target: 2,
		trained: map[string][]curves.Training{
			"sync": {halving(1, ""), halving(2, "")}, "stash": {halving(1, ""), slow}, "latest": {halving(1, ""), halving(2, "at once")}, "elastic:2": {slow, slow},
		},
		times: &times{
			Batch: 10, Workers: 2, Cores: 2, Stages: []int{0, 2},
			Contested: []*contender{
				{Name: "DAPPLE (1F1B)", Policy: schedule.Sync, Pipelines: 1, StepS: constantly(0.1), Busy: constantly(0.5), PeakBytes: []int64{1 << 20, 2 << 20}, Predicted: []int64{2 << 20}, PredictedS: 0.1},
				{Name: "latest", Policy: schedule.Latest, Pipelines: 1, StepS: constantly(0.05), Busy: constantly(0.9), PeakBytes: []int64{1 << 10}, Predicted: []int64{1 << 10}, PredictedS: 0.05},
				{Name: "AvgPipe M=4 N=2", Policy: schedule.Elastic, Pipelines: 2, StepS: constantly(0.05), Busy: constantly(0.8), PeakBytes: []int64{2 << 20}, Predicted: []int64{2 << 20}, PredictedS: 0.05},
			},
			Filling: &filling{
				OneF1B: 0, AvgPipe: 2,
				Measured: [2][]curves.Share{
					{{ComputeS: 0.05, UpdateS: 0.01, BubbleS: 0.04}, {ComputeS: 0.07, UpdateS: 0.01, BubbleS: 0.02}},
					{{ComputeS: 0.04, UpdateS: 0.02, ReferenceS: 0.01, BubbleS: 0.01}, {ComputeS: 0.05, UpdateS: 0.02, ReferenceS: 0.01}},
				},
				Simulated: [2][]curves.Share{{{ComputeS: 0.1}}, {{ComputeS: 0.1, BubbleS: 0.1, CoreS: 0.05}}},
			},
			Held: []heldTo{{Rival: 0, AvgPipe: 2}, {Rival: 1, AvgPipe: -1, SmallestBytes: 3 << 10}},
		},
	}
	if err := c.count(); err != nil {
		t.Fatal(err)
	}
	c.learningSection()
	if err := c.timeSections(); err != nil {
		t.Fatal(err)
	}
	c.facts()
	var out bytes.Buffer
	if err := c.study.Markdown(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| sync | 0 | 1.000 | 1.000 | 1.000 | 1.000 | 2 of 2 | 0 | 1.0000 |",
		"| stash | 0 | 1.125 | 1.000 | 1.250 | 1.125 | 2 of 2 | 0 | 1.5000 |",
		"| latest | 0 | 1.000 | 1.000 | 1.000 | – | 1 of 2 | 1 | 1.0000 |",
		"| elastic:2 | 0 | 1.250 | 1.250 | 1.250 | 1.250 | 2 of 2 | 0 | 2.0000 |",
		// One epoch is 100 batches of 100 ms.
		"| DAPPLE (1F1B) | 100 ms | 100 ms | 100 | 1.000 | 10 s | 2.00 MiB | 2.00 MiB | 50.0 % |",
		"| latest | 50 ms | 50 ms | 200 | – | – | 1.00 KiB | 1.00 KiB | 90.0 % |",
		"| AvgPipe M=4 N=2 | 50 ms | 50 ms | 200 | 1.250 | 6.25 s | 2.00 MiB | 2.00 MiB | 80.0 % |",
		// Twice as fast, 1.25 times the epochs.
		"| DAPPLE (1F1B) | M=4 N=2 | 2.00 MiB | 2.00 MiB | 2.000 | 2.000 to 2.000 | 0.800 | 1.600 | – |",
		"| latest | none fits; the smallest needs 3.00 KiB | 1.00 KiB |",
		"| measured | AvgPipe M=4 N=2 | 0 | 80 ms | 40 ms | 20 ms | 10 ms | 10 ms | 0 s | 0 s | 0 s | 87.5 % |",
		"a worker of DAPPLE (1F1B) is idle for 30 ms of a batch's 100 ms (30.0 %), of AvgPipe M=4 N=2 for 5 ms of 80 ms (6.2 %). That fills 83.3 % of the idle time, 25 ms a batch. " +
			"Diluting the weights and the queue cost 10 ms, the reference cost 10 ms; forwards and backwards, whose micro-batches have another size and which share caches and memory with those of another pipeline, save 15 ms. " +
			"So a batch takes 80 ms instead of 100 ms: 1.250 times as fast, where a bubble filled for nothing would give 1.250. Worker 1 computes for 100.0 % of it: with these stages no order is faster.",
		"In rounds in which both had their turn AvgPipe M=4 N=2 is 2.000 times as fast as DAPPLE (1F1B) over a batch (95 % interval 2.000 to 2.000), and 1.600 times to a loss of 2; its fullest worker holds 2.00 MiB instead of 2.00 MiB.",
		"That fills none of it: 150 ms more.", "waiting for a core that workers share is 50 ms, in 1F1B 0 s.",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no row %s", want)
		}
	}
	if t.Failed() {
		t.Log(out.String())
	}
	for _, p := range c.files {
		if err := p.plot.SVG(&out); err != nil {
			t.Errorf("%s: %v", p.name, err)
		}
	}
}

// What has been trained is not trained again, by the same settings alone, however the training was cut.
func TestCurvesGoOn(t *testing.T) {
	clitest.NeedTorch(t)
	native, _ := torch.Find()
	p := &clitest.Program{Dir: t.TempDir(), Native: native, Cache: t.TempDir()}
	draw := func(more string) string {
		t.Helper()
		words := "bench curves --model mlp --data digits --rows 320 --batch 16 --epochs 0.5 --only learn --optimizer sgd --lr 0.1 --metric loss --target 2.2 --out curves " + more
		out, err := p.Command(t, strings.Fields(words)).CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return string(out)
	}
	for _, step := range []struct{ more, want string }{
		{"--seeds 1 --methods sync,stash", "2 trainings, 0 of them from the file"},
		{"--seeds 2 --methods sync,stash", "4 trainings, 2 of them from the file"},
		{"--seeds 2 --methods sync,stash,elastic:2 --at-once 1", "6 trainings, 4 of them from the file"},
		{"--seeds 1 --methods sync --lr 0.2", "1 trainings, 0 of them from the file"},
	} {
		if got := draw(step.more); !strings.Contains(got, step.want) {
			t.Errorf("%s: no %q in\n%s", step.more, step.want, got)
		}
	}
	text, err := os.ReadFile(filepath.Join(p.Dir, "curves", "trainings.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		var one curves.Training
		if err := json.Unmarshal(line, &one); err != nil {
			t.Fatal(err)
		}
		// 320 samples in batches of 16, evaluated 20 times an epoch: after each.
		if n := len(one.Points); n != 10 && one.Method != "elastic:2" {
			t.Errorf("%s, seed %d: %d evaluations in half an epoch; want 10", one.Method, one.Seed, n)
		}
		if last := one.Points[len(one.Points)-1]; last.Epoch != 0.5 || !(last.Loss > 0) {
			t.Errorf("%s, seed %d ends at %+v", one.Method, one.Seed, last)
		}
	}
}

// What filling a bubble could give at most ends at the busiest worker, and at the cores that workers share.
func TestExplainedKnowsWhatFillingCouldGive(t *testing.T) {
	shares := func(busy ...float64) (all []curves.Share) {
		for _, b := range busy {
			all = append(all, curves.Share{ComputeS: b, BubbleS: 100 - b})
		}
		return all
	}
	for _, c := range []struct {
		cores int
		busy  []float64
		want  string
	}{
		{0, []float64{20, 50}, "would give 2.000"},
		{2, []float64{20, 50}, "would give 2.000"},
		{2, []float64{40, 40, 40, 40}, "would give 1.250"}, // 160 on two cores
		{4, []float64{40, 40, 40, 40}, "would give 2.500"},
	} {
		if got := explained("a", "b", [2][]curves.Share{shares(c.busy...), shares(c.busy...)}, c.cores); !strings.Contains(got, c.want) {
			t.Errorf("%v on %d cores: %s; want %q", c.busy, c.cores, got, c.want)
		}
	}
}
