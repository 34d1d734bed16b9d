package stage

import (
	"github.com/millrace-ml/millrace/engine"
)

// Backward computes the gradients of a micro-batch that Forward computed. It adds the gradients of the parameters to
// the gradients gathered so far, and frees what the micro-batch held. The argument `given` holds the gradients of the
// values of Out; they belong to the stage from now on. Values whose gradient is not needed may be missing. On the last
// stage, the argument `weight` is the gradient of the loss: the rows of the micro-batch divided by the rows of its
// minibatch. So the gradients are those of the mean over a minibatch. If an update covers several minibatches, the
// update divides their sum (optim.Step.GradScale). The results are copies of the gradients of the values of In, and
// belong to the caller. Copies are needed because autograd may let such a gradient share memory with the gradient of a
// parameter, to which the next backward adds.
func (s *Stage) Backward(id int, given Tensors, weight float64) (Tensors, error) {
	return s.goBack(id, given, weight, nil)
}

// BackwardInput is Backward without the weights' gradients of layers that can be split; BackwardWeight computes
// those later. If the micro-batches' BackwardWeights run in the order of their backwards, the parameters' gradients
// have the same bits as after Backward.
func (s *Stage) BackwardInput(id int, given Tensors, weight float64) (Tensors, error) {
	h := &half{works: make([]engine.Work, s.Last-s.First+1)}
	back, err := s.goBack(id, given, weight, h)
	if err != nil {
		h.free()
		return nil, err
	}
	s.open.halves[id] = h
	return back, nil
}

// half is the remaining half of a backward. works[i] computes the weights' gradients of layer First+i.
type half struct {
	works   []engine.Work
	version int
}

// begin computes the input's gradient of layer First+at, and keeps the remaining work, if there is any.
func (h *half) begin(dev engine.Device, at int, outputs, seeds []engine.Tensor) error {
	w, err := dev.BackwardInput(outputs, seeds)
	if err != nil {
		return err
	}
	if w.Size() == 0 {
		w.Free()
		return nil
	}
	h.works[at] = w
	return nil
}

func (h *half) free() {
	for _, w := range h.works {
		if w != nil {
			w.Free()
		}
	}
}

