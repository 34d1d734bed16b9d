package stage

import (
	"fmt"
	"math"

	"github.com/millrace-ml/millrace/engine"
)

// Gradients holds what backwards have added up since the last update, for each use of each learned parameter.
//
// The gradients gather on the leaves of one version of the weights. When a backward uses another version, they are
// moved to its leaves first. So they add up in the order of the backwards. A gradient is in hand if the stage has a
// handle on it (Use) in addition to the leaf. OfLayer takes in hand the gradients of one layer, and Gather takes in
// hand all gradients. Forget drops gradients that are in hand.
type Gradients struct {
	c         *Config
	params    *Params
	versions  *Versions
	on        int  // the version on whose leaves the gradients gather
	summed    bool // tied uses within this stage have been added up since the last backward
	taken     bool // the gradients in hand come from another stage (Take)
	exchanged bool // the gradients in hand had been set aside; the leaves gather gradients of another update
}

// gathersFor makes the gradients gather on the leaves of a version, for a backward through it.
func (g *Gradients) gathersFor(version int) error {
	g.summed = false
	return g.gatherOn(version)
}

// gatherOn moves the gradients gathered so far to the leaves of a version. If weights were ever overwritten, it moves
// them to the newest leaves instead.
func (g *Gradients) gatherOn(version int) error {
	v := g.versions
	if v.overwritten {
		version = v.newest
	}
	if version == g.on {
		return nil
	}
	if version != v.newest && v.older[version] == nil {
		return fmt.Errorf("stage: layers %d to %d go back through version %d of their weights, "+
			"which version %d has replaced", g.c.First, g.c.Last, version, v.newest)
	}
	from, to := v.uses(g.on), v.uses(version)
	g.on = version
	for i := range to {
		for k, leaf := range to[i] {
			if err := moveGrad(g.c.Device, from[i][k], leaf); err != nil {
				return fmt.Errorf("stage: gradient of %s: %w", g.params.Learned[i].Name, err)
			}
		}
	}
	return nil
}

func moveGrad(dev engine.Device, from, to engine.Tensor) error {
	m := dev.Begin()
	defer dev.End(m)
	g, err := dev.Grad(from)
	if err != nil {
		return err
	}
	if err := dev.SetGrad(to, g); err != nil {
		return err
	}
	return dev.SetGrad(from, nil)
}

// hold keeps all gradients until the update. A use may have no gradient in this step, for instance on a replica without
// a micro-batch. Such a use gets zeros.
func (g *Gradients) hold() error {
	if g.taken {
		return nil
	}
	if err := g.gatherOn(g.versions.newest); err != nil {
		return err
	}
	for _, p := range g.params.Learned {
		for i := range p.Uses {
			u := &p.Uses[i]
			if u.grad != nil {
				continue
			}
			if err := g.holdUse(u, u.leaf, p); err != nil {
				return err
			}
		}
	}
	return nil
}

// holdUse takes a handle on the gradient that a use has gathered on this leaf. If there is none, it makes zeros.
func (g *Gradients) holdUse(u *Use, leaf engine.Tensor, p *Param) error {
	dev := g.c.Device
	t, err := dev.Grad(leaf)
	if err == nil && t == nil {
		if t, err = dev.Full(g.c.Float, p.Value.Shape(), 0); err == nil {
			err = dev.SetGrad(leaf, t)
		}
	}
	if err != nil {
		return fmt.Errorf("stage: gradient of %s: %w", p.Name, err)
	}
	u.grad = dev.Disown(t)
	return nil
}

// OfLayer returns the gradients of the parameters that a layer reads. For one update, it returns each gradient only
// once. The caller asks once the layer's backward is done. Replicas can then sum these gradients while the backward
// continues with earlier layers.
func (g *Gradients) OfLayer(layer int) ([]Vector, error) {
	var all []Vector
	uses := g.versions.uses(g.on)
	for i, p := range g.params.Learned {
		for k := range p.Uses {
			u := &p.Uses[k]
			if u.Layer != layer || u.grad != nil {
				continue
			}
			if err := g.holdUse(u, uses[i][k], p); err != nil {
				return nil, err
			}
			all = append(all, Vector{p.Name, u.grad})
		}
	}
	return all, nil
}

// TiedUse is the gradient of one layer's use of a parameter that other stages use too.
type TiedUse struct {
	Param *Param
	Layer int
	Vector
}

