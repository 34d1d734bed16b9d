package stage

import "github.com/millrace-ml/millrace/engine"

// Snapshot is everything that training goes on from: the parameters this stage owns,
// their optimizer states, the buffers; as views, valid until the next update.
func (s *Stage) Snapshot() ([]Vector, error) {
	var all []Vector
	add := func(name string, t engine.Tensor) error {
		v, err := s.vector(name, t)
		if err != nil {
			return err
		}
		all = append(all, v)
		return nil
	}
	for _, p := range s.params {
		if !s.Owns(p) {
			continue
		}
		if err := add(p.Name, p.Value); err != nil {
			return nil, err
		}
		for i, state := range s.States {
			if err := add(StateName(p.Name, state), p.State[i]); err != nil {
				return nil, err
			}
		}
	}
	for _, b := range s.buffs {
		if err := add(b.Name, b.Value); err != nil {
			return nil, err
		}
	}
	return all, nil
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
