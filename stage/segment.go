package stage

import (
	"slices"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/nn"
)

// Under recompute a stage's layers come in segments of Segment layers, counted from its first;
// the last may be shorter. Between forward and backward a micro-batch holds what segments read
// of earlier ones, and the backward takes the segments from the last to the first: it computes
// one's forward once more, this time with graphs, goes back through it and frees it.

// segment is the first layer of the segment that ends with layer last.
func (s *Stage) segment(last int) (first int) {
	if s.Segment == 0 {
		return s.First
	}
	return last - (last-s.First)%s.Segment
}

// spans says whether a segment that has a backward reads what an earlier one of the stage made.
func (s *Stage) spans(v int) bool {
	if s.Segment == 0 {
		return false
	}
	end := s.Graph.values[v].layer
	end += s.Segment - (end-s.First)%s.Segment // the first layer behind its segment
	for l := end; l <= s.Last; l++ {
		if slices.Contains(s.Graph.reads[l], v) && s.records(l) {
			return true
		}
	}
	return false
}

// keepState copies the buffers that a layer reads after changing them, for its forward of the backward.
func (s *Stage) keepState(f *flight, l int) error {
	of, stateful := s.Layers[l].(nn.Stateful)
	if !stateful {
		return nil
	}
	at := l - s.First
	f.before[at] = map[int]engine.Tensor{}
	for _, i := range of.State() {
		t, err := Copy(s.dev, f.params[at][i])
		if err != nil {
			return err
		}
		f.before[at][i] = t
	}
	return nil
}

// hand moves what spans segments from made to kept.
func (s *Stage) hand(made, kept Tensors) {
	for v, t := range made {
		if kept != nil && s.spans(v) {
			kept[v] = t
			delete(made, v)
		}
	}
}

// forget frees what was kept of the values that layers from first on make: their segment
// is about to make them again.
func (f *flight) forget(s *Stage, first int) {
	for v, t := range f.kept {
		if s.Graph.values[v].layer >= first {
			free(t)
			delete(f.kept, v)
		}
	}
}
