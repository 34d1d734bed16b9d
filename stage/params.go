package stage

import (
	"fmt"
	"slices"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/model"
)

// Param is one parameter or buffer that a stage holds. A tied parameter is one Param
// with several uses; where its owner is on another stage this is a copy of its own.
type Param struct {
	Name    string // of the owner: "embed.weight"
	Layer   int    // the owner's position in the model, which may be on another stage
	Index   int    // among the owner's parameters
	Buffer  bool
	Frozen  bool
	NoDecay bool
	Value   engine.Tensor // leaf
	State   []engine.Tensor
	Uses    []Use       // in layer order
	Shared  bool        // layers outside of this stage use it too
	before  int         // updates before those of this stage
	rows    *model.Rows // of the whole parameter, where its layer is divided; nil: all
}

// Use is one layer's reading of a parameter. Gradients of the uses gather apart and are
// added in layer order at the flush.
type Use struct {
	Layer int
	leaf  engine.Tensor // the Value itself, or another leaf on the same memory
	grad  engine.Tensor // held from the flush to the update
}

// Owns says whether this stage is the one that saves p.
func (s *Stage) Owns(p *Param) bool { return p.Layer >= s.First && p.Layer <= s.Last }

// Updates is how many updates p has had, those before Initial included: what Adam's bias corrections go by.
// It falls behind the steps of a run where an update covers several, and layers differ in it.
func (s *Stage) Updates(p *Param) int { return p.before + s.version }

// Params is the stage's learned parameters in model order, Buffers the buffers that forwards may write.
func (s *Stage) Params() []*Param  { return s.params }
func (s *Stage) Buffers() []*Param { return s.buffs }

// Frozen is what nobody changes, in model order: constants, which need not be finite, and parameters that do not learn.
func (s *Stage) Frozen() []*Param { return s.frozen }

// Gradient is what the next update goes by, once the stage has it in hand (Stage.Gather).
func (p *Param) Gradient() engine.Tensor { return p.Uses[0].grad }

// makeParams makes every parameter that a layer of the stage reads.
func (s *Stage) makeParams() error {
	m := s.Graph.Model
	byName := map[string]*Param{}
	s.leaves = make([][]engine.Tensor, s.Last-s.First+1)
	for l := s.First; l <= s.Last; l++ {
		layer := &m.Layers[l]
		for i := range layer.Params {
			name, owner, index, err := ownerOf(m, l, i)
			if err != nil {
				return err
			}
			p := byName[name]
			if p == nil {
				described := &m.Layers[owner].Params[index]
				p = &Param{
					Name: name, Layer: owner, Index: index, Buffer: described.Buffer, Frozen: described.Frozen,
					NoDecay: described.NoDecay, Shared: usedOutside(m, name, s.First, s.Last), rows: described.Rows,
				}
				byName[name] = p
				switch {
				case p.Frozen:
					s.frozen = append(s.frozen, p)
				case p.Buffer:
					s.buffs = append(s.buffs, p)
				default:
					s.params = append(s.params, p)
				}
				if s.Before != nil {
					p.before = s.Before(owner)
				}
				if err := s.fill(p); err != nil {
					return fmt.Errorf("stage: parameter %s: %w", name, err)
				}
			}
			leaf := p.Value
			if len(p.Uses) > 0 && p.learned() {
				if leaf, err = s.dev.Leaf(p.Value, true); err != nil {
					return fmt.Errorf("stage: parameter %s: %w", name, err)
				}
				s.dev.Disown(leaf)
			}
			p.Uses = append(p.Uses, Use{Layer: l, leaf: leaf})
			s.leaves[l-s.First] = append(s.leaves[l-s.First], leaf)
		}
	}
	return nil
}

func (p *Param) learned() bool { return !p.Buffer && !p.Frozen }

// shown is what layers read in an evaluation: the state that Shown names in the place of every parameter that has had
// an update, which gave the state its first value.
func (s *Stage) shown() [][]engine.Tensor {
	at := slices.Index(s.States, s.Shown)
	if at < 0 {
		return s.leaves
	}
	states := map[engine.Tensor]engine.Tensor{}
	for _, p := range s.params {
		for _, u := range p.Uses {
			if s.Updates(p) > 0 {
				states[u.leaf] = p.State[at]
			}
		}
	}
	all := make([][]engine.Tensor, len(s.leaves))
	for l, leaves := range s.leaves {
		for _, leaf := range leaves {
			if state, ok := states[leaf]; ok {
				leaf = state
			}
			all[l] = append(all[l], leaf)
		}
	}
	return all
}

// ownerOf follows a tie to the layer and position that own parameter i of layer l.
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

// fill gives p its first values and its states, which start at zero.
func (s *Stage) fill(p *Param) error {
	m := s.dev.Begin()
	err := s.fillInScope(p)
	s.dev.End(m)
	return err
}

func (s *Stage) fillInScope(p *Param) error {
	first, err := s.firstValues(p)
	if err != nil {
		return err
	}
	leaf, err := s.dev.Leaf(first, p.learned())
	if err != nil {
		return err
	}
	p.Value = s.dev.Disown(leaf)
	if !p.learned() {
		return nil
	}
	for _, state := range s.States {
		var t engine.Tensor
		if s.Initial == nil {
			t, err = s.dev.Full(first.DType(), first.Shape(), 0)
		} else {
			t, err = s.restored(p, state, s.Float)
		}
		if err != nil {
			return err
		}
		p.State = append(p.State, s.dev.Disown(t))
	}
	return nil
}

// StateName is what the optimizer's state of a parameter is called in a checkpoint.
func StateName(param, state string) string { return param + "#" + state }

func shapeOf(dims []int) []int64 {
	shape := make([]int64, len(dims))
	for i, n := range dims {
		shape[i] = int64(n)
	}
	return shape
}
