package memory

import (
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
)

// forward is the most that a forward which keeps what backwards need holds, and what it leaves. What they do not
// need goes after its last reader; where that is on a later stage, after it has been copied, sent bytes in all.
func forward(p *profile.Profile, costs []profile.Cost, st plan.Stage, sent int64) (peak, left int64) {
	kept := segmentsOf(p, st).keeps(p, st)
	last := map[int]int{} // the last layer that reads what each layer makes
	for l := st.FirstLayer; l < len(p.Layers); l++ {
		for _, from := range p.Layers[l].From {
			last[from] = l
		}
	}
	ends := make([]int64, len(p.Layers)) // by layer: bytes that go behind it
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
