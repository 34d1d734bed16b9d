package memory

import (
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
)

// halves sets the fields for the two halves of a stage's backward. By layer, `grads` has the bytes of the parameters'
// gradients, and `kept` the bytes of the outputs that a forward left in segments.
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

// The functions below return what a half of a layer's backward holds for a moment. If this was not measured, the first
// half counts like a whole backward, and the second half holds only the gradients.

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

// weightPeak returns the peak of the weights' half of a backward, above what was held before it. The half goes from the
// last layer to the first. At each layer it makes the gradients (`grads`), and then frees what waited for it (`waits`).
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

// pending returns, for each layer of a stage, the bytes that wait for the weights' half of the layer's backward. If
// they were not measured, they are all bytes that the forward saved. A layer without halves has none.
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

// shares divides the bytes that wait for the weights' halves among the layers of a stage. A layer's share begins to
// wait when the backward's first half reaches the layer. Some bytes wait as a part of a later layer's input, which an
// earlier layer made. These bytes belong to the share of the earlier layer, because they are held anyway until the
// first half reaches that layer.
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
