package stage

import "slices"

// What a frozen beginning of a network makes has no gradient: no parameter that learns is in front of it. Its
// backward is nothing, so a forward keeps of it only what layers with a backward read.

// back says whether layer l has a backward: a gradient flows through what it makes, or it makes the loss.
func (s *Stage) back(l int) bool {
	return l == len(s.Graph.Model.Layers)-1 || slices.ContainsFunc(s.Graph.makes[l], func(v int) bool {
		return s.Graph.values[v].gradient
	})
}

// anyBack says whether one of these layers has a backward.
func (s *Stage) anyBack(first, last int) bool {
	for l := first; l <= last; l++ {
		if s.back(l) {
			return true
		}
	}
	return false
}

// records says whether a backward needs what layer l reads: for its own, or for that of a layer of its segment.
func (s *Stage) records(l int) bool {
	if s.Segment == 0 {
		return s.back(l)
	}
	first := l - (l-s.First)%s.Segment
	return s.anyBack(first, min(first+s.Segment-1, s.Last))
}

// forwardOnly says whether no layer of the stage needs a value for a backward.
func (s *Stage) forwardOnly(v int) bool {
	if x := &s.Graph.values[v]; x.gradient || x.layer == len(s.Graph.Model.Layers)-1 {
		return false
	}
	for l := s.First; l <= s.Last; l++ {
		if slices.Contains(s.Graph.reads[l], v) && s.records(l) {
			return false
		}
	}
	return true
}

// drop frees what layer l read and what it is the last to read, where no backward needs it.
func (s *Stage) drop(f *flight, l int) {
	at := l - s.First
	if !s.back(l) {
		for _, t := range f.leaves[at] {
			free(t)
		}
		f.leaves[at] = nil
	}
	for _, v := range slices.Concat(s.Graph.reads[l], s.Graph.makes[l]) {
		if x := &s.Graph.values[v]; x.lastUse <= l {
			s.dropMade(f, v)
		}
	}
}

// dropSent frees, of what has been copied for others, what no backward needs.
func (s *Stage) dropSent(f *flight) {
	for _, v := range s.out {
		s.dropMade(f, v)
	}
}

// dropMade frees a value that a layer of the stage has made, where no backward needs it.
func (s *Stage) dropMade(f *flight, v int) {
	x := &s.Graph.values[v]
	if x.layer < s.First || x.layer > s.Last || !s.forwardOnly(v) {
		return
	}
	if made := f.made[x.layer-s.First]; x.output < len(made) {
		free(made[x.output].Tensor)
		made[x.output].Tensor = nil
	}
}

// dropFeeds frees the model inputs that no backward needs.
func (s *Stage) dropFeeds(f *flight) {
	for _, v := range s.feeds {
		if s.forwardOnly(v) {
			free(f.given[v])
			delete(f.given, v)
		}
	}
}
