package stage

import (
	"fmt"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/stage/optim"
)

// Post-validation on tensors (Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024, §4): an
// update goes before the norm of all stages' gradients is known, and is confirmed or taken back
// when it is. The paper undoes the optimizer's arithmetic in place; that gives the old weights back
// up to rounding. Here everything that the update changes is kept, so that what is made again
// has the bits of an update that waited.

// tentative is what an update that may be taken back has left: the weights before are an older
// version of the stage, the gradients stay in hand.
type tentative struct {
	states  [][]engine.Tensor // by parameter, before the update
	buffers []engine.Tensor   // before the forwards behind it
}

func (k *tentative) free() {
	for _, states := range k.states {
		for _, t := range states {
			free(t)
		}
	}
	for _, t := range k.buffers {
		free(t)
	}
}

// UpdateTentatively is Update with copies of weights, optimizer states and gradients, so that
// TakeBack can undo it. Confirm or TakeBack comes before the stage's next backward.
func (s *Stage) UpdateTentatively(settings optim.Settings, step optim.Step) error {
	if s.tentative != nil {
		return fmt.Errorf("stage: layers %d to %d are updated while their last update is neither confirmed nor taken back", s.First, s.Last)
	}
	if err := s.sumUses(); err != nil {
		return err
	}
	s.tentative = &tentative{}
	if err := s.keep(); err != nil {
		return err
	}
	if err := s.keepStates(); err != nil {
		return err
	}
	s.version++
	s.gathers, s.sums = s.version, false
	return s.eachLayer(func(params []*Param) error { return s.updateLayer(params, settings, step) })
}

// keepStates puts the optimizer states aside, gives the parameters copies of them, and copies the
// buffers, which the forwards to come overwrite.
func (s *Stage) keepStates() error {
	k := s.tentative
	m := s.dev.Begin()
	defer s.dev.End(m)
	for _, p := range s.params {
		k.states = append(k.states, p.State)
		p.State = nil
		for _, t := range k.states[len(k.states)-1] {
			c, err := engine.Copy(s.dev, t)
			if err != nil {
				return fmt.Errorf("stage: states of %s: %w", p.Name, err)
			}
			p.State = append(p.State, s.dev.Disown(c))
		}
	}
	for _, b := range s.buffs {
		c, err := engine.Copy(s.dev, b.Value)
		if err != nil {
			return fmt.Errorf("stage: buffer %s: %w", b.Name, err)
		}
		k.buffers = append(k.buffers, s.dev.Disown(c))
	}
	return nil
}

// Confirm lets go of what the last update, a tentative one, could be taken back to.
func (s *Stage) Confirm() error {
	k := s.tentative
	if k == nil {
		return s.nothingTentative()
	}
	s.tentative = nil
	k.free()
	for _, p := range s.params {
		for i := range p.Uses {
			free(p.Uses[i].grad)
			p.Uses[i].grad = nil
		}
	}
	return s.Drop(s.version - 1)
}

// TakeBack undoes the last update, a tentative one: weights, optimizer states and buffers are
// what they were, the gradients are in hand for another Update. Micro-batches under way, which went
// forward with the weights taken back, are thrown away; it returns how many.
func (s *Stage) TakeBack() (thrown int, err error) {
	k := s.tentative
	if k == nil {
		return 0, s.nothingTentative()
	}
	s.tentative = nil
	defer k.free()
	thrown = len(s.open)
	for micro, f := range s.open {
		f.free()
		delete(s.open, micro)
	}
	old := s.older[s.version-1]
	delete(s.older, s.version-1)
	s.version--
	s.gathers, s.sums = s.version, true
	s.leaves = old.leaves
	for i, p := range s.params {
		for j := range p.Uses {
			if u := &p.Uses[j]; u.leaf != p.Value {
				free(u.leaf)
			}
			p.Uses[j].leaf = old.uses[i][j]
		}
		free(p.Value)
		p.Value = old.values[i]
		p.State, k.states[i] = k.states[i], p.State
	}
	for i, b := range s.buffs {
		if err := engine.CopyInto(s.dev, b.Value, k.buffers[i]); err != nil {
			return thrown, fmt.Errorf("stage: buffer %s: %w", b.Name, err)
		}
	}
	return thrown, nil
}

func (s *Stage) nothingTentative() error {
	return fmt.Errorf("stage: the last update of layers %d to %d is not one that can be taken back", s.First, s.Last)
}
