package stage

import (
	"fmt"

	"github.com/millrace-ml/millrace/engine"
)

// Backward computes the gradients of a micro-batch that Forward computed, adds those of
// the parameters to what has gathered, and frees what was held. given is the gradients of the
// values of Out, the stage's from now on; values nobody needed may be missing. On the last
// stage the loss is seeded with weight, the micro-batch's rows over its minibatch's, so
// that gradients are those of the mean over a minibatch; where an update covers several
// minibatches it divides their sum itself (optim.Step.GradScale). The results are copies of the
// gradients of the values of In, for others to own: autograd may let two gradients share
// memory, and one of them may be a parameter's, which the next backward adds to.
func (s *Stage) Backward(id int, given Tensors, weight float64) (Tensors, error) {
	return s.goBack(id, given, weight, nil)
}

// BackwardInput is Backward without the weights' half of layers that can be split, which it
// keeps for BackwardWeight. Micro-batches whose weights' halves run in the order of their
// backwards leave the bits in the parameters' gradients that Backward leaves.
func (s *Stage) BackwardInput(id int, given Tensors, weight float64) (Tensors, error) {
	h := &half{works: make([]engine.Work, s.Last-s.First+1)}
	if f := s.open[id]; f != nil {
		h.version = f.micro.Version
	}
	back, err := s.goBack(id, given, weight, h.works)
	if err != nil {
		freeWorks(h.works)
		return nil, err
	}
	s.halves[id] = h
	return back, nil
}

// half is what is left to do of a backward: the weights' part of each layer, from First.
type half struct {
	works   []engine.Work
	version int
}

// BackwardWeight runs what BackwardInput left of a micro-batch, from the last layer to the first.
func (s *Stage) BackwardWeight(id int) error {
	h := s.halves[id]
	if h == nil {
		return fmt.Errorf("stage: micro-batch %d has no input gradient to go on from", id)
	}
	delete(s.halves, id)
	defer freeWorks(h.works)
	if err := s.gatherOn(h.version); err != nil {
		return err
	}
	s.sums = false
	for l := s.Last; l >= s.First; l-- {
		if w := h.works[l-s.First]; w != nil {
			s.begin(WeightHalf, l)
			err := w.Run()
			s.end(WeightHalf, l, nil)
			if err != nil {
				return s.failed(l, err)
			}
		}
		if err := s.gathered(l); err != nil {
			return err
		}
	}
	return nil
}

func freeWorks(works []engine.Work) {
	for _, w := range works {
		if w != nil {
			w.Free()
		}
	}
}

// goBack is Backward, or with works BackwardInput.
func (s *Stage) goBack(id int, given Tensors, weight float64, works []engine.Work) (Tensors, error) {
	grads := Tensors{}
	for v, t := range given {
		grads[v] = t
	}
	f := s.open[id]
	if f == nil {
		grads.Free()
		return nil, fmt.Errorf("stage: micro-batch %d has no forward to go back from", id)
	}
	delete(s.open, id)
	s.sums = false
	err := s.gatherOn(f.micro.Version)
	if err == nil {
		err = s.backward(f, grads, weight, works)
	}
	f.free()
	if err != nil {
		grads.Free()
		return nil, err
	}
	defer grads.Free()
	back := Tensors{}
	for _, v := range s.in {
		if g := grads[v]; g != nil {
			if back[v], err = Copy(s.dev, g); err != nil {
				back.Free()
				return nil, err
			}
		}
	}
	return back, nil
}

func (s *Stage) backward(f *flight, grads Tensors, weight float64, works []engine.Work) error {
	for last := s.Last; last >= s.First; {
		first := s.segment(last)
		if s.Segment > 0 {
			f.forget(s, first)
			if s.anyBack(first, last) {
				if err := s.record(f, first, last, true); err != nil {
					return err
				}
			}
		}
		if err := s.backwardRun(f, first, last, grads, weight, works); err != nil {
			return err
		}
		last = first - 1
	}
	return nil
}

// backwardRun goes back through layers whose graphs are there.
func (s *Stage) backwardRun(f *flight, first, last int, grads Tensors, weight float64, works []engine.Work) error {
	for l := last; l >= first; l-- {
		if l == len(s.Graph.Model.Layers)-1 {
			seed, err := s.dev.Full(s.Float, f.made[l-s.First][0].Tensor.Shape(), weight)
			if err != nil {
				return s.failed(l, err)
			}
			grads[s.Graph.makes[l][0]] = seed
		}
		if err := s.backwardLayer(f, l, grads, works); err != nil {
			return s.failed(l, err)
		}
		if works == nil {
			if err := s.gathered(l); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *Stage) gathered(l int) error {
	if s.Gathered == nil {
		return nil
	}
	return s.Gathered(l)
}

// backwardLayer runs one layer's graph and adds the gradients of what it read, in the order
// of its inputs, to those of the layers behind it. With works it keeps the weights' half.
func (s *Stage) backwardLayer(f *flight, l int, grads Tensors, works []engine.Work) error {
	at := l - s.First
	outputs, seeds := s.seeded(f, l, grads)
	phase := Backward
	if works != nil {
		phase = InputHalf
	}
	s.begin(phase, l)
	defer s.end(phase, l, nil)
	m := s.dev.Begin()
	var keep []engine.Tensor
	var err error
	if len(outputs) > 0 {
		if works == nil {
			err = s.dev.Backward(outputs, seeds)
		} else if works[at], err = s.dev.BackwardInput(outputs, seeds); err == nil && works[at].Size() == 0 {
			works[at].Free()
			works[at] = nil
		}
		if err == nil {
			keep, err = s.collect(f, l, grads)
		}
	}
	s.dev.End(m, keep...)
	f.freeLayer(at)
	for _, v := range s.Graph.makes[l] {
		free(grads[v])
		delete(grads, v)
	}
	return err
}

// seeded is the outputs of a layer that have a gradient, and the gradients.
func (s *Stage) seeded(f *flight, l int, grads Tensors) (outputs, seeds []engine.Tensor) {
	for k, v := range s.Graph.makes[l] {
		if g := grads[v]; g != nil && s.Graph.values[v].gradient {
			outputs, seeds = append(outputs, f.made[l-s.First][k].Tensor), append(seeds, g)
		}
	}
	return outputs, seeds
}

// collect takes the gradients of a layer's leaves into grads and returns those made. They
// are contiguous, as they would be had they crossed a cut: an operator may compute
// other bits on other strides. Sums are out of place because gradients may share memory.
func (s *Stage) collect(f *flight, l int, grads Tensors) (made []engine.Tensor, err error) {
	err = s.dev.NoGrad(func() error {
		for i, v := range s.Graph.reads[l] {
			if !s.Graph.values[v].gradient {
				continue
			}
			g, err := s.dev.Grad(f.leaves[l-s.First][i])
			if err != nil {
				return err
			}
			if g == nil {
				continue
			}
			if g, err = s.dev.Contiguous(g); err != nil {
				return err
			}
			if so := grads[v]; so != nil {
				sum, err := s.dev.Call("aten::add.Tensor", so, g)
				if err != nil {
					return err
				}
				free(so)
				g = sum[0]
			}
			grads[v] = g
			made = append(made, g)
		}
		return nil
	})
	return made, err
}
