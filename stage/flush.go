package stage

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/stage/optim"
)

// Vector is a gradient's own memory, for a collective to work on between the last
// backward of a step and its update. Other goroutines may use it.
type Vector struct {
	Name  string
	DType engine.DType
	Shape []int64
	Data  []byte
}

// hold takes a handle on the gradient of every use until the update. A use through which
// nothing flowed this step, on a replica without a micro-batch for instance, gets zeros.
func (s *Stage) hold() error {
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
			v, err := s.vector(p.Name, u.grad)
			if err != nil {
				return nil, err
			}
			all = append(all, v)
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

func (s *Stage) vector(name string, t engine.Tensor) (Vector, error) {
	data, err := s.dev.View(t)
	if err != nil {
		return Vector{}, fmt.Errorf("stage: %s: %w", name, err)
	}
	return Vector{Name: name, DType: t.DType(), Shape: t.Shape(), Data: data}, nil
}

// Gradients is the gradients of all uses of all parameters, in model order: what replicas
// sum. Uses stay apart, so that their sum in layer order comes after that over replicas,
// wherever the cuts are.
func (s *Stage) Gradients() ([]Vector, error) {
	if err := s.hold(); err != nil {
		return nil, err
	}
	var all []Vector
	for _, p := range s.params {
		for _, u := range p.Uses {
			v, err := s.vector(p.Name, u.grad)
			if err != nil {
				return nil, err
			}
			all = append(all, v)
		}
	}
	return all, nil
}

// Statistics is the buffers in model order, for replicas to sum: they saw different
// micro-batches, and AverageStatistics makes them agree.
func (s *Stage) Statistics() ([]Vector, error) {
	var all []Vector
	for _, b := range s.buffs {
		v, err := s.vector(b.Name, b.Value)
		if err != nil {
			return nil, err
		}
		if v.DType.IsFloat() {
			all = append(all, v)
		}
	}
	return all, nil
}

// AverageStatistics divides the summed buffers by the number of replicas.
func (s *Stage) AverageStatistics(replicas int) error {
	all, err := s.Statistics()
	if err != nil {
		return err
	}
	for _, v := range all {
		switch v.DType {
		case engine.Float32:
			for i, x := range numbers[float32](v.Data) {
				numbers[float32](v.Data)[i] = x / float32(replicas)
			}
		case engine.Float64:
			for i, x := range numbers[float64](v.Data) {
				numbers[float64](v.Data)[i] = x / float64(replicas)
			}
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
// sums them writes the sum over all stages, in layer order, to the memory of the first use
// of each parameter here.
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
			v, err := s.vector(p.Name, u.grad)
			if err != nil {
				return nil, err
			}
			all = append(all, TiedUse{Param: p, Layer: u.Layer, Vector: v})
		}
	}
	return all, nil
}

// sumUses adds up, in layer order, the uses of parameters tied within this stage alone.
func (s *Stage) sumUses() error {
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
				if _, err := s.dev.Call("aten::add_.Tensor", p.Uses[0].grad, u.grad, 1.0); err != nil {
					return fmt.Errorf("stage: gradient of %s: %w", p.Name, err)
				}
			}
		}
		return nil
	})
}

