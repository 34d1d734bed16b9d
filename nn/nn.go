// Package nn turns the layers of a model into computations on engine tensors.
//
// Input: a model.Model, an engine.Device, parameters as leaves. Output: each layer's output Bundle. Errors: kinds that
// are not registered, a wrong number of inputs, and operators that fail. The package knows no schedule: the caller
// decides which micro-batch runs when.
//
// The pieces of a divided layer (model.Model.Divide, BaPipe §3.3.2) are layers. A piece before the last computes only
// its features: its rows of the weight and of the bias, on the layer's whole input. The last piece computes the
// remaining features and joins those of all pieces. It then does what the layer does after its product: batch norm and
// activation. The last piece's backward returns the gradients of the other pieces' features, and its part of the
// gradient of the layer's input. Package stage adds the other pieces' parts. These sums add the same numbers as the
// undivided layer does, in another order.
package nn

import "github.com/millrace-ml/millrace/engine"

// Named is one tensor of a Bundle.
type Named struct {
	Name   string
	Tensor engine.Tensor
}

// Bundle is an ordered list of named tensors: the inputs or outputs of a layer. Integer tensors carry no gradient.
// Every output is contiguous.
type Bundle []Named

// Context holds what one forward of one layer may depend on.
type Context struct {
	Device   engine.Device
	Params   []engine.Tensor // leaves, in the order of model.Layer.Params, buffers included
	Training bool
	Seed     uint64
	Layer    int // position in the model; for a piece, the divided layer's position in the undivided model
	Step     int
	Micro    int // micro-batch within the step
	// FirstRow is where a replica's slice begins in the micro-batch, and Rows is the slice's length. A row's random
	// mask depends on the row's number in the micro-batch, so slicing does not change masks.
	FirstRow, Rows int
	// Recomputing is true when a forward is repeated for its backward. Random masks are then the same again, and
	// batch-norm statistics do not change.
	Recomputing bool
}

// Stateful is a Layer that changes buffers and then reads them. When its forward is recomputed for a backward, its
// Params contain copies of these buffers, with the values that the first forward read. The layer may change the copies.
type Stateful interface {
	// State returns the positions in Params of the buffers that the layer changes and then reads.
	State() []int
}

// Layer computes one layer of a model.
type Layer interface {
	// Forward reads the tensors of the layer's From list, in order, and returns its outputs. It runs inside a scope of
	// ctx.Device: intermediate tensors need no Free.
	Forward(ctx *Context, in Bundle) (Bundle, error)
}
