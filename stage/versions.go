package stage

import (
	"fmt"
	"slices"

	"github.com/millrace-ml/millrace/engine"
)

// Renewal says what an update does with the weights that it starts from.
type Renewal uint8

const (
	// Replace updates the weights in place; nothing will read the previous version.
	Replace Renewal = iota
	// Keep updates a copy, because the backwards of micro-batches in flight still use the previous version (PipeDream
	// §3.3, weight stashing).
	Keep
	// Overwrite updates the weights in place although micro-batches in flight have read them. Their backward uses the
	// newest weights (the policy `latest`). Values that operators saved in the forward stay as they were: activations,
	// and a batch norm's mean and deviation. Under recompute the forward is repeated with the newest weights.
	Overwrite
)

// weights is an older version of a stage's parameters. Buffers have only one version.
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

// Versions holds the number of the newest weights, and the older weights that micro-batches in flight still need. Their
// backwards use these older weights. The newest weights are in Params. Once weights were overwritten, every version has
// the newest values.
type Versions struct {
	c           *Config
	params      *Params
	newest      int
	older       map[int]*weights
	overwritten bool // an update has overwritten older versions
}

// Newest returns the number of the newest weights: how many updates the stage has had.
func (v *Versions) Newest() int { return v.newest }

// Held returns how many versions of the weights the stage holds.
func (v *Versions) Held() int { return 1 + len(v.older) }

// Updates returns how many updates p has had, for Adam's bias corrections. It includes the updates that values from
// Initial have had already (Config.Before). It can be smaller than the run's steps, since an update may cover several
// steps, and it can differ between layers.
func (v *Versions) Updates(p *Param) int { return p.before + v.newest }

// Writable returns the value of a parameter for an update in place.
func (v *Versions) Writable(p *Param) (engine.Tensor, error) {
	if v.overwritten {
		return engine.Unseen(v.c.Device, p.Value)
	}
	return p.Value, nil
}

// leaves returns the tensors that the layers read if they use the given version of the weights.
func (v *Versions) leaves(version int) ([][]engine.Tensor, error) {
	if version == v.newest || v.overwritten && version < v.newest {
		return v.params.leaves, nil
	}
	if w := v.older[version]; w != nil {
		return w.leaves, nil
	}
	return nil, fmt.Errorf("stage: layers %d to %d are asked for version %d of their weights; the newest is %d and %d "+
		"older ones are held", v.c.First, v.c.Last, version, v.newest, len(v.older))
}

// shown returns the weights for an evaluation. In place of every parameter that has been updated, it returns the state
// that Shown names. Before the first update that state has no value.
func (v *Versions) shown() [][]engine.Tensor {
	at := slices.Index(v.c.States, v.c.Shown)
	if at < 0 {
		return v.params.leaves
	}
	states := map[engine.Tensor]engine.Tensor{}
	for _, p := range v.params.Learned {
		for _, u := range p.Uses {
			if v.Updates(p) > 0 {
				states[u.leaf] = p.State[at]
			}
		}
	}
	all := make([][]engine.Tensor, len(v.params.leaves))
	for l, leaves := range v.params.leaves {
		for _, leaf := range leaves {
			if state, ok := states[leaf]; ok {
				leaf = state
			}
			all[l] = append(all[l], leaf)
		}
	}
	return all
}

// uses returns the leaves of a version, by parameter and use.
func (v *Versions) uses(version int) [][]engine.Tensor {
	if w := v.older[version]; w != nil {
		return w.uses
	}
	all := make([][]engine.Tensor, len(v.params.Learned))
	for i, p := range v.params.Learned {
		for _, u := range p.Uses {
			all[i] = append(all[i], u.leaf)
		}
	}
	return all
}

// keep stores the newest weights as an older version, and makes copies of them the newest. The gradients must have been
// taken off the old leaves before (Gradients.leave).
func (v *Versions) keep() error {
	a := v.params
	old := &weights{uses: v.uses(v.newest), leaves: a.leaves}
	a.leaves = make([][]engine.Tensor, len(old.leaves))
	for l := range old.leaves {
		a.leaves[l] = append(a.leaves[l], old.leaves[l]...)
	}
	fresh := map[engine.Tensor]engine.Tensor{}
	for _, p := range a.Learned {
		old.values = append(old.values, p.Value)
		if err := v.copyParam(p, fresh); err != nil {
			return fmt.Errorf("stage: parameter %s: %w", p.Name, err)
		}
	}
	for l := range a.leaves {
		for i, t := range a.leaves[l] {
			if n := fresh[t]; n != nil {
				a.leaves[l][i] = n
			}
		}
	}
	v.older[v.newest] = old
	return nil
}

// copyParam makes a copy of p's value its newest value. The map `fresh` has the new leaf for each old leaf.
func (v *Versions) copyParam(p *Param, fresh map[engine.Tensor]engine.Tensor) error {
	dev := v.c.Device
	m := dev.Begin()
	defer dev.End(m)
	c, err := engine.Copy(dev, p.Value)
	if err != nil {
		return err
	}
	for i := range p.Uses {
		u := &p.Uses[i]
		leaf, err := dev.Leaf(c, true)
		if err != nil {
			return err
		}
		dev.Disown(leaf)
		fresh[u.leaf] = leaf
		u.leaf = leaf
	}
	p.Value = p.Uses[0].leaf
	return nil
}

func (v *Versions) advance(how Renewal) {
	v.overwritten = v.overwritten || how == Overwrite
	v.newest++
}

// back makes the previous version, which was kept, the newest.
func (v *Versions) back() error {
	old := v.older[v.newest-1]
	if old == nil {
		return fmt.Errorf("stage: version %d of layers %d to %d is not there to go back to; the newest is %d", v.newest-1,
			v.c.First, v.c.Last, v.newest)
	}
	delete(v.older, v.newest-1)
	v.newest--
	v.params.leaves = old.leaves
	for i, p := range v.params.Learned {
		for j := range p.Uses {
			if u := &p.Uses[j]; u.leaf != p.Value {
				free(u.leaf)
			}
			p.Uses[j].leaf = old.uses[i][j]
		}
		free(p.Value)
		p.Value = old.values[i]
	}
	return nil
}

// isOlder returns an error if a version is not one of the older versions that the stage holds.
func (v *Versions) isOlder(version int) error {
	if v.older[version] == nil {
		return fmt.Errorf("stage: there is no older version %d of layers %d to %d to drop; the newest is %d", version,
			v.c.First, v.c.Last, v.newest)
	}
	return nil
}

// drop frees an older version. The caller makes sure that no gradients gather on it.
func (v *Versions) drop(version int) {
	w := v.older[version]
	delete(v.older, version)
	w.free()
}

func (v *Versions) free() {
	for version := range v.older {
		v.drop(version)
	}
}
