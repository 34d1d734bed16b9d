package nn

import (
	"fmt"
	"slices"
	"strings"

	"github.com/millrace-ml/millrace/model"
)

// Func is a Layer that needs nothing but its forward.
type Func func(ctx *Context, in Bundle) (Bundle, error)

// Forward implements Layer.
func (f Func) Forward(ctx *Context, in Bundle) (Bundle, error) { return f(ctx, in) }

var makers = map[string]func(model.Layer) (Layer, error){}

// Register says how layers of a kind are computed; with model.RegisterKind, it is
// all that a new kind needs. A kind taken twice is a bug.
func Register(kind string, make func(model.Layer) (Layer, error)) {
	if _, taken := makers[kind]; taken {
		panic("nn: kind " + kind + " registered twice")
	}
	makers[kind] = make
}

// Build makes the layers of a model, in its order. They hold no tensors and may be
// shared by workers.
func Build(m *model.Model) ([]Layer, error) {
	layers := make([]Layer, len(m.Layers))
	for i, l := range m.Layers {
		make, ok := makers[l.Kind]
		if !ok {
			var kinds []string
			for k := range makers {
				kinds = append(kinds, k)
			}
			slices.Sort(kinds)
			return nil, fmt.Errorf("nn: layer %q: nobody registered how to compute kind %q; there are %s", l.Name, l.Kind, strings.Join(kinds, ", "))
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
