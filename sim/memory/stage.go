// Package memory says what a stage holds: sim and the planners that count honestly ask it alone.
//
// In: a profile's layers, what they cost on a device, and the stage. Out: Held, by the rules of the runtime,
// layer by layer; and Sums, the closed form of it by which searches compare thousands of stages. It is pure,
// and knows values only: neither the order of instructions nor a clock. Nothing is refused: what the numbers
// mean, their rooms check. The papers' own rules for memory are their planners'.
package memory

import (
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
)

// Held is what one replica of a stage holds for one micro-batch, or for its slice of one, and throughout; in
// bytes as an allocator counts them. It has a number for each reason why bytes are held, and for each
// instruction's most.
type Held struct {
	ActivationBytes int64 // sent to the next stage for each micro-batch
	NoGradientBytes int64 // of ActivationBytes, those that no gradient comes back for
	SavedBytes      int64 // held from forward to backward beside what was received
	InputBytes      int64 // the input received, held as long
	PendingBytes    int64 // held from the first half of a split backward to the second
	FixedBytes      int64 // parameters, buffers, optimizer states, and what is frozen
	StateBytes      int64 // of FixedBytes, the optimizer's
	FrozenBytes     int64 // of FixedBytes, what nobody changes: no update keeps a copy of it
	ParameterBytes  int64 // gradients of parameters: what an all-reduce moves
	ReferenceBytes  int64 // parameters and buffers that change: of a pipelines' reference, and of a step in its queue

	// WholeBytes is those of the gradients that a split backward's first half makes, because their layers
	// have no halves.
	WholeBytes int64

	// The most held at once inside an instruction, above what was held before it.
	// FirstBackwardPeak is of the first backward since an update, which makes the gradients
	// as it goes; BackwardPeak of those that find them there. So are FirstInputPeak and InputPeak
	// of a split backward's first half, FirstWeightPeak and WeightPeak of its second.
	ForwardPeak, EvaluatePeak, UpdatePeak int64
	FirstBackwardPeak, BackwardPeak       int64
	FirstInputPeak, InputPeak             int64
	FirstWeightPeak, WeightPeak           int64
	// LayerBytes is the bytes of the largest layer's parameters. A pipeline of several keeps a copy of them while it
	// updates them, and an update that may be rolled back keeps one of their gradients.
	LayerBytes int64
}

// Of is what a stage holds, costs being those of all layers on its device and at its rows:
//
//   - the model inputs that a stage reads are there from the forward to the backward, once
//     however many of its layers read them;
//   - a forward keeps what every layer saved, its output included; what crosses the cut
//     behind is copied for the receiver;
//   - under recompute a forward frees a layer's output after its last reader, unless a later
//     segment of the stage reads it: the backward takes segment by segment, from the last, frees
//     what it is about to make again and runs its forward again with everything kept;
//   - a backward walks the layers down. A layer's gradients are there from the first
//     reader that made them until the layer is done, and what it saved is freed with them;
//   - a layer in front of which nothing learns has no backward: what it makes is kept only where a layer with
//     one reads it, has no gradient, and a segment of such layers is not computed again;
//   - gradients of parameters appear layer by layer in the first backward after an update. Of a backward in
//     halves the first makes those of the layers that cannot be split, the second the others'. What waits
//     for the second half, the gradient that a layer was given and what its forward saved for it,
//     goes layer by layer while that half runs;
//   - an optimizer with two states needs one more tensor of a parameter's size for a moment;
//   - an update that is validated later keeps what it changes, parameters, states and buffers, as they
//     were, and the gradients, until it is;
//   - what is frozen is there once in each stage that reads it, without gradients, states or older versions;
//   - where the replicas' sum goes on beside the next minibatch there are two sets of gradients;
//   - of what replicas divide each has its part throughout, rounded up; gradients of a unit (Units) are whole until
//     they are scattered, and its weights from the computation of the unit in front to the end of its own.
func Of(p *profile.Profile, costs []profile.Cost, st plan.Stage, shard plan.Shard) (out Held) {
	part := divided{shard, max(1, len(st.Devices))}
	if st.FirstLayer > 0 {
		out.InputBytes = p.CutBytes(costs, st.FirstLayer-1)
	}
	if st.LastLayer < len(p.Layers)-1 {
		out.ActivationBytes = p.CutBytes(costs, st.LastLayer)
		out.NoGradientBytes = out.ActivationBytes - p.GradientBytes(costs, st.LastLayer)
	}
	copied := map[int]bool{}    // owners outside of the stage whose parameter it has a copy of
	frozen := map[string]bool{} // of FrozenShared
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

// recording is the most that a forward which keeps everything holds, and what it leaves.
func recording(costs []profile.Cost, first, last int) (peak, kept int64) {
	for l := first; l <= last; l++ {
		peak = max(peak, kept+costs[l].ForwardPeakBytes)
		kept += costs[l].SavedBytes
	}
	return peak, kept
}

// feedBytes is the model inputs that a stage reads for one micro-batch: all, or those that layers of by read.
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

// backwardPeak is the most held inside a backward above what was held before it. inside is what a
// layer's backward holds for a moment, leaves what it leaves behind: its parameters' gradients, nil where
// they are there already; of the first half of a backward, also what the second needs. kept is the outputs that
// segments left.
func backwardPeak(p *profile.Profile, costs []profile.Cost, st plan.Stage, inside func(*profile.Cost) int64, leaves,
	kept []int64) int64 {
	held, peak := int64(0), int64(0)
	made := given(p, st) // layers of the stage, or before it, whose output has a gradient here
	again := segmentsOf(p, st)
	there := again.keeps(p, st)
	for l := st.LastLayer; l >= st.FirstLayer; l-- {
		at := l - st.FirstLayer
		if run := again.run(at); again.of[at] >= 0 && run[1] == at+1 { // a segment's last
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

// later is the memory of a backward that adds to existing gradients of the parameters; first is that of one that makes
// them.
func later(c *profile.Cost) int64 { return c.BackwardPeakBytes }

func first(c *profile.Cost) int64 {
	if c.FirstBackwardPeakBytes > 0 {
		return c.FirstBackwardPeakBytes
	}
	return c.BackwardPeakBytes
}

// given is the layers of a stage that a later stage reads: their gradients are there when the
// stage's backward begins, and go with the layer.
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

// passPeak is the most held inside a forward without a graph, and what it leaves: the bytes
// of kept by layer, nil where nothing is kept.
func passPeak(p *profile.Profile, costs []profile.Cost, st plan.Stage, kept []int64) (peak, left int64) {
	last := map[int]int{} // the last layer that reads each layer's output
	for l := st.FirstLayer; l < len(p.Layers); l++ {
		for _, from := range p.Layers[l].From {
			last[from] = l
		}
	}
	ends := make([]int64, len(p.Layers)) // by layer: bytes that it is the last to read
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
		if kept != nil && kept[l-st.FirstLayer] > costs[l].OutputBytes { // it keeps more than its output
			held += kept[l-st.FirstLayer] - costs[l].OutputBytes
		}
	}
	return peak, left
}
