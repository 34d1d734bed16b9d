package stage

import (
	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/nn"
)

// Phase is a part of the work on one layer.
type Phase uint8

// What a Watch sees of a layer. The halves are computed beside the whole backward, for
// measurement alone, where the Watch asks for them.
const (
	Forward Phase = iota
	Backward
	InputHalf
	WeightHalf
	Update
	Phases // how many there are
)

// Watch looks on while a stage works, layer by layer: on the same code that trains.
type Watch interface {
	Begin(p Phase, layer int)
	// End comes with the layer's outputs after a forward, and with nil after the rest.
	End(p Phase, layer int, made nn.Bundle)
	// Halves says whether to compute the two halves of backward passes too.
	Halves() bool
}

func (s *Stage) begin(p Phase, layer int) {
	if s.Watch != nil {
		s.Watch.Begin(p, layer)
	}
}

func (s *Stage) end(p Phase, layer int, made nn.Bundle) {
	if s.Watch != nil {
		s.Watch.End(p, layer, made)
	}
}

// halves differentiates a layer once with respect to what it reads and once with respect to
// its parameters, leaving its graph and every gradient alone.
func (s *Stage) halves(f *flight, l int, outputs, seeds []engine.Tensor) error {
	if s.Watch == nil || !s.Watch.Halves() || len(outputs) == 0 {
		return nil
	}
	var inputs, weights []engine.Tensor
	for i, v := range s.Graph.reads[l] {
		if s.Graph.values[v].gradient {
			inputs = append(inputs, f.leaves[l-s.First][i])
		}
	}
	for i, p := range s.Graph.Model.Layers[l].Params {
		if !p.Buffer {
			weights = append(weights, s.leaves[l-s.First][i])
		}
	}
	if err := s.half(InputHalf, l, outputs, seeds, inputs); err != nil {
		return err
	}
	return s.half(WeightHalf, l, outputs, seeds, weights)
}

func (s *Stage) half(p Phase, l int, outputs, seeds, of []engine.Tensor) error {
	if len(of) == 0 {
		return nil
	}
	m := s.dev.Begin()
	s.begin(p, l)
	_, err := s.dev.Gradients(outputs, seeds, of)
	s.dev.End(m)
	s.end(p, l, nil)
	return err
}
