// Package memory computes the bytes that a stage holds. sim and the planners with exact memory counts use it.
//
// In: a profile's layers, their costs on a device, and the stage. Out: Held, computed layer by layer by the rules of
// the runtime, and Sums, a closed form for searches that compare thousands of stages. The package has no state and
// knows neither the order of instructions nor a clock. Nothing is refused; the packages that make the inputs check
// them. The papers' own memory rules are in their planners.
package memory

import (
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
)

// Held is what one replica of a stage holds, in bytes as an allocator counts them. Some numbers are for one micro-batch
// or its slice, the others for what is held throughout. There is a number for each reason why bytes are held, and for
// the peak of each instruction.
type Held struct {
	ActivationBytes int64 // sent to the next stage for each micro-batch
	NoGradientBytes int64 // the part of ActivationBytes for which no gradient comes back
	SavedBytes      int64 // held from forward to backward, in addition to the input received
	InputBytes      int64 // the input received, held from forward to backward
	PendingBytes    int64 // held from the first half of a split backward to the second
	FixedBytes      int64 // parameters, buffers, optimizer states and frozen values
	StateBytes      int64 // the optimizer's part of FixedBytes
	FrozenBytes     int64 // the part of FixedBytes that never changes: no update keeps a copy of it
	WeightBytes     int64 // the part of FixedBytes that are parameters: the size of a version of the weights
	ParameterBytes  int64 // gradients of parameters: what an all-reduce moves
	ReferenceBytes  int64 // parameters and buffers that change: the size of a reference, and of a step in its queue

	// WholeBytes is the size of the gradients that a split backward's first half makes, because their layers have no
	// halves.
	WholeBytes int64

	// The peak inside each instruction, above what was held before it. The first backward after an update makes the
	// gradients layer by layer: its peak is FirstBackwardPeak. BackwardPeak is the peak of later backwards, which add
	// to these gradients. In the same way, FirstInputPeak and InputPeak are peaks of a split backward's first half, and
	// FirstWeightPeak and WeightPeak of its second.
	ForwardPeak, EvaluatePeak, UpdatePeak int64
	FirstBackwardPeak, BackwardPeak       int64
	FirstInputPeak, InputPeak             int64
	FirstWeightPeak, WeightPeak           int64
	// LayerBytes is the most bytes of parameters that one layer has. With several pipelines, an update keeps a copy of
	// one layer's parameters. An update that may be rolled back keeps one layer's gradients.
	LayerBytes int64
}

