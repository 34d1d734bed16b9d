package memory

import (
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
)

// halves works out what the halves of a stage's backward hold. grads is by layer the gradients of its
// parameters, kept the outputs that segments left.
func halves(out *Held, p *profile.Profile, costs []profile.Cost, st plan.Stage, grads, kept []int64) {
	waits := pending(costs, st)
	for _, n := range waits {
		out.PendingBytes += n
	}
	leaves := shares(p, costs, st, waits)
	out.InputPeak = backwardPeak(p, costs, st, input, leaves, kept)
	for at, n := range grads {
		if costs[st.FirstLayer+at].BackwardWeightS == nil {
			leaves[at] += n
			out.WholeBytes += n
		}
	}
	out.FirstInputPeak = backwardPeak(p, costs, st, firstInput, leaves, kept)
	out.WeightPeak = weightPeak(costs, st, weight, waits, make([]int64, len(grads)))
	out.FirstWeightPeak = weightPeak(costs, st, firstWeight, waits, grads)
}

// What a layer's halves hold for a moment. Where nobody has measured it the first half is taken to hold what
// a whole backward does, and the second nothing beside the gradients.

func input(c *profile.Cost) int64 {
	if c.HalvesPeakBytes != nil {
		return c.HalvesPeakBytes.Input
	}
	return c.BackwardPeakBytes
}

func firstInput(c *profile.Cost) int64 {
	if c.HalvesPeakBytes != nil {
		return c.HalvesPeakBytes.FirstInput
	}
	if c.BackwardWeightS == nil {
		return first(c)
	}
	return c.BackwardPeakBytes
}

func weight(c *profile.Cost) int64 {
	if c.HalvesPeakBytes != nil {
		return c.HalvesPeakBytes.Weight
	}
	return 0
}

func firstWeight(c *profile.Cost) int64 {
	if c.HalvesPeakBytes != nil {
		return c.HalvesPeakBytes.FirstWeight
	}
	return 0
}

// weightPeak is the most held inside the weights' half of a backward above what was held before it: layer by
// layer from the last it makes gradients, those of grads, and frees what waited for them.
func weightPeak(costs []profile.Cost, st plan.Stage, inside func(*profile.Cost) int64, waits, grads []int64) int64 {
	held, peak := int64(0), int64(0)
	for l := st.LastLayer; l >= st.FirstLayer; l-- {
		c, at := &costs[l], l-st.FirstLayer
		if c.BackwardWeightS == nil {
			continue
		}
		peak = max(peak, held+inside(c), held+grads[at])
		held += grads[at] - waits[at]
	}
	return peak
}

// pending is, by layer from the stage's first, what the weights' half of its backward keeps
// until it runs: where nobody has measured it all that the forward saved, and nothing of a
// layer without halves.
func pending(costs []profile.Cost, st plan.Stage) []int64 {
	out := make([]int64, st.LastLayer-st.FirstLayer+1)
	for i := range out {
		c := &costs[st.FirstLayer+i]
		switch {
		case c.BackwardWeightS == nil:
		case c.PendingBytes != nil:
			out[i] = *c.PendingBytes
		default:
			out[i] = c.SavedBytes
		}
	}
	return out
}

// shares is what each layer of a stage adds, in bytes, to what waits for the weights' halves. It adds that while the
// backward's first half goes down the layers. What a layer's half needs of its input is the output of a layer in
// front and counted there until that one is done.
func shares(p *profile.Profile, costs []profile.Cost, st plan.Stage, waits []int64) []int64 {
	out := make([]int64, len(waits))
	for l := st.LastLayer; l >= st.FirstLayer; l-- {
		at, nearest, input := l-st.FirstLayer, -1, int64(0)
		for _, from := range p.Layers[l].From {
			if from >= st.FirstLayer {
				nearest = max(nearest, from)
				input += costs[from].OutputBytes
			}
		}
		if n := costs[l].PendingInputBytes; n != nil {
			input = *n
		}
		out[at] += waits[at]
		if nearest >= 0 {
			input = min(waits[at], input)
			out[at] -= input
			out[nearest-st.FirstLayer] += input
		}
	}
	return out
}
