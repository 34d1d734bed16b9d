// Package nn turns the layers of a model into computations on engine tensors.
//
// In: a model.Model, an engine.Device, parameters as leaves. Out: each layer's output Bundle. Refused: kinds that
// are not registered, and a wrong number of inputs. The package knows no schedule: the caller decides which
// micro-batch runs when.
//
// The pieces of a divided layer (model.Model.Divide, BaPipe §3.3.2) are layers. All but the last compute only their
// features: their rows of the weight and of the bias, on the layer's whole input. The last computes the remaining
// features and joins those of all pieces. It then does what the layer does after its product: batch norm,
// activation. Its backward returns the gradients of the other pieces' features, and its part of the gradient of the
// layer's input, to which package stage adds theirs. The sums are those of the whole layer in another order.
package nn

import "github.com/millrace-ml/millrace/engine"

// Named is one tensor of a Bundle.
type Named struct {
	Name   string
	Tensor engine.Tensor
}

// Bundle is an ordered list of named tensors: what a layer reads or makes. Integer tensors carry no gradient. Every
// tensor that a layer makes is contiguous.
type Bundle []Named

// Context holds what one forward of one layer may depend on.
type Context struct {
	Device   engine.Device
	Params   []engine.Tensor // leaves, in the order of model.Layer.Params, buffers included
	Training bool
	Seed     uint64
	Layer    int // position in the model; for a piece that of its layer in the undivided model
	Step     int
	Micro    int // micro-batch within the step
	// FirstRow is where this slice of the micro-batch begins, Rows the length of the whole micro-batch. Random masks
	// are drawn for all rows and sliced, so that slicing changes nothing.
	FirstRow, Rows int
	// Recomputing is true when a forward is repeated for its backward. Random masks are then the same again, and
	// batch-norm statistics do not change.
	Recomputing bool
}

// Stateful is a Layer that reads buffers after changing them. When it is recomputed for its backward, its Params
// contain copies of these buffers with the values of the first time, which it may change.
type Stateful interface {
	// State returns the positions of those buffers.
	State() []int
}

// Layer computes one layer of a model.
type Layer interface {
	// Forward reads the tensors of its From list, in order, and returns its outputs. It runs inside a scope of
	// ctx.Device: intermediate tensors need no Free.
	Forward(ctx *Context, in Bundle) (Bundle, error)
}