// Of returns what a stage holds. `costs` are those of all layers on its device and at its rows. The rules:
//
//   - From the forward to the backward a stage holds the model inputs that it reads, only once even if several of its
//     layers read them.
//   - A forward keeps what every layer saved, including its output. What crosses the cut after the stage is copied for
//     the receiver.
//   - Under recompute a forward frees a layer's output after its last reader, unless a later segment of the stage reads
//     it. The backward takes the segments from the last to the first. It frees the outputs that it is about to make
//     again, and runs the segment's forward again with everything kept.
//   - A backward goes from the last layer to the first. A layer's gradients exist from the first reader that made them
//     until the layer is done; what the layer saved is freed with them.
//   - A layer has no backward if neither it nor any layer before it learns. Its output has no gradient, and is kept
//     only if a layer with a backward reads it. A segment of such layers is not recomputed.
//   - The first backward after an update makes the gradients of parameters layer by layer. In a split backward the
//     first half makes those of the layers that cannot be split, the second half the rest. Two things wait for the
//     second half: the gradient that a layer received and what its forward saved for it. They are freed layer by layer
//     while that half runs.
//   - An optimizer with two or more states needs one more tensor of a layer's size for a moment.
//   - An update that is validated later keeps the old parameters, states and buffers, and the gradients, until then.
//   - An older version is the parameters in the precision of training, without the optimizer's 32-bit copies.
//   - Frozen values exist once in each stage that reads them, without gradients, states or older versions.
//   - If the replicas' sum continues during the next minibatch, there are two sets of gradients.
//   - If replicas divide something, each of them holds its part throughout, rounded up. Gradients of a unit (Units) are
//     whole until they are scattered. The weights of a unit are whole while the unit in front and the unit itself
//     compute.
func Of(p *profile.Profile, costs []profile.Cost, st plan.Stage, shard plan.Shard) (out Held) {
	part := divided{shard, max(1, len(st.Devices))}
	if st.FirstLayer > 0 {
		out.InputBytes = p.CutBytes(costs, st.FirstLayer-1)
	}
	if st.LastLayer < len(p.Layers)-1 {
		out.ActivationBytes = p.CutBytes(costs, st.LastLayer)
		out.NoGradientBytes = out.ActivationBytes - p.GradientBytes(costs, st.LastLayer)
	}
	copied := map[int]bool{}    // layers outside of the stage whose parameters the stage has copied
	frozen := map[string]bool{} // names in FrozenShared that are counted already
	grads := make([]int64, st.LastLayer-st.FirstLayer+1)
	for l := st.FirstLayer; l <= st.LastLayer; l++ {
		layer := &p.Layers[l]
		own := layer.ParameterBytes
		if t := layer.TiedTo; t >= 0 && (t < st.FirstLayer || t > st.LastLayer) && !copied[t] {
			copied[t] = true
			own += layer.TiedBytes
		}
		out.FrozenBytes += layer.FrozenBytes
		for _, shared := range layer.FrozenShared {
			if !frozen[shared.Name] {
				frozen[shared.Name] = true
				out.FrozenBytes += shared.Bytes
			}
		}
		states := part.states(p.StateBytes(own))
		out.StateBytes += states
		out.WeightBytes += part.weights(own)
		out.FixedBytes += part.weights(own) + states + layer.BufferBytes
		out.ReferenceBytes += own + layer.BufferBytes
		out.LayerBytes = max(out.LayerBytes, part.states(own))
		grads[l-st.FirstLayer] = part.gradients(p.SummedBytes(layer.ParameterBytes + layer.TiedBytes))
		out.ParameterBytes += grads[l-st.FirstLayer]
		if p.OptimizerStates >= 2 {
			out.UpdatePeak = max(out.UpdatePeak, part.states(own))
		}
	}
	out.FixedBytes += out.FrozenBytes
	again := segmentsOf(p, st)
	saved, kept := again.left(p, costs, st)
	out.EvaluatePeak, _ = passPeak(p, costs, st, nil)
	out.BackwardPeak = backwardPeak(p, costs, st, later, nil, kept)
	out.FirstBackwardPeak = backwardPeak(p, costs, st, first, grads, kept)
	halves(&out, p, costs, st, grads, kept)
	if len(again.runs) > 0 {
		for at := range saved {
			saved[at] += kept[at]
		}
		out.ForwardPeak, out.SavedBytes = passPeak(p, costs, st, saved)
	} else {
		out.ForwardPeak, out.SavedBytes = forward(p, costs, st, out.ActivationBytes)
	}
	part.whole(&out, Units(p, st))
	fed := feedBytes(p, costs, st, nil)
	out.ForwardPeak += fed
	out.EvaluatePeak += fed
	out.SavedBytes += feedBytes(p, costs, st, again.recorded(p, st))
	return out
}

// recording returns the peak of a forward that keeps everything, and the bytes it leaves.
func recording(costs []profile.Cost, first, last int) (peak, kept int64) {
	for l := first; l <= last; l++ {
		peak = max(peak, kept+costs[l].ForwardPeakBytes)
		kept += costs[l].SavedBytes
	}
	return peak, kept
}

// feedBytes returns the bytes of the model inputs that a stage reads for one micro-batch. If `by` is not nil, it counts
// only the inputs of layers for which `by` is true.
func feedBytes(p *profile.Profile, costs []profile.Cost, st plan.Stage, by []bool) int64 {
	fed := map[string]int64{}
	for l := st.FirstLayer; l <= st.LastLayer; l++ {
		if by != nil && !by[l-st.FirstLayer] {
			continue
		}
		for _, f := range p.Layers[l].Feeds {
			fed[f.Name] = f.BytesPerSample * int64(costs[l].MicroBatch)
		}
	}
	bytes := int64(0)
	for _, n := range fed {
		bytes += n
	}
	return bytes
}