// Norms is the final gradients of the parameters that this stage owns, whose squares make up
// the global norm: a tied parameter counts once, with its owner.
func (s *Stage) Norms() ([]Vector, error) {
	defer s.recall()()
	if err := s.sumUses(); err != nil {
		return nil, err
	}
	var all []Vector
	for _, p := range s.params {
		if !s.Owns(p) {
			continue
		}
		v, err := s.vector(p.Name, p.Uses[0].grad)
		if err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	return all, nil
}

// SquareSum is the sum of squares of a float vector in float64. Eight partial sums keep the
// adder busy; their order is part of the result and never changes.
func SquareSum(v Vector) float64 {
	if v.DType == engine.Float32 {
		return squareSum(numbers[float32](v.Data))
	}
	return squareSum(numbers[float64](v.Data))
}

func squareSum[T float32 | float64](xs []T) float64 {
	var part [8]float64
	for len(xs) >= 8 {
		for i, x := range xs[:8] {
			part[i] += float64(x) * float64(x)
		}
		xs = xs[8:]
	}
	for i, x := range xs {
		part[i] += float64(x) * float64(x)
	}
	return ((part[0] + part[1]) + (part[2] + part[3])) + ((part[4] + part[5]) + (part[6] + part[7]))
}

// GlobalNorm is the root of the sum of squares, given in model order.
func GlobalNorm(squares []float64) float64 {
	total := 0.0
	for _, q := range squares {
		total += q
	}
	return math.Sqrt(total)
}

// Update steps every parameter with its gathered gradients and forgets them, which makes
// the next version of the weights. Parameters come layer by layer; one that is tied belongs
// to its first layer here.
func (s *Stage) Update(settings optim.Settings, step optim.Step, how Renewal) error {
	if len(s.aside) > 0 {
		back := s.recall()
		defer func() {
			back()
			s.aside = s.aside[1:]
		}()
	}
	if err := s.sumUses(); err != nil {
		return err
	}
	if how == Keep {
		if err := s.keep(); err != nil {
			return err
		}
	}
	s.overwritten = s.overwritten || how == Overwrite
	s.version++
	if how != Keep || len(s.aside) == 0 {
		s.gathers = s.version
	}
	s.sums = false
	return s.eachLayer(func(params []*Param) error { return s.updateLayer(params, settings, step) })
}

// eachLayer calls update with the parameters of each layer that has any.
func (s *Stage) eachLayer(update func([]*Param) error) error {
	for from := 0; from < len(s.params); {
		layer, to := s.params[from].Uses[0].Layer, from
		for to < len(s.params) && s.params[to].Uses[0].Layer == layer {
			to++
		}
		s.begin(Update, layer)
		err := update(s.params[from:to])
		s.end(Update, layer, nil)
		if err != nil {
			return s.failed(layer, err)
		}
		from = to
	}
	return nil
}

func (s *Stage) updateLayer(params []*Param, settings optim.Settings, step optim.Step) error {
	slots := make([]optim.Slot, len(params))
	m := s.dev.Begin()
	defer s.dev.End(m)
	for i, p := range params {
		value := p.Value
		if s.overwritten {
			// An alias with a version counter of its own: graphs under way do not notice.
			alias, err := s.dev.Call("aten::data", value)
			if err != nil {
				return err
			}
			value = alias[0]
		}
		slots[i] = optim.Slot{Param: value, Grad: p.Uses[0].grad, State: p.State, Count: s.Updates(p), NoDecay: p.NoDecay}
		if s.tentative != nil { // a step uses gradients up, and this one may be made again
			grad, err := s.clone(p.Uses[0].grad)
			if err != nil {
				return err
			}
			slots[i].Grad = grad
		}
	}
	if err := settings.Apply(s.dev, step, slots); err != nil || s.tentative != nil {
		return err
	}
	for _, p := range params {
		for i := range p.Uses {
			u := &p.Uses[i]
			free(u.grad)
			u.grad = nil
			if len(s.aside) > 0 {
				continue // what the leaf gathers is the next update's
			}
			if err := s.dev.SetGrad(u.leaf, nil); err != nil {
				return err
			}
		}
	}
	return nil
}

// numbers views bytes as the numbers they are in this machine's memory.
func numbers[T float32 | float64](b []byte) []T {
	if len(b) == 0 {
		return nil
	}
	var x T
	return unsafe.Slice((*T)(unsafe.Pointer(&b[0])), len(b)/int(unsafe.Sizeof(x)))
}

// GradientBytes is the memory of the gradients of all uses of all parameters.
func (s *Stage) GradientBytes() int64 {
	var n int64
	for _, p := range s.params {
		n += int64(len(p.Uses)) * p.Value.Bytes()
	}
	return n
}
