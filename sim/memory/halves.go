package memory

import (
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
)

// halves sets the fields for the halves of a stage's backward. `grads` has, by layer, the gradient bytes of the
// parameters, and `kept` the bytes of outputs that segments left.
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

// The functions below return what a layer's halves hold for a moment. If this was not measured, the first half holds as
// much as a whole backward, and the second only the gradients.

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
// the last, the half makes the gradients (`grads`) and frees the bytes that waited for it (`waits`).
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

// pending returns, for each layer of a stage, the bytes held until the weights' half of its backward runs. If they were
// not measured, they are all that the forward saved. They are 0 for a layer without halves.
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

// shares returns the bytes that each layer of a stage adds to what waits for the weights' halves. A layer adds its
// bytes when the backward's first half reaches it. A weights' half may need a part of its layer's input, which is the
// output of an earlier layer. That part is counted at the earlier layer, since it is held until the first half reaches
// that layer anyway.
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