// BackwardWeight computes the weights' gradients that BackwardInput left of a micro-batch, from the last layer to
// the first.
func (s *Stage) BackwardWeight(id int) error {
	h, err := s.open.endHalf(id)
	if err != nil {
		return err
	}
	defer h.free()
	if err := s.Gradients.gathersFor(h.version); err != nil {
		return err
	}
	for l := s.Last; l >= s.First; l-- {
		if w := h.works[l-s.First]; w != nil {
			s.layers.begin(WeightHalf, l)
			err := w.Run()
			s.layers.end(WeightHalf, l, nil)
			if err != nil {
				return s.layers.failed(l, err)
			}
		}
		if err := s.gathered(l); err != nil {
			return err
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

// goBack does the work of Backward or, if `left` is not nil, of BackwardInput.
func (s *Stage) goBack(id int, given Tensors, weight float64, left *half) (Tensors, error) {
	b := &way{grads: Tensors{}, weight: weight, half: left, gathered: s.gathered}
	defer b.grads.Free()
	for v, t := range given {
		b.grads[v] = t
	}
	var err error
	if b.f, err = s.open.end(id); err != nil {
		return nil, err
	}
	if left != nil {
		left.version = b.f.micro.Version
	}
	if err = s.Gradients.gathersFor(b.f.micro.Version); err == nil {
		err = b.run()
	}
	b.f.free()
	if err != nil {
		return nil, err
	}
	back := Tensors{}
	for _, v := range s.In() {
		if g := b.grads[v]; g != nil {
			if back[v], err = Copy(s.Device, g); err != nil {
				back.Free()
				return nil, err
			}
		}
	}
	return back, nil
}

// way is the state of one micro-batch's backward. The field grads holds the gradients of values that earlier layers
// still have to process. Each is the sum of the gradients from the later layers that have run.
type way struct {
	f        *flight
	grads    Tensors
	weight   float64
	half     *half                 // collects the weights' half of the layers; nil: whole backwards
	gathered func(layer int) error // called after each layer of a whole backward
}

// run computes the backward of all layers, segment by segment.
func (b *way) run() error {
	c, wires := b.f.y.c, b.f.y.wires
	for last := c.Last; last >= c.First; {
		first := wires.segment(last)
		if c.Segment > 0 {
			b.f.forget(first)
			if wires.anyBack(first, last) {
				if err := b.f.record(first, last, true); err != nil {
					return err
				}
			}
		}
		if err := b.through(first, last); err != nil {
			return err
		}
		last = first - 1
	}
	return nil
}

// through computes the backward of layers whose graphs exist, from layer `last` to layer `first`.
func (b *way) through(first, last int) error {
	y := b.f.y
	for l := last; l >= first; l-- {
		if y.wires.makesLoss(l) {
			seed, err := y.c.Device.Full(y.c.Float, b.f.made[b.f.at(l)][0].Tensor.Shape(), b.weight)
			if err != nil {
				return y.failed(l, err)
			}
			b.grads[y.c.Graph.makes[l][0]] = seed
		}
		if err := b.layer(l); err != nil {
			return y.failed(l, err)
		}
		if b.half == nil {
			if err := b.gathered(l); err != nil {
				return err
			}
		}
	}
	return nil
}

// layer runs one layer's graph and passes on the gradients of its inputs. In the order of the inputs, it adds each of
// them to the gradient that later layers have computed for the same value.
func (b *way) layer(l int) error {
	y, at := b.f.y, b.f.at(l)
	dev := y.c.Device
	outputs, seeds := b.seeded(l)
	phase := Backward
	if b.half != nil {
		phase = InputHalf
	}
	y.begin(phase, l)
	defer y.end(phase, l, nil)
	m := dev.Begin()
	var keep []engine.Tensor
	var err error
	if len(outputs) > 0 {
		if b.half == nil {
			err = dev.Backward(outputs, seeds)
		} else {
			err = b.half.begin(dev, at, outputs, seeds)
		}
		if err == nil {
			keep, err = b.collect(l)
		}
	}
	dev.End(m, keep...)
	b.f.freeLayer(at)
	for _, v := range y.c.Graph.makes[l] {
		free(b.grads[v])
		delete(b.grads, v)
	}
	return err
}

// seeded returns the outputs of a layer that have a gradient, and those gradients.
func (b *way) seeded(l int) (outputs, seeds []engine.Tensor) {
	graph := b.f.y.c.Graph
	for k, v := range graph.makes[l] {
		if g := b.grads[v]; g != nil && graph.values[v].gradient {
			outputs, seeds = append(outputs, b.f.made[b.f.at(l)][k].Tensor), append(seeds, g)
		}
	}
	return outputs, seeds
}

// collect adds the gradient of each of a layer's leaves to the gradient of the value that the leaf holds. It returns
// the resulting tensors. Gradients are made contiguous, as if they had crossed a cut: an operator may compute other
// bits on other strides. Sums are not made in place because gradients may share memory.
func (b *way) collect(l int) (made []engine.Tensor, err error) {
	dev, graph := b.f.y.c.Device, b.f.y.c.Graph
	err = dev.NoGrad(func() error {
		for i, v := range graph.reads[l] {
			if !graph.values[v].gradient {
				continue
			}
			g, err := dev.Grad(b.f.leaves[b.f.at(l)][i])
			if err != nil {
				return err
			}
			if g == nil {
				continue
			}
			if g, err = dev.Contiguous(g); err != nil {
				return err
			}
			if so := b.grads[v]; so != nil {
				sum, err := dev.Call("aten::add.Tensor", so, g)
				if err != nil {
					return err
				}
				free(so)
				g = sum[0]
			}
			b.grads[v] = g
			made = append(made, g)
		}
		return nil
	})
	return made, err
}
