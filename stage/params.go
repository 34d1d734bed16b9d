package stage

import (
	"fmt"
	"slices"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/model"
)

// Param is one parameter or buffer that a stage holds. A tied parameter is one Param with several uses. If its owner
// is on another stage, this stage has a copy of its own.
type Param struct {
	Name    string // the owner's name for it: "embed.weight"
	Layer   int    // the owner's position in the model; it may be on another stage
	Index   int    // position among the owner's parameters
	Buffer  bool
	Frozen  bool
	NoDecay bool
	Value   engine.Tensor // the leaf
	State   []engine.Tensor
	Uses    []Use       // in layer order
	Owned   bool        // its owner is on this stage, which saves it
	Shared  bool        // layers outside of this stage use it too
	before  int         // updates that the parameter had before this stage was made
	rows    *model.Rows // its rows of the whole parameter, if its layer is divided; nil: all
}

// Use is one layer's use of a parameter. The gradients of a parameter's uses gather separately. Before the update they
// are added in layer order.
type Use struct {
	Layer int
	leaf  engine.Tensor // the Value itself, or another leaf on the same memory
	grad  engine.Tensor // gradient in hand; nil if there is none
}

// Gradient returns the gradient for the next update, once the stage has it in hand (Gradients.Gather).
func (p *Param) Gradient() engine.Tensor { return p.Uses[0].grad }

func (p *Param) learned() bool { return !p.Buffer && !p.Frozen }

func (p *Param) free() {
	for _, u := range p.Uses {
		if u.leaf != p.Value {
			free(u.leaf)
		}
		free(u.grad)
	}
	free(p.Value)
	for _, t := range p.State {
		free(t)
	}
}

// Params holds a stage's parameters, each once and with its newest value, in model order.
type Params struct {
	Learned []*Param
	Buffers []*Param // values that forwards may write
	Frozen  []*Param // values that never change: constants, which need not be finite, and frozen parameters

	c      *Config
	leaves [][]engine.Tensor // by layer from First: parameters and buffers in the order that nn expects
}

// all returns the learned parameters, the buffers and the frozen values, one after the other.
func (a *Params) all() []*Param { return slices.Concat(a.Learned, a.Buffers, a.Frozen) }

// Snapshot returns everything that training needs to continue: the parameters this stage owns, their optimizer states,
// buffers and frozen values. The vectors change with the next update.
func (a *Params) Snapshot() []Vector {
	var all []Vector
	for _, p := range a.all() {
		if !p.Owned {
			continue
		}
		all = append(all, Vector{p.Name, p.Value})
		if p.learned() {
			for i, state := range a.c.States {
				all = append(all, Vector{StateName(p.Name, state), p.State[i]})
			}
		}
	}
	return all
}

// Copies returns copies of the learned parameters, by index in Learned, for another stage of the same layers
// (Stage.TakeWeights). They belong to the caller.
func (a *Params) Copies() (Tensors, error) {
	all := Tensors{}
	for i, p := range a.Learned {
		err := a.inScope(p, func(value engine.Tensor) (err error) {
			all[i], err = Copy(a.c.Device, value)
			return err
		})
		if err != nil {
			all.Free()
			return nil, err
		}
	}
	return all, nil
}

// overwrite sets the learned parameters to these values, by index in Learned.
func (a *Params) overwrite(values Tensors) error {
	for i, p := range a.Learned {
		err := a.inScope(p, func(value engine.Tensor) error { return engine.CopyInto(a.c.Device, value, values[i]) })
		if err != nil {
			return err
		}
	}
	return nil
}

// inScope calls the function `do`, which may read or write a parameter's value, in a scope of its own. Autograd graphs
// do not record what it does.
func (a *Params) inScope(p *Param, do func(value engine.Tensor) error) error {
	dev := a.c.Device
	m := dev.Begin()
	defer dev.End(m)
	value, err := engine.Unseen(dev, p.Value)
	if err == nil {
		err = do(value)
	}
	if err != nil {
		return fmt.Errorf("stage: parameter %s: %w", p.Name, err)
	}
	return nil
}

func (a *Params) free() {
	for _, p := range a.all() {
		p.free()
	}
	a.Learned, a.Buffers, a.Frozen = nil, nil, nil
}

// ownerOf follows a tie to the layer and the position that own parameter i of layer l.
func ownerOf(m *model.Model, l, i int) (name string, layer, index int, err error) {
	p := &m.Layers[l].Params[i]
	if p.Tied == "" {
		return m.Layers[l].ParamName(i), l, i, nil
	}
	for o := range m.Layers[:l+1] {
		for k := range m.Layers[o].Params {
			if q := &m.Layers[o].Params[k]; q.Tied == "" && m.Layers[o].ParamName(k) == p.Tied {
				return p.Tied, o, k, nil
			}
		}
	}
	return "", 0, 0, fmt.Errorf("stage: layer %s: %s is tied to %q, which no layer before it owns", m.Layers[l].Name,
		p.Name, p.Tied)
}

func usedOutside(m *model.Model, name string, first, last int) bool {
	for l := range m.Layers {
		if l >= first && l <= last {
			continue
		}
		for k, p := range m.Layers[l].Params {
			if p.Tied == name || p.Tied == "" && m.Layers[l].ParamName(k) == name {
				return true
			}
		}
	}
	return false
}

// StateName returns the name that a parameter's optimizer state has in a checkpoint.
func StateName(param, state string) string { return param + "#" + state }
