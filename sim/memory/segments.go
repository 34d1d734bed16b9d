package memory

import (
	"slices"

	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/profile"
)

// segments says which layers of a stage are recomputed together, by layer from the stage's first.
type segments struct {
	runs [][2]int
	of   []int // by layer: the index of its run, or -1 if it is not recomputed
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

// run returns the layers that are recomputed together with layer `at`, or only that layer if it is not recomputed.
func (s segments) run(at int) [2]int {
	if s.of[at] < 0 {
		return [2]int{at, at + 1}
	}
	return s.runs[s.of[at]]
}

// apart reports whether no segment has both layers: `at`, and the layer `from` that it reads.
func (s segments) apart(from, at int) bool { return s.of[from] != s.of[at] || s.of[at] < 0 }

// recorded reports, for each layer of the stage, whether a backward needs the layer's input. A layer's input is needed
// if the layer has a backward. In a segment all inputs are needed if any of its layers has a backward, since a segment
// is recomputed as a whole.
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

// keeps reports, for each layer of the stage, whether its saved values still exist at its turn in the backward. Outside
// of segments they exist if the layer, or a layer of the stage that reads it, has a backward. In a segment they exist
// if any layer of the segment has a backward.
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

// left returns the bytes that a forward leaves for each layer of the stage, if something is recomputed. Outside of
// segments these are what the layer saved. In a segment they are the layer's output, if a layer outside of the segment
// reads it and needs it in the backward.
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
