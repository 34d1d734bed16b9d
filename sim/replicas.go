package sim

import (
	"slices"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/sim/memory"
)

// The replicas of a stage sum gradients. If they divide weights or gradients (plan.Shard), they also gather weights and
// scatter gradients. A gather among n replicas moves (n-1)/n of the bytes. A scatter moves as many bytes, and an
// all-reduce twice as many (Rajbhandari et al., ZeRO, SC 2020, section 7). Suppose that gradients are as wide as
// weights, and a step has M micro-batches on each replica. Then a step moves (n-1)/n of the bytes 2 times without
// sharding and with zero1, M+1 times with zero2, and 3M times with zero3. Gradients may be summed during the last
// backward. The weights of zero1 and zero2 are gathered after the update that changes them.

// replicated adds the costs of what a stage's replicas do together. `workers` is the number of workers of the plan.
func (k *StageCost) replicated(p *profile.Profile, c *cluster.Cluster, costs []profile.Cost, pl *plan.Plan, s int,
	device string, workers int) {
	st := pl.Stages[s]
	units := memory.Units(p, st)
	var weights, gradients int64
	for _, u := range units {
		weights, gradients = weights+u.WeightBytes, gradients+u.GradientBytes
	}
	together := slices.Sorted(slices.Values(st.Devices))
	gather := func(bytes int64) float64 { return c.CollectiveS(together, float64(bytes), cluster.Gather) }
	overlap := 1.0
	if kernels := c.DeviceTypes[device].Kernels; kernels != nil {
		overlap = kernels.Overlap
		k.Unhidden = 1 - overlap
	}
	switch pl.Shard {
	case plan.ShardNothing:
		k.AllReduceS = c.AllReduceS(st.Devices, k.ParameterBytes)
	case plan.ZeRO1:
		k.AllReduceS, k.GatherS = gather(gradients), gather(weights)
	case plan.ZeRO2: // the scatter has already summed the gradients
		k.GatherS = gather(weights)
	}
	if pl.Shard.States() {
		for _, t := range []*float64{&k.UpdateS, &k.PulledUpdateS, &k.ReferenceUpdateS} {
			*t /= float64(len(st.Devices))
		}
	}
	if pl.Shard.Gradients() {
		k.gathered(units, costs, againOf(p, st), pl.Shard, gather, overlap)
		return
	}
	if pl.Gradients == plan.GradientsBehind {
		return
	}
	bucket := pl.Gradients.BucketBytes()
	if k.whole, k.halves = summedBeside(p, c, costs, st, workers); bucket > 0 {
		k.Shares, k.WeightShares = k.whole.buckets(bucket), k.halves.buckets(bucket)
		k.whole, k.halves = layerwise{}, layerwise{} // the plan's bucket size stays, whatever Options.BucketBytes says
		return
	}
	k.Shares, k.WeightShares = k.whole.buckets(schedule.BucketBytes), k.halves.buckets(schedule.BucketBytes)
}

// gathered lengthens forwards, evaluations and backwards by the collectives of zero2 and zero3 that they wait for. In
// the backward, a unit scatters its gradients. With zero3 it also gathers its weights, in the forward and in the
// backward. A unit's computation and its collectives run at the same time, so the unit takes the longer one of the two.
// The part of the shorter one that does not overlap is added.
func (k *StageCost) gathered(units []memory.Unit, costs []profile.Cost, again []bool, shard plan.Shard,
	gather func(bytes int64) float64, overlap float64) {
	more := func(computesS, collectiveS float64) float64 {
		return max(computesS, collectiveS) + (1-overlap)*min(computesS, collectiveS) - computesS
	}
	at := 0
	for _, u := range units {
		forward, backward := 0.0, 0.0
		for l := u.From; l < u.To; l++ {
			forward, backward = forward+costs[l].ForwardS, backward+costs[l].BackwardS
			if again[at] {
				backward += costs[l].ForwardS
			}
			at++
		}
		before, behind := 0.0, gather(u.GradientBytes)
		if shard.Weights() {
			before = gather(u.WeightBytes)
			behind += before
		}
		k.ForwardS += more(forward, before)
		k.EvaluateS += more(forward, before)
		k.BackwardS, k.InputS = k.BackwardS+more(backward, behind), k.InputS+more(backward, behind)
	}
}

// againOf reports for each layer of a stage whether its backward recomputes the layer.
func againOf(p *profile.Profile, st plan.Stage) []bool {
	out := make([]bool, st.LastLayer-st.FirstLayer+1)
	name := func(at int) string { return p.Layers[st.FirstLayer+at].Name }
	for _, run := range st.Recompute.Segments(len(out), name) {
		for at := run[0]; at < run[1]; at++ {
			out[at] = true
		}
	}
	return out
}

// between returns the time of a message between two devices. Each device of a tensor-parallel group sends its part
// of the data that all of them have. The receiving group then gathers the parts, unless it uses sequence parallelism
// (Narayanan et al., SC 2021, section 4.1).
func between(c *cluster.Cluster, from, to int, bytes int64) (latencyS, linkS float64) {
	latencyS, linkS = c.Transfer(from, to, bytes)
	if g := c.DeviceTypes[c.Devices[to]].Group; g != nil && !g.SequenceParallel && g.BandwidthBytesPerSecond > 0 {
		linkS += g.RingS(float64(bytes), 1)
	}
	return latencyS, linkS
}
