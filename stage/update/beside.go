package update

import (
	"fmt"
	"slices"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/internal/crash"
	"github.com/millrace-ml/millrace/stage"
)

// The reference may be on another device than its pipelines. In AvgPipe (§3.2) a separate process manages it, behind
// message queues. The pipelines' device then keeps a copy of the reference, as it was when they last received it, and
// pulls the pipelines towards this copy. The other device holds the reference itself, and moves it by the pipelines'
// steps. The steps are sent from the pipelines' device to the other one, and copies of the reference are sent back.
// Each step and each copy comes with an event. Once that event is set, another device may read it.

// Beside is the Updater of a reference that may be updated on another device.
type Beside interface {
	Updater
	// Take removes each pipeline's oldest step from the queue, and returns these steps for the other device.
	Take() (*Steps, error)
	// Give copies this device's reference. The other device begins with this copy.
	Give() (*Copy, error)
	// See stores a newer copy of the reference. The pipelines' next updates and evaluations use it.
	See(*Copy) error
}

// Steps holds the pipelines' steps for one update of the reference.
type Steps struct {
	stage int
	of    []*push
	Ready engine.Event // set when the steps are complete
}

// Free frees the steps.
func (s *Steps) Free() {
	for _, p := range s.of {
		p.free()
	}
}

// Copy is a copy of the reference, for another device.
type Copy struct {
	names  []string
	values []engine.Tensor // parameters, then buffers
	of     int             // how many of the values are parameters
	Moved  int             // how many updates the Mover had made before the copy; 0 in the copy with which it began
	Ready  engine.Event    // set when the copy is complete
}

// Free frees the copy.
func (c *Copy) Free() {
	for _, t := range c.values {
		t.Free()
	}
	c.values = nil
}

// Take implements Beside.
func (r *reference) Take() (*Steps, error) {
	queue, err := r.oldest()
	if err != nil {
		return nil, err
	}
	for _, p := range r.of.pipelines {
		p.left = p.left[1:]
	}
	return &Steps{stage: r.of.number, of: queue, Ready: r.stage.Device.Record()}, nil
}

// Give implements Beside.
func (r *reference) Give() (*Copy, error) {
	c := &Copy{of: len(r.stage.Params.Learned)}
	var all []engine.Tensor
	c.names, all = tensorsOf(slices.Concat(r.stage.Params.Learned, r.stage.Params.Buffers))
	return c, c.fill(r.stage.Device, all)
}

// fill copies a device's tensors into the Copy, and sets Ready.
func (c *Copy) fill(dev engine.Device, all []engine.Tensor) error {
	m := dev.Begin()
	defer dev.End(m)
	for i, t := range all {
		one, err := engine.Copy(dev, t)
		if err != nil {
			c.Free()
			return fmt.Errorf("reference of %s: %w", c.names[i], err)
		}
		c.values = append(c.values, dev.Disown(one))
	}
	c.Ready = dev.Record()
	return nil
}

// adopt moves the Copy's tensors to a device, into the innermost scope there.
func (c *Copy) adopt(dev engine.Device) ([]engine.Tensor, error) {
	if err := dev.Await(c.Ready); err != nil {
		return nil, err
	}
	all := c.values
	c.values = nil
	for i, t := range all {
		mine, err := dev.Adopt(t)
		if err != nil {
			for _, t := range all[i:] {
				t.Free()
			}
			return nil, fmt.Errorf("reference of %s: %w", c.names[i], err)
		}
		all[i] = mine
	}
	return all, nil
}

// See implements Beside.
func (r *reference) See(c *Copy) error {
	s := r.stage
	m := s.Device.Begin()
	defer s.Device.End(m)
	values, err := c.adopt(s.Device)
	for ; r.seen < c.Moved && err == nil; r.seen++ {
		err = s.Renew(stage.Replace)
	}
	if err != nil {
		return err
	}
	seen := slices.Concat(s.Params.Learned, s.Params.Buffers)
	return s.Device.NoGrad(func() error {
		for i, t := range values {
			if err := engine.CopyInto(s.Device, seen[i].Value, t); err != nil {
				return fmt.Errorf("reference of %s: %w", seen[i].Name, err)
			}
		}
		return nil
	})
}

// Mover holds the reference on a device of its own.
type Mover struct {
	dev    engine.Device
	names  []string
	values []engine.Tensor
	of     int
	moved  int
}

// NewMover returns a Mover that begins with a copy of the reference.
func NewMover(dev engine.Device, c *Copy) (*Mover, error) {
	values, err := c.adopt(dev)
	for _, t := range values {
		dev.Disown(t)
	}
	return &Mover{dev: dev, names: c.names, values: values, of: c.of}, err
}

// Move moves the reference by the mean of steps, as the Update of a reference does, and uses the steps up. If `await`
// is true, the device first waits until the steps are complete; only a test passes false.
func (m *Mover) Move(s *Steps, await bool) error {
	defer s.Free()
	err := crash.Guard(func() error {
		if await {
			if err := m.dev.Await(s.Ready); err != nil {
				return err
			}
		}
		mark := m.dev.Begin()
		defer m.dev.End(mark)
		for _, p := range s.of {
			if err := p.adopt(m.dev); err != nil {
				return err
			}
		}
		return m.dev.NoGrad(func() error { return move(m.dev, s.of, m.names, m.values, m.of) })
	})
	if err != nil {
		return fmt.Errorf("the reference of stage %d died with the steps of %d pipelines in its queue: %w", s.stage,
			len(s.of), err)
	}
	m.moved++
	return nil
}

// Give copies the reference in its present state.
func (m *Mover) Give() (*Copy, error) {
	c := &Copy{names: m.names, of: m.of, Moved: m.moved}
	return c, c.fill(m.dev, m.values)
}

// Close frees the reference.
func (m *Mover) Close() {
	for _, t := range m.values {
		t.Free()
	}
}

// adopt moves a push's tensors to another device, into the innermost scope there.
func (p *push) adopt(dev engine.Device) error {
	for _, all := range [][]engine.Tensor{p.steps, p.buffers} {
		for i, t := range all {
			mine, err := dev.Adopt(t)
			if err != nil {
				return err
			}
			all[i] = mine
		}
	}
	return nil
}

// move moves a reference's parameters by the mean of the pipelines' steps, summed in ascending order of pipelines.
// Float buffers become the mean of the pipelines' buffers; other buffers become the first pipeline's.
func move(dev engine.Device, queue []*push, names []string, values []engine.Tensor, params int) error {
	mean := 1 / float64(len(queue))
	for i, z := range values {
		of := func(p *push) engine.Tensor {
			if i < params {
				return p.steps[i]
			}
			return p.buffers[i-params]
		}
		total, err := of(queue[0]), error(nil)
		if z.DType().IsFloat() {
			total, err = sumInto(dev, queue, of)
		}
		switch {
		case err != nil:
		case i < params:
			err = engine.AddInto(dev, z, total, mean)
		default:
			if z.DType().IsFloat() {
				err = engine.Scale(dev, total, mean)
			}
			if err == nil {
				err = engine.CopyInto(dev, z, total)
			}
		}
		if err != nil {
			return fmt.Errorf("reference of %s: %w", names[i], err)
		}
	}
	return nil
}
