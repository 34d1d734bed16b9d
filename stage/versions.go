package stage

import (
	"fmt"

	"github.com/millrace-ml/millrace/engine"
)

// Renewal is what an update does with the weights it starts from.
type Renewal uint8

const (
	// Replace steps the weights in place: nobody will read the version before any more.
	Replace Renewal = iota
	// Keep steps a copy, because micro-batches under way still go back through the version
	// before (PipeDream §3.3, weight stashing).
	Keep
	// Overwrite steps the weights in place although micro-batches under way have read them: their
	// backward reads what is there when it comes (the policy `latest`). What operators kept
	// of their forward besides, activations and a batch norm's mean and deviation, stays;
	// under recompute the forward is made again, from the weights that are there.
	Overwrite
)

// weights is an older version of a stage's parameters. Buffers have one version only.
type weights struct {
	values []engine.Tensor   // by parameter
	uses   [][]engine.Tensor // by parameter and use: the leaves
	leaves [][]engine.Tensor // by layer from First: what layers read, buffers included
}

func (w *weights) free() {
	for i, v := range w.values {
		for _, leaf := range w.uses[i] {
			if leaf != v {
				free(leaf)
			}
		}
		free(v)
	}
}

// Version is the number of the newest weights: how many updates the stage has had.
func (s *Stage) Version() int { return s.version }

// Versions is how many versions of the weights the stage holds.
func (s *Stage) Versions() int { return 1 + len(s.older) }

// Drop frees an older version, which no micro-batch may use any more.
func (s *Stage) Drop(version int) error {
	w := s.older[version]
	if w == nil {
		return fmt.Errorf("stage: there is no older version %d of layers %d to %d to drop; the newest is %d", version,
			s.First, s.Last, s.version)
	}
	if err := s.gatherOn(s.version); err != nil {
		return err
	}
	delete(s.older, version)
	w.free()
	return nil
}

// Settle drops every version but the newest.
func (s *Stage) Settle() error {
	for v := range s.older {
		if err := s.Drop(v); err != nil {
			return err
		}
	}
	return nil
}

// leavesOf is what the layers read under a version.
func (s *Stage) leavesOf(version int) ([][]engine.Tensor, error) {
	if version == s.version || s.overwritten && version < s.version {
		return s.leaves, nil
	}
	if w := s.older[version]; w != nil {
		return w.leaves, nil
	}
	return nil, fmt.Errorf("stage: layers %d to %d are asked for version %d of their weights; the newest is %d and %d "+
		"older ones are held", s.First, s.Last, version, s.version, len(s.older))
}

// gatherOn moves the gradients gathered so far to the leaves of the version that the next
// backward goes through, so that they add up in the order of the backwards whichever
// weights each of them uses.
func (s *Stage) gatherOn(version int) error {
	if s.overwritten {
		version = s.version
	}
	if version == s.gathers {
		return nil
	}
	if version != s.version && s.older[version] == nil {
		return fmt.Errorf("stage: layers %d to %d go back through version %d of their weights, "+
			"which version %d has replaced", s.First, s.Last, version, s.version)
	}
	from, to := s.usesOf(s.gathers), s.usesOf(version)
	s.gathers = version
	for i := range to {
		for k, leaf := range to[i] {
			if err := moveGrad(s.dev, from[i][k], leaf); err != nil {
				return fmt.Errorf("stage: gradient of %s: %w", s.params[i].Name, err)
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

// usesOf is the leaves of a version by parameter and use.
func (s *Stage) usesOf(version int) [][]engine.Tensor {
	if w := s.older[version]; w != nil {
		return w.uses
	}
	all := make([][]engine.Tensor, len(s.params))
	for i, p := range s.params {
		for _, u := range p.Uses {
			all[i] = append(all[i], u.leaf)
		}
	}
	return all
}

// keep puts the newest weights aside as an older version and makes copies of them the newest.
// Gradients must be in hand (hold): the leaves they gathered on are put aside too.
func (s *Stage) keep() error {
	old := &weights{uses: s.usesOf(s.version), leaves: s.leaves}
	s.leaves = make([][]engine.Tensor, len(old.leaves))
	for l := range old.leaves {
		s.leaves[l] = append(s.leaves[l], old.leaves[l]...)
	}
	fresh := map[engine.Tensor]engine.Tensor{}
	for _, p := range s.params {
		old.values = append(old.values, p.Value)
		for _, u := range p.Uses {
			if s.exchanged {
				continue // what the leaf gathers is the next update's, and moves on when that goes on
			}
			if err := s.dev.SetGrad(u.leaf, nil); err != nil {
				return err
			}
		}
		if err := s.copyParam(p, fresh); err != nil {
			return fmt.Errorf("stage: parameter %s: %w", p.Name, err)
		}
	}
	for l := range s.leaves {
		for i, t := range s.leaves[l] {
			if n := fresh[t]; n != nil {
				s.leaves[l][i] = n
			}
		}
	}
	s.older[s.version] = old
	return nil
}

// copyParam gives p a copy of its value to go on with, and notes in fresh which leaf each
// leaf became.
func (s *Stage) copyParam(p *Param, fresh map[engine.Tensor]engine.Tensor) error {
	m := s.dev.Begin()
	defer s.dev.End(m)
	c, err := engine.Copy(s.dev, p.Value)
	if err != nil {
		return err
	}
	for i := range p.Uses {
		u := &p.Uses[i]
		leaf, err := s.dev.Leaf(c, true)
		if err != nil {
			return err
		}
		s.dev.Disown(leaf)
		fresh[u.leaf] = leaf
		u.leaf = leaf
	}
	p.Value = p.Uses[0].leaf
	return nil
}
