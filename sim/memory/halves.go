package memory

import (
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
)

// halves sets the fields for the halves of a stage's backward. grads is the gradient bytes of each layer's
// parameters, and kept the outputs that segments left, by layer.
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

// What a layer's halves hold for a moment. If it was not measured, the first half holds as much as a whole backward,
// and the second only the gradients.

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

// weightPeak returns the peak of the weights' half of a backward, above what was held before it. Layer by layer from
// the last, it makes the gradients grads and frees what waited for them.
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

// pending returns what the weights' half of a backward keeps for each layer until it runs, by layer from the stage's
// first. If it was not measured, it is all that the forward saved. It is 0 for a layer without halves.
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

// shares returns the bytes that each layer of a stage adds to what waits for the weights' halves. A layer adds them
// when the backward's first half reaches it. The part of its input that its weights' half needs is the output of an
// earlier layer. Those bytes are counted at that layer, since they are held until its turn anyway.
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
