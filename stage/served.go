package stage

import (
	"fmt"

	"github.com/millrace-ml/millrace/engine"
)

// What a stage whose weights are elsewhere gives and takes, and the one that has them: parameters and their
// gradients, by their number among Params. Tensors that are given out are whoever's takes them.

// GiveGradients gives away the gradients gathered so far, of each parameter one, and gathers new ones.
func (s *Stage) GiveGradients() (Tensors, error) {
	if err := s.Gather(); err != nil {
		return nil, err
	}
	g, err := s.SetAside()
	if err != nil {
		return nil, err
	}
	all := Tensors{}
	for i, uses := range g.grads {
		all[i], uses[0] = uses[0], nil
	}
	g.Free()
	return all, nil
}

// TakeGradients has the next update go by gradients that another stage of these layers gave away.
func (s *Stage) TakeGradients(grads Tensors) error {
	if len(grads) != len(s.params) || s.taken {
		grads.Free()
		return fmt.Errorf("stage: gradients of %d parameters for layers %d to %d, which have %d, one update at a time",
			len(grads), s.First, s.Last, len(s.params))
	}
	for i, p := range s.params {
		free(p.Uses[0].grad)
		p.Uses[0].grad = grads[i]
	}
	s.taken, s.sums = true, true
	return nil
}

// GiveWeights gives copies of the parameters.
func (s *Stage) GiveWeights() (Tensors, error) {
	all := Tensors{}
	for i, p := range s.params {
		value, err := s.inScope(func() (engine.Tensor, error) {
			seen, err := engine.Unseen(s.dev, p.Value)
			if err != nil {
				return nil, err
			}
			return Copy(s.dev, seen)
		})
		if err != nil {
			all.Free()
			return nil, fmt.Errorf("stage: parameter %s: %w", p.Name, err)
		}
		all[i] = value
	}
	return all, nil
}

// TakeWeights makes the parameters those that another stage of these layers gave. No micro-batch is under way.
func (s *Stage) TakeWeights(values Tensors) error {
	defer values.Free()
	if len(values) != len(s.params) || len(s.open) > 0 {
		return fmt.Errorf("stage: %d parameters for layers %d to %d, which have %d and %d micro-batches under way",
			len(values), s.First, s.Last, len(s.params), len(s.open))
	}
	for i, p := range s.params {
		_, err := s.inScope(func() (engine.Tensor, error) {
			seen, err := engine.Unseen(s.dev, p.Value)
			if err == nil {
				err = engine.CopyInto(s.dev, seen, values[i])
			}
			return nil, err
		})
		if err != nil {
			return fmt.Errorf("stage: parameter %s: %w", p.Name, err)
		}
	}
	return nil
}

// inScope calls of in a scope of its own.
func (s *Stage) inScope(of func() (engine.Tensor, error)) (engine.Tensor, error) {
	m := s.dev.Begin()
	defer s.dev.End(m)
	return of()
}
