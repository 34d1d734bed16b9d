package memory

import (
	"slices"

	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
)

// segments is which layers of a stage are computed again together, by layer from the stage's first.
type segments struct {
	runs [][2]int
	of   []int // its run; -1: the layer keeps what its backward needs
}

func segmentsOf(p *profile.Profile, st plan.Stage) segments {
	n := st.LastLayer - st.FirstLayer + 1
	s := segments{of: slices.Repeat([]int{-1}, n)}
	s.runs = st.Recompute.Segments(n, func(at int) string { return p.Layers[st.FirstLayer+at].Name })
	for i, run := range s.runs {
		for at := run[0]; at < run[1]; at++ {
			s.of[at] = i
		}
	}
	return s
}

// run is the layers that are computed again together with one: itself, where it is not.
func (s segments) run(at int) [2]int {
	if s.of[at] < 0 {
		return [2]int{at, at + 1}
	}
	return s.runs[s.of[at]]
}

// apart says whether a layer reads another one, in front of it, that it is not computed again with.
func (s segments) apart(from, at int) bool { return s.of[from] != s.of[at] || s.of[at] < 0 }

// recorded says, by layer from the stage's first, whether a backward needs what the layer reads: for its own, or
// under recompute for that of a layer of its segment, which is computed again as a whole.
func (s segments) recorded(p *profile.Profile, st plan.Stage) []bool {
	out := make([]bool, len(s.of))
	for at := range out {
		run := s.run(at)
		out[at] = slices.ContainsFunc(p.Layers[st.FirstLayer+run[0]:st.FirstLayer+run[1]], func(l profile.Layer) bool {
			return !l.NoGradient
		})
	}
	return out
}

// keeps says, by layer from the stage's first, whether what it has saved is there when its turn in the backward
// comes: it has one itself, or a layer of the stage that has one reads it. Of segments all of it is.
func (s segments) keeps(p *profile.Profile, st plan.Stage) []bool {
	recorded := s.recorded(p, st)
	out := slices.Clone(recorded)
	for at := range out {
		for _, from := range p.Layers[st.FirstLayer+at].From {
			if from >= st.FirstLayer && s.of[from-st.FirstLayer] < 0 && recorded[at] {
				out[from-st.FirstLayer] = true
			}
		}
	}
	return out
}

// left is, by layer from the stage's first, what a forward leaves: of a layer outside of segments what it has saved, of
// one in a segment its output where a layer that is not computed again with it needs that.
func (s segments) left(p *profile.Profile, costs []profile.Cost, st plan.Stage) (saved, outputs []int64) {
	saved, outputs = make([]int64, len(s.of)), make([]int64, len(s.of))
	if len(s.runs) == 0 {
		return saved, outputs
	}
	recorded, there := s.recorded(p, st), s.keeps(p, st)
	for at := range s.of {
		if s.of[at] < 0 && there[at] {
			saved[at] = costs[st.FirstLayer+at].SavedBytes
		}
		if !recorded[at] {
			continue
		}
		for _, from := range p.Layers[st.FirstLayer+at].From {
			if k := from - st.FirstLayer; k >= 0 && s.of[k] >= 0 && s.apart(k, at) {
				outputs[k] = costs[from].OutputBytes
			}
		}
	}
	return saved, outputs
}