// backwardPeak returns the peak of a backward, above what was held before it. `inside` returns what the backward of one
// layer holds for a moment. `leaves` has, by layer, the bytes that stay when the layer is done; nil means none. They
// are its parameters' gradients, if this backward makes them, and in a first half also what the second half needs.
// `kept` has, by layer, the bytes of outputs that the forward left in segments.
func backwardPeak(p *profile.Profile, costs []profile.Cost, st plan.Stage, inside func(*profile.Cost) int64, leaves,
	kept []int64) int64 {
	held, peak := int64(0), int64(0)
	made := given(p, st) // layers, of the stage or before it, whose output has a gradient here
	again := segmentsOf(p, st)
	there := again.keeps(p, st)
	for l := st.LastLayer; l >= st.FirstLayer; l-- {
		at := l - st.FirstLayer
		if run := again.run(at); again.of[at] >= 0 && run[1] == at+1 { // the last layer of a segment
			for i := run[0]; i <= at; i++ {
				held -= kept[i]
			}
			if there[at] {
				most, left := recording(costs, st.FirstLayer+run[0], l)
				peak = max(peak, held+most)
				held += left
			}
		}
		peak = max(peak, held+inside(&costs[l]))
		if there[at] {
			held -= costs[l].SavedBytes
		}
		if made[l] {
			held -= costs[l].OutputBytes
		}
		for _, from := range p.Layers[l].From {
			if from >= 0 && !made[from] && !p.Layers[from].NoGradient {
				made[from] = true
				held += costs[from].OutputBytes
			}
		}
		if leaves != nil {
			held += leaves[at]
		}
		peak = max(peak, held)
	}
	return peak
}

// later returns what the backward of one layer holds for a moment when it adds to existing gradients. `first` is for a
// backward that makes the gradients.
func later(c *profile.Cost) int64 { return c.BackwardPeakBytes }

func first(c *profile.Cost) int64 {
	if c.FirstBackwardPeakBytes > 0 {
		return c.FirstBackwardPeakBytes
	}
	return c.BackwardPeakBytes
}

// given returns the layers of a stage whose output a later stage reads, if that output has a gradient. Such a gradient
// exists when the stage's backward begins, and is freed after the layer's own backward.
func given(p *profile.Profile, st plan.Stage) map[int]bool {
	out := map[int]bool{}
	for _, l := range p.Layers[st.LastLayer+1:] {
		for _, from := range l.From {
			if from >= st.FirstLayer && from <= st.LastLayer && !p.Layers[from].NoGradient {
				out[from] = true
			}
		}
	}
	return out
}

// passPeak returns the peak of a forward without autograd, and the bytes it leaves. `kept` has the bytes of each layer
// that stay until the backward; nil means none.
func passPeak(p *profile.Profile, costs []profile.Cost, st plan.Stage, kept []int64) (peak, left int64) {
	last := map[int]int{} // the last layer that reads each layer's output
	for l := st.FirstLayer; l < len(p.Layers); l++ {
		for _, from := range p.Layers[l].From {
			last[from] = l
		}
	}
	ends := make([]int64, len(p.Layers)) // by layer: bytes freed after the layer has run
	for l := st.FirstLayer; l <= st.LastLayer; l++ {
		if kept != nil && kept[l-st.FirstLayer] > 0 {
			left += kept[l-st.FirstLayer]
			continue
		}
		ends[max(l, last[l])] += costs[l].OutputBytes
	}
	held := int64(0)
	for l := st.FirstLayer; l <= st.LastLayer; l++ {
		// What the layer would save exists only while it runs, at its peak.
		peak = max(peak, held+costs[l].ForwardPeakBytes)
		held += costs[l].OutputBytes - ends[l]
		if kept != nil && kept[l-st.FirstLayer] > costs[l].OutputBytes { // the layer keeps more than its output
			held += kept[l-st.FirstLayer] - costs[l].OutputBytes
		}
	}
	return peak, left
}
