package sim

import (
	"slices"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/schedule"
)

// A stage's replicas begin to sum their gradients during their last backward before the sum. As in package run, layers
// are summed from the last to the first in buckets, while the backward continues with the layers in front (PipeDream
// §4).

// Share is a part of a stage's gradients that its replicas sum at once.
type Share struct {
	At   float64 // the fraction of the backward's time after which the gradients exist
	Part float64 // the fraction of the stage's gradients, and of AllReduceS
}

// layerwise holds, for each layer of a stage, the time of its backward and the bytes of its gradients. They determine
// when the gradients exist.
type layerwise struct {
	took  []float64
	bytes []int64
}

// summedBeside returns the times and gradient bytes of a stage's layers. `whole` is for the stage's last whole
// backward, and `halves` for its last weights' half. From these, the method buckets computes which gradients are summed
// during that backward. If workers are threads that keep all cores busy, sums would slow down the workers' own
// backwards. In that case summedBeside returns nothing, and all gradients are summed after the backward.
func summedBeside(p *profile.Profile, c *cluster.Cluster, costs []profile.Cost, st plan.Stage,
	workers int) (whole, halves layerwise) {
	if len(st.Devices) < 2 || c.Crowded(workers) {
		return whole, halves
	}
	n := st.LastLayer - st.FirstLayer + 1
	backward, weights, bytes := make([]float64, n), make([]float64, n), make([]int64, n)
	for at := range n {
		l := st.FirstLayer + at
		backward[at] += costs[l].BackwardS
		if costs[l].BackwardWeightS != nil {
			weights[at] = *costs[l].BackwardWeightS
		}
		bytes[at] = p.SummedBytes(p.Layers[l].ParameterBytes + p.Layers[l].TiedBytes)
	}
	name := func(at int) string { return p.Layers[st.FirstLayer+at].Name }
	for _, run := range st.Recompute.Segments(n, name) { // each segment runs forward again before its backward
		for at := run[0]; at < run[1]; at++ {
			backward[run[1]-1] += costs[st.FirstLayer+at].ForwardS
		}
	}
	return layerwise{backward, bytes}, layerwise{weights, bytes}
}

// buckets collects gradients in buckets of at least `bucket` bytes, from the last layer to the first. Gradients that
// fill no bucket are in no Share.
func (g layerwise) buckets(bucket int64) []Share {
	time, all := 0.0, int64(0)
	for at := range g.took {
		time, all = time+g.took[at], all+g.bytes[at]
	}
	if time == 0 {
		return nil
	}
	var out []Share
	passed, open := 0.0, int64(0)
	for at := len(g.took) - 1; at >= 0; at-- {
		passed += g.took[at]
		if open += g.bytes[at]; open >= bucket {
			out = append(out, Share{At: min(1, passed/time), Part: float64(open) / float64(all)})
			open = 0
		}
	}
	return out
}

// inBuckets returns the costs with gradients summed in buckets of at least this many bytes.
func (c Costs) inBuckets(bytes int64) Costs {
	stages := make([][]StageCost, len(c.Stages))
	for s, replicas := range c.Stages {
		stages[s] = slices.Clone(replicas)
		for r := range stages[s] {
			if k := &stages[s][r]; k.whole.took != nil {
				k.Shares, k.WeightShares = k.whole.buckets(bytes), k.halves.buckets(bytes)
			}
		}
	}
	c.Stages = stages
	return c
}

// closing is the last backward, or weights' half, of a replica whose gradients are not summed yet.
type closing struct {
	kind       schedule.Kind // 0 means none
	start, end float64
}

// closes notes that a computation has ended, and remembers it if it was a backward or a weights' half.
func (a *sums) closes(w int, in schedule.Instruction, start, end float64) {
	a.devices[w].computes(start, end)
	if in.Kind == schedule.B || in.Kind == schedule.W {
		a.closings[a.terms.place(in)] = closing{in.Kind, start, end}
	}
}

// addUp returns when the replicas' sum of gradients begins and ends, once all members have joined. A worker takes part
// in one sum at a time. addUp also notes the times in which the sum slows down the members' computations.
func (a *sums) addUp(g *gathering, now float64) (start, end float64) {
	for _, w := range g.workers {
		end = max(end, a.reducing[w])
	}
	start = -1
	var taken []interval
	add := func(ready, part float64) {
		if start < 0 || ready > end {
			end = max(end, ready)
			taken = append(taken, interval{end, end})
		}
		if start < 0 {
			start = end
		}
		end += part * g.takes
		taken[len(taken)-1].to = end
	}
	left := 1.0
	first := a.sharesOf(g.members[0])
	ready := make([]float64, len(first)) // by share: when the last member has its gradients
	for k, m := range g.members {
		last, there := a.closings[a.terms.place(m)], a.sharesOf(m)
		for i := range ready {
			if i < len(there) {
				ready[i] = max(ready[i], last.start+there[i].At*(last.end-last.start))
			} else { // this member has no such gradients and adds zeros
				ready[i] = max(ready[i], g.issuedS[k])
			}
		}
	}
	for i, share := range first {
		add(ready[i], share.Part)
		left -= share.Part
	}
	if left < 1e-12 {
		left = 0
	}
	add(now, left)
	for k, m := range g.members {
		w, last := g.workers[k], &a.closings[a.terms.place(m)]
		a.devices[w].sum(taken, interval{last.start, last.end}, a.terms.of(m).Unhidden)
		a.reducing[w], *last = end, closing{}
	}
	return start, end
}

// sharesOf returns the gradients that a replica can sum during its latest backward.
func (a *sums) sharesOf(m schedule.Instruction) []Share {
	c := a.terms.of(m)
	switch a.closings[a.terms.place(m)].kind {
	case schedule.B:
		return c.Shares
	case schedule.W:
		return c.WeightShares
	}
	return nil
}
