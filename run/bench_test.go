package run

import (
	"slices"
	"testing"

	"github.com/millrace-ml/millrace/stage/optim"
)

// BenchmarkGPTTwoWorkers trains the model of the speed-up claim: 6 M parameters, 16 micro-batches of 4, on two workers.
// It reports the ratio of a bound to the measured step time. The bound is the computing time of the slower worker, and
// the time for which this worker must wait while the pipeline fills and drains. Both are computed from the times of the
// step's instructions.
func BenchmarkGPTTwoWorkers(b *testing.B) {
	e := torchEngine(b)
	m := build(b, "gpt", map[string]any{"layers": 8, "width": 256, "heads": 8, "context": 128, "vocabulary": 256})
	c := basic(b, e, m, planOf(m, []int{8}, 4, 16, "1f1b"), 256, max(b.N, 4))
	c.Train.Optimizer = optim.Settings{Kind: optim.AdamW, Beta1: 0.9, Beta2: 0.99, Epsilon: 1e-8, WeightDecay: 0.1}
	c.Train.Rate.Base = 1e-3
	c.Keep.Weights, c.Keep.Steps = false, 1<<20
	b.ResetTimer()
	res := train(b, c)
	var ratios, seconds []float64
	for _, mark := range res.Timeline.Steps[1:] {
		sum := map[string]float64{}
		for _, ev := range res.Timeline.Events {
			if ev.Step == mark.Step {
				sum[string(rune('0'+ev.Worker))+ev.Kind] += ev.EndS - ev.StartS
			}
		}
		m := 16.0
		// Worker 0 computes all of its own instructions, and waits once for a forward and a backward of worker 1.
		own := sum["0F"] + sum["0B"] + sum["0U"] + (sum["1F"]+sum["1B"])/m
		other := sum["0F"]/m + sum["1F"] + sum["1B"] + max(sum["1U"], sum["0B"]/m+sum["0U"])
		step := mark.EndS - mark.StartS
		ratios = append(ratios, max(own, other)/step)
		seconds = append(seconds, step)
	}
	slices.Sort(ratios)
	slices.Sort(seconds)
	b.ReportMetric(ratios[len(ratios)/2], "of-bound")
	b.ReportMetric(seconds[len(seconds)/2], "s/step")
	b.ReportMetric(float64(c.Plan.Batch()*128)/seconds[len(seconds)/2], "tokens/s")
}
