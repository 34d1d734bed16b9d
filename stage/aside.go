package stage

import "github.com/millrace-ml/millrace/engine"

// set is the gradients of one update, gathered and out of the way of the next update's.
type set struct {
	grads [][]engine.Tensor // by parameter and use
	sums  bool              // tied uses have been added up
}

func (g *set) free() {
	for _, uses := range g.grads {
		for _, t := range uses {
			free(t)
		}
	}
}

// SetAside takes the gradients gathered so far as those of an update to come, so that the
// backwards behind it gather new ones. The vectors that LayerGradients and Gradients have given
// out stay theirs. Norms and Update are of the set that has been aside longest. Asynchronous data
// parallelism sums one minibatch's gradients beside the next minibatch this way.
func (s *Stage) SetAside() error {
	if err := s.hold(); err != nil {
		return err
	}
	g := &set{sums: s.sums}
	for _, p := range s.params {
		var uses []engine.Tensor
		for i := range p.Uses {
			u := &p.Uses[i]
			uses = append(uses, u.grad)
			u.grad = nil
			if err := s.dev.SetGrad(u.leaf, nil); err != nil {
				return err
			}
		}
		g.grads = append(g.grads, uses)
	}
	s.sums = false
	s.aside = append(s.aside, g)
	return nil
}

// recall exchanges the gradients in hand with the set that has been aside longest, if there is
// one; what it returns exchanges them back.
func (s *Stage) recall() (back func()) {
	if len(s.aside) == 0 {
		return func() {}
	}
	g := s.aside[0]
	swap := func() {
		for i, p := range s.params {
			for k := range p.Uses {
				p.Uses[k].grad, g.grads[i][k] = g.grads[i][k], p.Uses[k].grad
			}
		}
		s.sums, g.sums = g.sums, s.sums
	}
	swap()
	return swap
}
