package stage

import "github.com/millrace-ml/millrace/nn"

// Phase is a part of the work on one layer.
type Phase uint8

// The parts of the work that a Watch sees. A split backward is InputHalf and later, if the layer can be split,
// WeightHalf.
const (
	Forward Phase = iota
	Backward
	InputHalf
	WeightHalf
	Update
	Pass   // a forward without autograd: under recompute, and in evaluation
	Phases // the number of phases
)

// Watch observes a stage's work layer by layer, while the same code runs as in training.
type Watch interface {
	Begin(p Phase, layer int)
	// End gets the layer's outputs after a forward; otherwise made is nil.
	End(p Phase, layer int, made nn.Bundle)
}
