package curves

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/data"
	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/schedule"
)

// halving returns a training whose loss is 4 after half an epoch, then 2, then 1.
func halving(seed uint64, diverged string) Training {
	t := Training{Seed: seed, Diverged: diverged}
	if diverged == "" {
		t.Points = []Point{{Epoch: 0.5, Loss: 4}, {Epoch: 1, Loss: 2}, {Epoch: 1.5, Loss: 1}}
	}
	return t
}

// constantly returns six rounds of a contender, each of s seconds.
func constantly(s float64) []float64 { return slices.Repeat([]float64{s}, 6) }

func TestComparisonTables(t *testing.T) {
	methods, err := ReadMethods([]string{"stash", "latest", "elastic:2"})
	if err != nil {
		t.Fatal(err)
	}
	m, err := model.Build("mlp", nil)
	if err != nil {
		t.Fatal(err)
	}
	half := data.Synthetic(1000, []data.Field{{Name: "input", Shape: []int{64}}})
	slow := Training{Points: []Point{{Epoch: 1, Loss: 3}, {Epoch: 1.25, Loss: 2}}}
	c := &Comparison{
		Setting: &Setting{
			Job: &job.Job{Model: job.Model{Name: "mlp"}, Data: job.Data{Source: "digits"},
				Plan: job.Plan{Batch: 10}, Machine: job.Machine{Workers: 2}}, Model: m, Rows: half.Len(), Tests: half.Len(),
			Methods: methods,
			Base:    &plan.Plan{Stages: []plan.Stage{{}, {FirstLayer: 2}}}, Micros: 2, Seeds: 2, Evals: 2,
		},
		Metric: Loss, Target: 2,
		Trained: map[string][]Training{
			"sync": {halving(1, ""), halving(2, "")}, "stash": {halving(1, ""), slow},
			"latest": {halving(1, ""), halving(2, "at once")}, "elastic:2": {slow, slow},
		},
		Times: &Times{
			Batch: 10, Workers: 2, Cores: 2, Stages: []int{0, 2},
			Contested: []*contender{
				{Name: "DAPPLE (1F1B)", Policy: schedule.Sync, Pipelines: 1, StepS: constantly(0.1), Busy: constantly(0.5),
					PeakBytes: []int64{1 << 20, 2 << 20}, Predicted: []int64{2 << 20}, PredictedS: 0.1},
				{Name: "latest", Policy: schedule.Latest, Pipelines: 1, StepS: constantly(0.05), Busy: constantly(0.9),
					PeakBytes: []int64{1 << 10}, Predicted: []int64{1 << 10}, PredictedS: 0.05},
				{Name: "AvgPipe M=4 N=2", Policy: schedule.Elastic, Pipelines: 2, StepS: constantly(0.05), Busy: constantly(0.8),
					PeakBytes: []int64{2 << 20}, Predicted: []int64{2 << 20}, PredictedS: 0.05},
			},
			Filling: &filling{
				OneF1B: 0, AvgPipe: 2,
				Measured: [2][]Share{
					{{ComputeS: 0.05, UpdateS: 0.01, BubbleS: 0.04}, {ComputeS: 0.07, UpdateS: 0.01, BubbleS: 0.02}},
					{{ComputeS: 0.04, UpdateS: 0.02, ReferenceS: 0.01, BubbleS: 0.01}, {ComputeS: 0.05, UpdateS: 0.02,
						ReferenceS: 0.01}},
				},
				Simulated: [2][]Share{{{ComputeS: 0.1}}, {{ComputeS: 0.1, BubbleS: 0.1, CoreS: 0.05}}},
			},
			Held: []heldTo{{Rival: 0, AvgPipe: 2}, {Rival: 1, AvgPipe: -1, SmallestBytes: 3 << 10}},
		},
	}
	if err := c.Count(); err != nil {
		t.Fatal(err)
	}
	c.learningSection()
	if err := c.timeSections(); err != nil {
		t.Fatal(err)
	}
	c.facts()
	var out bytes.Buffer
	if err := c.Study.Markdown(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| sync | 0 | 1.000 | 1.000 | 1.000 | 1.000 | 2 of 2 | 0 | 1.0000 |",
		"| stash | 0 | 1.125 | 1.000 | 1.250 | 1.125 | 2 of 2 | 0 | 1.5000 |",
		"| latest | 0 | 1.000 | 1.000 | 1.000 | – | 1 of 2 | 1 | 1.0000 |",
		"| elastic:2 | 0 | 1.250 | 1.250 | 1.250 | 1.250 | 2 of 2 | 0 | 2.0000 |",
		// In all rows an epoch has 100 batches. With DAPPLE's 100 ms for a batch it takes 10 s.
		"| DAPPLE (1F1B) | 100 ms | 100 ms | 100 | 1.000 | 10.0 s | 2.00 MiB | 2.00 MiB | 50.0 % |",
		"| latest | 50.0 ms | 50.0 ms | 200 | – | – | 1.00 KiB | 1.00 KiB | 90.0 % |",
		"| AvgPipe M=4 N=2 | 50.0 ms | 50.0 ms | 200 | 1.250 | 6.25 s | 2.00 MiB | 2.00 MiB | 80.0 % |",
		// AvgPipe is twice as fast and needs 1.25 times the epochs: it reaches the target 2/1.25 = 1.6 times as fast.
		"| DAPPLE (1F1B) | M=4 N=2 | 2.00 MiB | 2.00 MiB | 2.000 | 2.000 to 2.000 | 0.800 | 1.600 | – |",
		"| latest | none fits; the smallest needs 3.00 KiB | 1.00 KiB |",
		"| measured | AvgPipe M=4 N=2 | 0 | 80.0 ms | 40.0 ms | 20.0 ms | 10.0 ms | 10.0 ms | 0 s | 0 s | 0 s | 87.5 % |",
		"a worker of DAPPLE (1F1B) is idle for 30.0 ms of a batch's 100 ms (30.0 %), of AvgPipe M=4 N=2 " +
			"for 5.00 ms of 80.0 ms " +
			"(6.2 %). That fills 83.3 % of the idle time, 25.0 ms a batch. " +
			"Diluting the weights and the queue cost 10.0 ms, the reference cost 10.0 ms; forwards and backwards, whose " +
			"micro-batches have another size and which share caches and memory with those of another pipeline, save 15.0 ms. " +
			"So a batch takes 80.0 ms instead of 100 ms: 1.250 times as fast, where a bubble filled for nothing would give " +
			"1.250. Worker 1 computes for 100.0 % of it: with these stages no order is faster.",
		"In rounds in which both had their turn AvgPipe M=4 N=2 is 2.000 times as fast as DAPPLE (1F1B) over a batch (95 % " +
			"interval 2.000 to 2.000), and 1.600 times to a loss of 2; its fullest worker holds 2.00 MiB instead of 2.00 MiB.",
		"That fills none of it: 150 ms more.", "waiting for a core that workers share is 50.0 ms, in 1F1B 0 s.",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no row %s", want)
		}
	}
	if t.Failed() {
		t.Log(out.String())
	}
	for _, p := range c.Files {
		if err := p.Plot.SVG(&out); err != nil {
			t.Errorf("%s: %v", p.Name, err)
		}
	}
}
