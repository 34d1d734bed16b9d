package stage

import (
	"fmt"
	"math"

	"github.com/millrace-ml/millrace/engine"
)

// Vector is a tensor of the stage by name: a gradient, a buffer, a parameter or its state. The tensor stays
// the stage's, and whoever has the vector may read and write it until the update, in the device's order.
type Vector struct {
	Name   string
	Tensor engine.Tensor
}

// hold takes a handle on the gradient of every use until the update. A use through which
// nothing flowed this step, on a replica without a micro-batch for instance, gets zeros.
func (s *Stage) hold() error {
	if s.taken {
		return nil
	}
	if err := s.gatherOn(s.version); err != nil {
		return err
	}
	for _, p := range s.params {
		for i := range p.Uses {
			u := &p.Uses[i]
			if u.grad != nil {
				continue
			}
			if err := s.holdUse(u, u.leaf, p); err != nil {
				return err
			}
		}
	}
	return nil
}

// LayerGradients is the gradients of the parameters that a layer reads, complete while the
// backward that makes the last of them goes on to the layers in front: what replicas sum
// meanwhile. It gives each out once for each update.
func (s *Stage) LayerGradients(layer int) ([]Vector, error) {
	var all []Vector
	uses := s.usesOf(s.gathers)
	for i, p := range s.params {
		for k := range p.Uses {
			u := &p.Uses[k]
			if u.Layer != layer || u.grad != nil {
				continue
			}
			if err := s.holdUse(u, uses[i][k], p); err != nil {
				return nil, err
			}
			all = append(all, Vector{p.Name, u.grad})
		}
	}
	return all, nil
}

// holdUse takes a handle on the gradient that a use has gathered on this leaf.
func (s *Stage) holdUse(u *Use, leaf engine.Tensor, p *Param) error {
	g, err := s.dev.Grad(leaf)
	if err == nil && g == nil {
		if g, err = s.dev.Full(s.Float, p.Value.Shape(), 0); err == nil {
			err = s.dev.SetGrad(leaf, g)
		}
	}
	if err != nil {
		return fmt.Errorf("stage: gradient of %s: %w", p.Name, err)
	}
	u.grad = s.dev.Disown(g)
	return nil
}

// Statistics is the buffers in model order, for replicas to sum: they saw different
// micro-batches, and AverageStatistics makes them agree.
func (s *Stage) Statistics() []Vector {
	var all []Vector
	for _, b := range s.buffs {
		if b.Value.DType().IsFloat() {
			all = append(all, Vector{b.Name, b.Value})
		}
	}
	return all
}

// AverageStatistics divides the summed buffers by the number of replicas.
func (s *Stage) AverageStatistics(replicas int) error {
	return s.writeBuffers(func(_ int, b engine.Tensor) error { return engine.Divide(s.dev, b, float64(replicas)) })
}

// SetStatistics overwrites the buffers that Statistics lists.
func (s *Stage) SetStatistics(by []Vector) error {
	return s.writeBuffers(func(i int, b engine.Tensor) error { return engine.CopyInto(s.dev, b, by[i].Tensor) })
}

// writeBuffers changes the buffers that Statistics lists. Graphs of micro-batches under way have saved them
// and do not read them.
func (s *Stage) writeBuffers(change func(i int, b engine.Tensor) error) error {
	m := s.dev.Begin()
	defer s.dev.End(m)
	for i, v := range s.Statistics() {
		b, err := engine.Unseen(s.dev, v.Tensor)
		if err == nil {
			err = change(i, b)
		}
		if err != nil {
			return fmt.Errorf("stage: buffer %s: %w", v.Name, err)
		}
	}
	return nil
}

// TiedUse is the gradient of one layer's use of a parameter that other stages use too.
type TiedUse struct {
	Param *Param
	Layer int
	Vector
}

// TiedUses is the uses of parameters shared with other stages, in model order. Whoever
// sums them writes the sum over all stages, in layer order, to the first use of each parameter here.
func (s *Stage) TiedUses() ([]TiedUse, error) {
	if err := s.hold(); err != nil {
		return nil, err
	}
	var all []TiedUse
	for _, p := range s.params {
		if !p.Shared {
			continue
		}
		for _, u := range p.Uses {
			all = append(all, TiedUse{Param: p, Layer: u.Layer, Vector: Vector{p.Name, u.grad}})
		}
	}
	return all, nil
}

// Gather takes the gradients gathered so far in hand (Param.Gradient), those of parameters tied within this
// stage alone added up in layer order.
func (s *Stage) Gather() error {
	if err := s.hold(); err != nil {
		return err
	}
	if s.sums {
		return nil
	}
	s.sums = true
	m := s.dev.Begin()
	defer s.dev.End(m)
	return s.dev.NoGrad(func() error {
		for _, p := range s.params {
			if p.Shared {
				continue
			}
			for _, u := range p.Uses[1:] {
				if err := engine.AddInto(s.dev, p.Uses[0].grad, u.grad, 1); err != nil {
					return fmt.Errorf("stage: gradient of %s: %w", p.Name, err)
				}
			}
		}
		return nil
	})
}

// Norms is the sums of squares, in float64, of the final gradients of the parameters that this stage owns, in
// model order; they make up the global norm, in which a tied parameter counts once, with its owner. The
// tensor is the caller's, nil where the stage owns no parameter.
func (s *Stage) Norms() (engine.Tensor, error) {
	if err := s.Gather(); err != nil {
		return nil, err
	}
	m := s.dev.Begin()
	defer s.dev.End(m)
	var squares []engine.Tensor
	for _, p := range s.params {
		if !s.Owns(p) {
			continue
		}
		q, err := engine.SquareSum(s.dev, p.Uses[0].grad)
		if err != nil {
			return nil, fmt.Errorf("stage: gradient of %s: %w", p.Name, err)
		}
		squares = append(squares, q)
	}
	if len(squares) == 0 {
		return nil, nil
	}
	all, err := engine.Stack(s.dev, squares)
	if err != nil {
		return nil, err
	}
	return s.dev.Disown(all), nil
}

// GlobalNorm is the root of the sum of squares, given in model order.
func GlobalNorm(squares []float64) float64 {
	total := 0.0
	for _, q := range squares {
		total += q
	}
	return math.Sqrt(total)
}

// GradientBytes is the memory of the gradients of all uses of all parameters.
func (s *Stage) GradientBytes() int64 {
	var n int64
	for _, p := range s.params {
		n += int64(len(p.Uses)) * p.Value.Bytes()
	}
	return n
}
