package memory

import (
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
)

// forward returns the peak of a forward that keeps only what backwards need, and the bytes it leaves. Every other value
// is freed after its last reader. If the last reader is on a later stage, the value is freed once all tensors for later
// stages are copied. `sent` is the bytes of these copies.
func forward(p *profile.Profile, costs []profile.Cost, st plan.Stage, sent int64) (peak, left int64) {
	kept := segmentsOf(p, st).keeps(p, st)
	last := map[int]int{} // the last layer that reads each layer's output
	for l := st.FirstLayer; l < len(p.Layers); l++ {
		for _, from := range p.Layers[l].From {
			last[from] = l
		}
	}
	ends := make([]int64, len(p.Layers)) // by layer: bytes freed after the layer has run
	for at, is := range kept {
		if l := st.FirstLayer + at; !is {
			ends[max(l, last[l])] += costs[l].SavedBytes
		}
	}
	for l := st.FirstLayer; l <= st.LastLayer; l++ {
		peak = max(peak, left+costs[l].ForwardPeakBytes)
		left += costs[l].SavedBytes - ends[l]
	}
	for _, n := range ends[st.LastLayer+1:] {
		if n > 0 {
			peak, left = max(peak, left+sent), left-n
		}
	}
	return peak, left
}
