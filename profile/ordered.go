package profile

import "fmt"

// CheckOrder refuses an order that is not a topological order of the profile's layers. order[i] is the layer at
// position i. Each layer must occur once, after the layers that it reads and after the owner of parameters that it
// shares.
func (p *Profile) CheckOrder(order []int) error {
	if len(order) != len(p.Layers) {
		return fmt.Errorf("profile: the order has %d layers; %s has %d", len(order), p.Model, len(p.Layers))
	}
	position := make([]int, len(order))
	for i := range position {
		position[i] = -1
	}
	for at, l := range order {
		if l < 0 || l >= len(order) {
			return fmt.Errorf("profile: the order has layer %d at position %d; %s has layers 0 to %d", l, at, p.Model,
				len(order)-1)
		}
		if position[l] >= 0 {
			return fmt.Errorf("profile: the order has layer %d (%s) at positions %d and %d", l, p.Layers[l].Name,
				position[l], at)
		}
		position[l] = at
		for _, from := range p.Layers[l].From {
			if from >= 0 && position[from] < 0 {
				return fmt.Errorf("profile: the order has layer %d (%s) at position %d, before layer %d (%s), whose "+
					"output it reads", l, p.Layers[l].Name, at, from, p.Layers[from].Name)
			}
		}
		if owner := p.Layers[l].TiedTo; owner >= 0 && position[owner] < 0 {
			return fmt.Errorf("profile: the order has layer %d (%s) at position %d, before layer %d (%s), whose "+
				"parameters it shares", l, p.Layers[l].Name, at, owner, p.Layers[owner].Name)
		}
	}
	return nil
}

// Ordered returns the profile with its layers in another topological order, as a plan gives it: layer i of the
// result is layer order[i] of p. For an empty order it returns p itself. The result shares its costs with p.
func (p *Profile) Ordered(order []int) (*Profile, error) {
	if len(order) == 0 {
		return p, nil
	}
	if err := p.CheckOrder(order); err != nil {
		return nil, err
	}
	position := make([]int, len(order))
	for at, l := range order {
		position[l] = at
	}
	moved := *p
	moved.Layers = make([]Layer, len(order))
	for at, l := range order {
		layer := p.Layers[l]
		layer.From = make([]int, len(p.Layers[l].From))
		for i, from := range p.Layers[l].From {
			layer.From[i] = from
			if from >= 0 {
				layer.From[i] = position[from]
			}
		}
		if layer.TiedTo >= 0 {
			layer.TiedTo = position[layer.TiedTo]
		}
		moved.Layers[at] = layer
	}
	return &moved, nil
}
