package stage

import (
	"fmt"

	"github.com/millrace-ml/millrace/engine"
)

// Aside holds the gradients of one update, so that those of the next update can be gathered meanwhile.
type Aside struct {
	grads  [][]engine.Tensor // by parameter and use
	summed bool              // the gradients of tied uses have been added up
}

// Free drops gradients that are not used for an update.
func (a *Aside) Free() {
	for _, uses := range a.grads {
		for _, t := range uses {
			free(t)
		}
	}
	a.grads = nil
}

// SetAside takes the gradients gathered so far for a later update, so that the following backwards gather new ones.
// The vectors that OfLayer has returned remain views of these gradients.
func (g *Gradients) SetAside() (*Aside, error) {
	if err := g.hold(); err != nil {
		return nil, err
	}
	a := &Aside{summed: g.summed}
	for _, p := range g.params.Learned {
		var uses []engine.Tensor
		for i := range p.Uses {
			u := &p.Uses[i]
			uses = append(uses, u.grad)
			u.grad = nil
			if err := g.c.Device.SetGrad(u.leaf, nil); err != nil {
				return nil, err
			}
		}
		a.grads = append(a.grads, uses)
	}
	g.summed = false
	return a, nil
}

// Exchange swaps the gradients in hand with those that were set aside. It returns a function that swaps them back.
func (g *Gradients) Exchange(a *Aside) (back func()) {
	swap := func() {
		for i, p := range g.params.Learned {
			for k := range p.Uses {
				p.Uses[k].grad, a.grads[i][k] = a.grads[i][k], p.Uses[k].grad
			}
		}
		g.summed, a.summed = a.summed, g.summed
		g.exchanged = !g.exchanged
	}
	swap()
	return swap
}

// Give returns the gradients gathered so far, indexed by parameter, and begins to gather new ones. The returned
// gradients belong to the caller. Another stage of the same layers, which has the weights, can Take them.
func (g *Gradients) Give() (Tensors, error) {
	if err := g.Gather(); err != nil {
		return nil, err
	}
	a, err := g.SetAside()
	if err != nil {
		return nil, err
	}
	all := Tensors{}
	for i, uses := range a.grads {
		all[i], uses[0] = uses[0], nil
	}
	a.Free()
	return all, nil
}

// Take makes the next update use the gradients that Give returned on another stage of the same layers.
func (g *Gradients) Take(grads Tensors) error {
	if len(grads) != len(g.params.Learned) || g.taken {
		grads.Free()
		return fmt.Errorf("stage: gradients of %d parameters for layers %d to %d, which have %d, one update at a time",
			len(grads), g.c.First, g.c.Last, len(g.params.Learned))
	}
	for i, p := range g.params.Learned {
		free(p.Uses[0].grad)
		p.Uses[0].grad = grads[i]
	}
	g.taken, g.summed = true, true
	return nil
}
