package stage

import (
	"fmt"
	"slices"

	"github.com/millrace-ml/millrace/engine"
)

// What an updater (package update) does to a stage: Gather, Renew, EachLayer with Writable and Forget for
// each, and where it may be taken back Return; SetAside and Exchange where the gradients of several updates
// are on their way.

// Renew makes the next version of the weights, of the values of the one before until whoever updates has
// changed them. Gradients must be in hand if how is Keep.
func (s *Stage) Renew(how Renewal) error {
	if how == Keep {
		if err := s.keep(); err != nil {
			return err
		}
	}
	s.overwritten = s.overwritten || how == Overwrite
	s.version++
	if how != Keep || !s.exchanged {
		s.gathers = s.version
	}
	s.sums, s.taken = false, false
	return nil
}

// Return goes back to the version before, which a Renew that keeps has put aside. The gradients in hand stay.
func (s *Stage) Return() error {
	old := s.older[s.version-1]
	if old == nil {
		return fmt.Errorf("stage: version %d of layers %d to %d is not there to go back to; the newest is %d", s.version-1,
			s.First, s.Last, s.version)
	}
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
	}
	return nil
}

// Abandon throws away the micro-batches under way, and returns how many there were.
func (s *Stage) Abandon() (thrown int) {
	thrown = len(s.open)
	for micro, f := range s.open {
		f.free()
		delete(s.open, micro)
	}
	return thrown
}

// EachLayer calls update with the parameters of each layer that has any, in model order; one that is tied
// belongs to its first layer here.
func (s *Stage) EachLayer(update func([]*Param) error) error {
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

// Writable is the value of a parameter, to be stepped in place.
func (s *Stage) Writable(p *Param) (engine.Tensor, error) {
	if s.overwritten {
		return engine.Unseen(s.dev, p.Value)
	}
	return p.Value, nil
}

// Forget lets the gradients in hand of these parameters go.
func (s *Stage) Forget(params []*Param) error {
	for _, p := range params {
		for i := range p.Uses {
			u := &p.Uses[i]
			free(u.grad)
			u.grad = nil
			if s.exchanged {
				continue // what the leaf gathers is another update's
			}
			if err := s.dev.SetGrad(u.leaf, nil); err != nil {
				return err
			}
		}
	}
	return nil
}

// Gradients is the gradients of one update, out of the way of the next update's.
type Gradients struct {
	grads [][]engine.Tensor // by parameter and use
	sums  bool              // tied uses have been added up
}

// Free drops gradients that no update goes by.
func (g *Gradients) Free() {
	for _, uses := range g.grads {
		for _, t := range uses {
			free(t)
		}
	}
	g.grads = nil
}

// SetAside takes the gradients gathered so far as those of an update to come, so that the backwards behind it
// gather new ones. The vectors that LayerGradients has given out stay theirs.
func (s *Stage) SetAside() (*Gradients, error) {
	if err := s.hold(); err != nil {
		return nil, err
	}
	g := &Gradients{sums: s.sums}
	for _, p := range s.params {
		var uses []engine.Tensor
		for i := range p.Uses {
			u := &p.Uses[i]
			uses = append(uses, u.grad)
			u.grad = nil
			if err := s.dev.SetGrad(u.leaf, nil); err != nil {
				return nil, err
			}
		}
		g.grads = append(g.grads, uses)
	}
	s.sums = false
	return g, nil
}

// Exchange exchanges the gradients in hand with those that were set aside; what it returns exchanges them
// back.
func (s *Stage) Exchange(g *Gradients) (back func()) {
	swap := func() {
		for i, p := range s.params {
			for k := range p.Uses {
				p.Uses[k].grad, g.grads[i][k] = g.grads[i][k], p.Uses[k].grad
			}
		}
		s.sums, g.sums = g.sums, s.sums
		s.exchanged = !s.exchanged
	}
	swap()
	return swap
}

// Values is a float tensor's numbers in float64. It waits for the device.
func (s *Stage) Values(t engine.Tensor) ([]float64, error) {
	h, err := s.dev.ToHost(t)
	if err != nil {
		return nil, err
	}
	defer h.Free()
	if err := h.Ready().Wait(); err != nil {
		return nil, err
	}
	if t.DType() == engine.Float64 {
		return slices.Clone(engine.Numbers[float64](h.Bytes())), nil
	}
	narrow := engine.Numbers[float32](h.Bytes())
	out := make([]float64, len(narrow))
	for i, x := range narrow {
		out[i] = float64(x)
	}
	return out, nil
}
