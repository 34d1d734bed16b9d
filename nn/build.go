package nn

import (
	"fmt"

	"github.com/millrace-ml/millrace/internal/registry"
	"github.com/millrace-ml/millrace/model"
)

// Func is a Layer that consists only of its forward.
type Func func(ctx *Context, in Bundle) (Bundle, error)

// Forward implements Layer.
func (f Func) Forward(ctx *Context, in Bundle) (Bundle, error) { return f(ctx, in) }

// unary makes a Layer with one input and one output from a formula. The formula records its errors in o.
func unary(formula func(o *ops, ctx *Context, x tensor) tensor) Layer {
	return Func(func(ctx *Context, in Bundle) (Bundle, error) {
		if err := take(in, 1); err != nil {
			return nil, err
		}
		o := ops{dev: ctx.Device}
		return o.out(formula(&o, ctx, in[0].Tensor))
	})
}

var makers = registry.New[func(model.Layer) (Layer, error)]("computation of kind")

// Computes says whether this package computes layers of a kind.
func Computes(kind string) bool {
	_, err := makers.Find(kind)
	return err == nil
}

// Register sets the function that makes layers of a kind. A new kind needs only this call and model.RegisterKind.
// Register panics if the kind is already registered.
func Register(kind string, make func(model.Layer) (Layer, error)) {
	makers.Add(kind, make)
}

// Build makes the layers of a model, in its order. The layers hold no tensors and may be shared by workers.
func Build(m *model.Model) ([]Layer, error) {
	layers := make([]Layer, len(m.Layers))
	for i, l := range m.Layers {
		make, err := makers.Find(l.Kind)
		if err != nil {
			return nil, fmt.Errorf("nn: layer %q: %w (nn.Register adds one)", l.Name, err)
		}
		layer, err := make(l)
		if err != nil {
			return nil, fmt.Errorf("nn: layer %q: %w", l.Name, err)
		}
		layers[i] = layer
	}
	return layers, nil
}

// take checks that a layer got as many tensors as it reads.
func take(in Bundle, n int) error {
	if len(in) != n {
		return fmt.Errorf("nn: a layer that reads %d tensors got %d", n, len(in))
	}
	return nil
}
