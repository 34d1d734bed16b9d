package update

import (
	"fmt"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/stage"
)

// deferred sets gradients aside once they are complete. So the next minibatch gathers its own while replicas sum the
// complete ones. Update and Norms use the gradients that were set aside first.
type deferred struct {
	*plain
	aside []*stage.Aside
	sums  []sum
}

// sum holds the buffers that replicas sum for a later update.
type sum struct {
	vectors  []stage.Vector
	forwards int // how many forwards the stage had computed when the buffers were taken
}

func (s *sum) free() {
	for _, v := range s.vectors {
		v.Tensor.Free()
	}
}

func (u *deferred) Complete() error {
	g, err := u.stage.Gradients.SetAside()
	if err == nil {
		u.aside = append(u.aside, g)
	}
	return err
}

func (u *deferred) Norms() (engine.Tensor, error) {
	if len(u.aside) == 0 {
		return nil, u.nothing()
	}
	defer u.stage.Gradients.Exchange(u.aside[0])()
	return u.stage.Gradients.Norms()
}

// Statistics returns copies, since the next minibatch's forwards write to the buffers while the sum goes on.
func (u *deferred) Statistics() ([]stage.Vector, error) {
	s := sum{forwards: u.stage.Forwards()}
	for _, v := range u.stage.Statistics.Vectors() {
		c, err := stage.Copy(u.stage.Device, v.Tensor)
		if err != nil {
			s.free()
			return nil, fmt.Errorf("%s: %w", v.Name, err)
		}
		s.vectors = append(s.vectors, stage.Vector{Name: v.Name, Tensor: c})
	}
	u.sums = append(u.sums, s)
	return s.vectors, nil
}

// AverageStatistics uses the mean only if no forward was computed between the sum and the update, that is, at the end
// of the stream. The statistics are linear in their inputs, so the result at the end is the same as if every step had
// used the mean.
func (u *deferred) AverageStatistics(replicas int) error {
	if len(u.sums) == 0 {
		return nil
	}
	s := u.sums[0]
	u.sums = u.sums[1:]
	defer s.free()
	if s.forwards != u.stage.Forwards() {
		return nil
	}
	if err := u.stage.Statistics.Set(s.vectors); err != nil {
		return err
	}
	return u.stage.Statistics.Average(replicas)
}

func (u *deferred) Update(step Step) error {
	if len(u.aside) == 0 {
		return u.nothing()
	}
	g := u.aside[0]
	back := u.stage.Gradients.Exchange(g)
	defer func() {
		back()
		g.Free()
		u.aside = u.aside[1:]
	}()
	return u.plain.Update(step)
}

func (u *deferred) nothing() error {
	return fmt.Errorf("update: no gradients of layers %d to %d are complete", u.stage.First, u.stage.Last)
}

func (u *deferred) Close() {
	for _, g := range u.aside {
		g.Free()
	}
	for _, s := range u.sums {
		s.free()
	}
	u.aside, u.sums = nil, nil
}
