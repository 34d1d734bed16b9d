package avgpipe

import (
	"fmt"

	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/sim"
	"github.com/millrace-ml/millrace/tune/predict"
)

// sideBySide simulates a setting whose pipelines move through the devices in lockstep (see Workload.SideBySide). It
// simulates one pipeline in which each computation represents the same computation of all pipelines. A layer of T
// seconds at utilisation phi takes max(1, N phi) T for N pipelines, which is equation 2 of AvgPipe layer by layer. Each
// message is N times as large. Updates run one after the other, because they are limited by the memory's bandwidth. The
// Summary is for an iteration. Pipelines in lockstep do not fill each other's bubbles, so if bubbles are large, taking
// turns is faster.
func (w *Workload) sideBySide(p *Pipelined) (sim.Summary, error) {
	n, own := p.At.Pipelines, w.profileOf(p.At.Pipelines)
	one := &Pipelined{Scored: Scored{At: Degrees{p.At.MicroBatches, 1}}}
	one.Plan = w.plan(one.At, 0)
	for i := range one.Plan.Stages {
		one.Plan.Stages[i].Warmup = p.Plan.Stages[i].Warmup
	}
	costs, err := sim.CostsOf(own, w.Cluster, one.Plan)
	if err != nil {
		return sim.Summary{}, fmt.Errorf("tune: %s: %w", p.At, err)
	}
	alone := costs.Transfer
	costs.Transfer = func(from, to int, bytes int64) (latencyS, linkS float64) {
		return alone(from, to, int64(n)*bytes)
	}
	for s, st := range one.Plan.Stages {
		forward, backward, err := own.Stretches(w.Cluster.Devices[st.Devices[0]], st.FirstLayer, st.LastLayer,
			one.Plan.MicroBatch)
		if err != nil {
			return sim.Summary{}, fmt.Errorf("tune: %s: %w", p.At, err)
		}
		c := &costs.Stages[s][0]
		c.ForwardS, c.BackwardS = c.ForwardS+longer(forward, n), c.BackwardS+longer(backward, n)
		c.UpdateS = float64(n)*c.PulledUpdateS + c.ReferenceUpdateS
	}
	program, err := w.Program(one, predict.Steps(costs))
	if err != nil {
		return sim.Summary{}, err
	}
	_, sum, err := sim.Run(program, costs, sim.Options{Vary: costs.Noise.Vary()})
	return sum, err
}

// longer returns the seconds that the layers take if n pipelines run at the same time, minus the seconds that one
// pipeline's layers take.
func longer(layers []profile.Stretch, n int) float64 {
	sum := 0.0
	for _, l := range layers {
		sum += max(0, float64(n)*l.PeakS-l.NowS)
	}
	return sum
}