// TiedUses returns the uses of parameters that other stages use too, in model order. The caller sums them over all
// stages in layer order, and writes the sum to the first use of each parameter here.
func (g *Gradients) TiedUses() ([]TiedUse, error) {
	if err := g.hold(); err != nil {
		return nil, err
	}
	var all []TiedUse
	for _, p := range g.params.Learned {
		if !p.Shared {
			continue
		}
		for _, u := range p.Uses {
			all = append(all, TiedUse{Param: p, Layer: u.Layer, Vector: Vector{p.Name, u.grad}})
		}
	}
	return all, nil
}

// Gather keeps the gradients that autograd has summed so far (Param.Gradient). Gradients of parameters that are tied
// only within this stage are added up in layer order.
func (g *Gradients) Gather() error {
	if err := g.hold(); err != nil {
		return err
	}
	if g.summed {
		return nil
	}
	g.summed = true
	dev := g.c.Device
	m := dev.Begin()
	defer dev.End(m)
	return dev.NoGrad(func() error {
		for _, p := range g.params.Learned {
			if p.Shared {
				continue
			}
			for _, u := range p.Uses[1:] {
				if err := engine.AddInto(dev, p.Uses[0].grad, u.grad, 1); err != nil {
					return fmt.Errorf("stage: gradient of %s: %w", p.Name, err)
				}
			}
		}
		return nil
	})
}

// Norms returns the sum of squares, in float64, of each final gradient whose parameter this stage owns. They are in
// model order. The sums of all stages make up the global norm, which counts a tied parameter once, with its owner. The
// tensor belongs to the caller. It is nil if the stage owns no parameter.
func (g *Gradients) Norms() (engine.Tensor, error) {
	if err := g.Gather(); err != nil {
		return nil, err
	}
	dev := g.c.Device
	m := dev.Begin()
	defer dev.End(m)
	var squares []engine.Tensor
	for _, p := range g.params.Learned {
		if !p.Owned {
			continue
		}
		q, err := engine.SquareSum(dev, p.Uses[0].grad)
		if err != nil {
			return nil, fmt.Errorf("stage: gradient of %s: %w", p.Name, err)
		}
		squares = append(squares, q)
	}
	if len(squares) == 0 {
		return nil, nil
	}
	all, err := engine.Stack(dev, squares)
	if err != nil {
		return nil, err
	}
	return dev.Disown(all), nil
}

// GlobalNorm returns the root of the sum of the squares, which are given in model order.
func GlobalNorm(squares []float64) float64 {
	total := 0.0
	for _, q := range squares {
		total += q
	}
	return math.Sqrt(total)
}

// Bytes returns the memory of the gradients of all uses of all learned parameters.
func (g *Gradients) Bytes() int64 {
	var n int64
	for _, p := range g.params.Learned {
		n += int64(len(p.Uses)) * p.Value.Bytes()
	}
	return n
}

// Forget drops the gradients in hand of these parameters.
func (g *Gradients) Forget(params []*Param) error {
	for _, p := range params {
		for i := range p.Uses {
			u := &p.Uses[i]
			free(u.grad)
			u.grad = nil
			if g.exchanged {
				continue // the leaf gathers another update's gradient
			}
			if err := g.c.Device.SetGrad(u.leaf, nil); err != nil {
				return err
			}
		}
	}
	return nil
}

// leave removes the gradients in hand from the newest leaves, before these leaves become those of an older version.
func (g *Gradients) leave() error {
	if g.exchanged {
		return nil // the leaves hold the next update's gradients; the next backward moves them
	}
	for _, p := range g.params.Learned {
		for _, u := range p.Uses {
			if err := g.c.Device.SetGrad(u.leaf, nil); err != nil {
				return err
			}
		}
	}
	return nil
}

// renewed prepares for the gradients after an update. They gather on the leaves of the newest weights. In one case they
// stay where they are: if the old weights are kept, and their leaves already gather the next update's gradients.
func (g *Gradients) renewed(how Renewal) {
	if how != Keep || !g.exchanged {
		g.on = g.versions.newest
	}
	g.summed, g.taken = false, false
}

// returned puts the gradients in hand back into the state that they had before the update that was taken back.
func (g *Gradients) returned() { g.on, g.summed = g.versions.newest, true }
