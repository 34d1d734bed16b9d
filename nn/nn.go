// Package nn turns the layers of a model into computations on engine tensors.
//
// In: a model.Model, an engine.Device, parameters as leaves. Out: each layer's
// output Bundle. Refused: kinds nobody registered, inputs of the wrong number.
// It knows no schedule: which micro-batch runs when is the caller's business.
//
// Pieces of a divided layer (model.Model.Divide, BaPipe §3.3.2) are layers. Each but the last computes only its
// features: its rows of the weight and of the bias, on the layer's whole input. The last computes the remaining
// features, joins those of all pieces, and does on the whole what the layer does after its product: batch norm,
// activation. Its backward yields the gradients of the other pieces' features, and its part of the gradient of the
// layer's input, to which package stage adds theirs. The sums are those of the whole layer in another order.
package nn

import "github.com/millrace-ml/millrace/engine"

// Named is one tensor of a Bundle.
type Named struct {
	Name   string
	Tensor engine.Tensor
}

// Bundle is an ordered list of named tensors: what a layer reads or yields.
// Integer tensors carry no gradient. Every tensor a layer yields is contiguous.
type Bundle []Named

// Context is what one forward of one layer may look at.
type Context struct {
	Device   engine.Device
	Params   []engine.Tensor // leaves, in the order of model.Layer.Params, buffers included
	Training bool
	Seed     uint64
	Layer    int // position in the model, a piece's that of its layer in the whole model
	Step     int
	Micro    int // micro-batch within the step
	// FirstRow is where this slice of the micro-batch begins and Rows how long the whole
	// micro-batch is: random masks are drawn for all rows and sliced, so that
	// slicing changes nothing.
	FirstRow, Rows int
	// Recomputing is true when a forward is run a second time for its backward: random
	// masks repeat, batch-norm statistics stay.
	Recomputing bool
}

// Stateful is a Layer that reads buffers after it has changed them. When it is computed a second time for its backward,
// its Params have copies of these buffers with the values of the first time, which it may change.
type Stateful interface {
	// State returns the positions of those buffers.
	State() []int
}

// Layer computes one layer of a model.
type Layer interface {
	// Forward reads the tensors of its From list, in order, and yields its outputs.
	// It runs inside a scope of ctx.Device: intermediate tensors need no Free.
	Forward(ctx *Context, in Bundle) (Bundle, error)
}
