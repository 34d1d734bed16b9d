package report

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/trace"
	"github.com/millrace-ml/millrace/trace/tracetest"
)

// sample returns a report's inputs: a simulated pipeline, and 120 noisy steps of the same pipeline.
func sample(p tracetest.Pipeline) Inputs {
	simulated := p.Timeline()
	p.Source, p.Steps, p.Noise, p.Seed, p.ActivationBytes = "run", 120, .03, 7, p.ActivationBytes*103/100
	measured := p.Timeline()
	n := len(p.ForwardS)
	pl := &plan.Plan{Version: plan.Version, Model: "gpt", Replication: "split", MicroBatch: 4,
		MicroBatches: p.MicroBatches,
		Schedule:     "1f1b", Weights: "sync", Planner: "balance",
		LowerBound: &plan.LowerBound{StepS: .93 * simulated.Steps[0].EndS, Gap: .0753},
		Why: []string{fmt.Sprintf("1f1b over %d stages takes 812 ms a step by simulation; data parallelism over %d workers "+
			"871 ms, one worker 1.51 s.", n, n),
			"Recompute is off everywhere: the highest peak is 134 MiB and no limit was set."}}
	const layers = 16
	var names []string
	for i := range layers {
		names = append(names, fmt.Sprintf("block.%d", i))
	}
	names[0], names[layers-1] = "embedding", "loss"
	for s := range n {
		pl.Stages = append(pl.Stages, plan.Stage{FirstLayer: s * layers / n, LastLayer: (s+1)*layers/n - 1, Devices: []int{s},
			Warmup: n - s})
	}
	numbers := NumbersOf(simulated, 0, pl.Batch())
	pl.Predicted = &plan.Predicted{StepS: numbers.StepS, SamplesPerSecond: numbers.SamplesPerSecond,
		Bubble:      numbers.Bubble,
		MemoryBytes: numbers.PeakBytes, BusyS: numbers.BusyS, PeakActivations: numbers.PeakActivations}
	return Inputs{Title: "runs/gpt", Plan: pl, LayerNames: names, Simulated: simulated, Measured: measured,
		Facts: []Fact{{"engine", "torch 1.13.1"}, {"cores", "2, one thread each worker"}, {"seed", "1"}}}
}

// artifact keeps what a test drew, if "go test -artifacts" asks for it.
func artifact(t *testing.T, name string, content []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(t.ArtifactDir(), name), content, 0o644); err != nil {
		t.Fatal(err)
	}
}

// many returns a Timeline of about n events, for tests of speed. It has 20 events for each micro-batch.
func many(n int) *trace.Timeline {
	p := tracetest.FourStages()
	p.MicroBatches = n / 20
	return p.Timeline()
}
