package stage

import "github.com/millrace-ml/millrace/nn"

// Phase is a part of the work on one layer.
type Phase uint8

// What a Watch sees of a layer. A backward in halves is InputHalf and later, where the layer
// can be split, WeightHalf.
const (
	Forward Phase = iota
	Backward
	InputHalf
	WeightHalf
	Update
	Pass   // a forward that keeps nothing for a backward: under recompute, and in evaluation
	Phases // how many there are
)

// Watch looks on while a stage works, layer by layer: on the same code that trains.
type Watch interface {
	Begin(p Phase, layer int)
	// End comes with the layer's outputs after a forward, and with nil after the rest.
	End(p Phase, layer int, made nn.Bundle)
}
