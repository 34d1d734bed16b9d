package memory

import (
	"slices"

	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
)

// recorded says, by layer from the stage's first, whether a backward needs what the layer reads: for its own, or
// under recompute for that of a layer of its segment, which is computed again as a whole.
func recorded(p *profile.Profile, st plan.Stage) []bool {
	n := st.LastLayer - st.FirstLayer + 1
	out := make([]bool, n)
	k := max(1, st.Recompute.Segment(n))
	for at := range out {
		from := at - at%k
		out[at] = slices.ContainsFunc(p.Layers[st.FirstLayer+from:st.FirstLayer+min(from+k, n)], func(l profile.Layer) bool {
			return !l.NoGradient
		})
	}
	return out
}

// keeps says, by layer from the stage's first, whether what it has saved is there when its turn in the backward
// comes: it has one itself, or a layer of the stage that has one reads it. Under recompute whole segments are.
func keeps(p *profile.Profile, st plan.Stage) []bool {
	out := recorded(p, st)
	if st.Recompute.Again() {
		return out
	}
	for l := st.FirstLayer; l <= st.LastLayer; l++ {
		for _, from := range p.Layers[l].From {
			if from >= st.FirstLayer && !p.Layers[l].NoGradient {
				out[from-st.FirstLayer] = true
			}
		}
	}
	return out
}

// forward is the most that a forward which keeps what backwards need holds, and what it leaves. What they do not
// need goes after its last reader; where that is on a later stage, after it has been copied, sent bytes in all.
func forward(p *profile.Profile, costs []profile.Cost, st plan.Stage, sent int64) (peak, left int64) {
	kept := keeps(p, st)
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
