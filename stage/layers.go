package stage

import (
	"fmt"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/nn"
)

// layers computes a stage's layers on its device, one at a time. It holds no tensors.
type layers struct {
	c     *Config
	wires *wiring
}

// call computes layer l for a micro-batch. It refuses fewer outputs than the layer's description has.
func (y *layers) call(l int, ctx *nn.Context, in nn.Bundle) (nn.Bundle, error) {
	made, err := y.c.Layers[l].Forward(ctx, in)
	if err != nil {
		return nil, err
	}
	if want := len(y.c.Graph.makes[l]); len(made) < want {
		return nil, fmt.Errorf("it yields %d tensors; its description says %d", len(made), want)
	}
	return made, nil
}

func (y *layers) failed(l int, err error) error {
	return fmt.Errorf("stage: layer %s: %w", y.c.Graph.Model.Layers[l].Name, err)
}

func (y *layers) begin(p Phase, layer int) {
	if y.c.Watch != nil {
		y.c.Watch.Begin(p, layer)
	}
}

func (y *layers) end(p Phase, layer int, made nn.Bundle) {
	if y.c.Watch != nil {
		y.c.Watch.End(p, layer, made)
	}
}

// copies makes a contiguous copy of every value that crosses the cut after the stage. The copies share no memory.
func (y *layers) copies(of func(v int) engine.Tensor) (Tensors, error) {
	out := Tensors{}
	for _, v := range y.wires.out {
		t, err := Copy(y.c.Device, of(v))
		if err != nil {
			out.Free()
			return nil, err
		}
		out[v] = t
	}
	return out, nil
}

// apart returns a handle on a number; the handle outlives the number's scope and graph.
func (y *layers) apart(t engine.Tensor) (engine.Tensor, error) {
	leaf, err := y.c.Device.Leaf(t, false)
	if err != nil {
		return nil, err
	}
	return y.c.Device.Disown(leaf), nil
}

// Copy returns a copy of a tensor, outside of all scopes.
func Copy(dev engine.Device, t engine.Tensor) (engine.Tensor, error) {
	c, err := engine.Copy(dev, t)
	if err != nil {
		return nil, err
	}
	return dev.Disown(c), nil
}
