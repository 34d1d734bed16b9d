package stage

import "slices"

// Snapshot is everything that training goes on from: the parameters this stage owns, their
// optimizer states, the buffers and what is frozen. They change with the next update.
func (s *Stage) Snapshot() []Vector {
	var all []Vector
	for _, p := range s.params {
		if !s.Owns(p) {
			continue
		}
		all = append(all, Vector{p.Name, p.Value})
		for i, state := range s.States {
			all = append(all, Vector{StateName(p.Name, state), p.State[i]})
		}
	}
	for _, b := range slices.Concat(s.buffs, s.frozen) {
		if s.Owns(b) {
			all = append(all, Vector{b.Name, b.Value})
		}
	}
	return all
}

// ParameterBytes is the memory of parameters, buffers left out; with states, as many bytes
// more for each state.
func (s *Stage) ParameterBytes() int64 {
	var n int64
	for _, p := range s.params {
		n += p.Value.Bytes()
	}
	return n
}
