package sim

import (
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
)

// stageMemory works out what a stage holds, layer by layer, by the rules of the runtime:
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
//   - gradients of parameters appear layer by layer in the first backward after an update. Of a backward in
//     halves the first makes those of the layers that cannot be split, the second the others'. What waits
//     for the second half, the gradient that a layer was given and what its forward saved for it,
//     goes layer by layer while that half runs;
//   - an optimizer with two states needs one more tensor of a parameter's size for a moment;
//   - an update that is validated later keeps what it changes, parameters, states and buffers, as they
//     were, and the gradients, until it is (settle);
//   - where the replicas' sum goes on beside the next minibatch there are two sets of gradients (settle).
func stageMemory(out *StageCost, p *profile.Profile, costs []profile.Cost, st plan.Stage) {
	fed := feedBytes(p, costs, st)
	defer func() {
		out.ForwardPeak += fed
		out.EvaluatePeak += fed
		out.SavedBytes += fed
	}()
	copied := map[int]bool{} // owners outside of the stage whose parameter it has a copy of
	grads := make([]int64, st.LastLayer-st.FirstLayer+1)
	for l := st.FirstLayer; l <= st.LastLayer; l++ {
		layer := &p.Layers[l]
		own := layer.ParameterBytes
		if t := layer.TiedTo; t >= 0 && (t < st.FirstLayer || t > st.LastLayer) && !copied[t] {
			copied[t] = true
			own += layer.TiedBytes
		}
		out.FixedBytes += own*int64(1+p.OptimizerStates) + layer.BufferBytes
		out.ReferenceBytes += own + layer.BufferBytes
		out.LayerBytes = max(out.LayerBytes, own)
		grads[l-st.FirstLayer] = layer.ParameterBytes + layer.TiedBytes
		out.ParameterBytes += grads[l-st.FirstLayer]
		if p.OptimizerStates >= 2 {
			out.UpdatePeak = max(out.UpdatePeak, own)
		}
	}
	kept := spanning(p, costs, st)
	out.EvaluatePeak, _ = passPeak(p, costs, st, nil)
	out.BackwardPeak = backwardPeak(p, costs, st, later, nil, kept)
	out.FirstBackwardPeak = backwardPeak(p, costs, st, first, grads, kept)
	halves(out, p, costs, st, grads, kept)
	if st.Recompute.Again() {
		out.ForwardPeak, out.SavedBytes = passPeak(p, costs, st, kept)
		return
	}
	out.ForwardPeak, out.SavedBytes = recording(costs, st, st.FirstLayer, st.LastLayer)
}

// recording is the most that a forward which keeps everything holds, and what it leaves.
func recording(costs []profile.Cost, st plan.Stage, first, last int) (peak, kept int64) {
	for l := first; l <= last; l++ {
		peak = max(peak, kept+costs[l].ForwardPeakBytes)
		kept += costs[l].SavedBytes
	}
	return peak, kept
}

// spanning is, by layer from the stage's first, the bytes of its output that are kept under
// recompute because a later segment reads it.
func spanning(p *profile.Profile, costs []profile.Cost, st plan.Stage) []int64 {
	n := st.LastLayer - st.FirstLayer + 1
	kept := make([]int64, n)
	k := st.Recompute.Segment(n)
	if k == 0 {
		return kept
	}
	for l := range n {
		for _, from := range p.Layers[st.FirstLayer+l].From {
			if at := from - st.FirstLayer; at >= 0 && at/k < l/k {
				kept[at] = costs[from].OutputBytes
			}
		}
	}
	return kept
}

// feedBytes is the model inputs that a stage reads for one micro-batch.
func feedBytes(p *profile.Profile, costs []profile.Cost, st plan.Stage) int64 {
	fed := map[string]int64{}
	for l := st.FirstLayer; l <= st.LastLayer; l++ {
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
// they are there already; of the first half of a backward, also what the second needs. kept is spanning's.
func backwardPeak(p *profile.Profile, costs []profile.Cost, st plan.Stage, inside func(*profile.Cost) int64, leaves, kept []int64) int64 {
	held, peak := int64(0), int64(0)
	made := given(p, st) // layers of the stage, or before it, whose output has a gradient here
	k := st.Recompute.Segment(st.LastLayer - st.FirstLayer + 1)
	for l := st.LastLayer; l >= st.FirstLayer; l-- {
		if at := l - st.FirstLayer; k > 0 && (l == st.LastLayer || (at+1)%k == 0) { // a segment's last
			from := l - at%k
			for i := from; i <= l; i++ {
				held -= kept[i-st.FirstLayer]
			}
			most, left := recording(costs, st, from, l)
			peak = max(peak, held+most)
			held += left
		}
		peak = max(peak, held+inside(&costs[l]))
		held -= costs[l].SavedBytes
		if made[l] {
			held -= costs[l].OutputBytes
		}
		for _, from := range p.Layers[l].From {
			if from >= 0 && !made[from] {
				made[from] = true
				held += costs[from].OutputBytes
			}
		}
		if leaves != nil {
			held += leaves[l-st.FirstLayer]
		}
		peak = max(peak, held)
	}
	return peak
}

// later is what a whole backward holds that finds the parameters' gradients there, first one that makes them.
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
			if from >= st.FirstLayer && from <= st.LastLayer {
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
	}
	return peak, left
}
