package stage

import (
	"fmt"
	"math"
	"slices"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/stage/optim"
)

// Elastic averaging (AvgPipe, PPoPP 2023, §3.2) on tensors. A pipeline's stage and the
// reference's are Stages of the same layers on the same Device; the reference has no
// optimizer states and sees no micro-batch but those of evaluations.

// Push is what a pipeline's update leaves for the reference: the step of its optimizer by
// parameter, and its buffers, which both become the Push's.
type Push struct {
	steps, buffers []engine.Tensor
}

// Free drops a Push that is not applied.
func (p *Push) Free() {
	for _, t := range append(p.steps, p.buffers...) {
		free(t)
	}
	p.steps, p.buffers = nil, nil
}

// UpdateElastic is Update of a pipeline that is pulled towards the reference: with x the
// weights, z the reference's and u the optimizer's step from x, the weights become
// (1-alpha) x + alpha z + u, added up in this order, or in the printed order
// (1-alpha)(x + u) + alpha z.
func (s *Stage) UpdateElastic(settings optim.Settings, step optim.Step, reference *Stage, e *plan.Elastic) (*Push, error) {
	if len(reference.params) != len(s.params) || len(reference.buffs) != len(s.buffs) {
		return nil, fmt.Errorf("stage: the reference has %d parameters and %d buffers of layers %d to %d; the pipeline %d and %d",
			len(reference.params), len(reference.buffs), s.First, s.Last, len(s.params), len(s.buffs))
	}
	if err := s.sumUses(); err != nil {
		return nil, err
	}
	s.version++
	s.gathers, s.sums = s.version, false
	push, at := &Push{}, 0
	err := s.eachLayer(func(params []*Param) error {
		targets := reference.params[at : at+len(params)]
		at += len(params)
		return s.elasticLayer(params, targets, settings, step, e, push)
	})
	for _, b := range s.buffs {
		if err == nil {
			var t engine.Tensor
			if t, err = engine.Copy(s.dev, b.Value); err == nil {
				push.buffers = append(push.buffers, s.dev.Disown(t))
			}
		}
	}
	if err != nil {
		push.Free()
		return nil, err
	}
	return push, nil
}

// elasticLayer updates the parameters of one layer, and adds their steps to push.
func (s *Stage) elasticLayer(params, reference []*Param, settings optim.Settings, step optim.Step, e *plan.Elastic, push *Push) error {
	m := s.dev.Begin()
	defer s.dev.End(m)
	before := make([]engine.Tensor, len(params))
	for i, p := range params {
		var err error
		if before[i], err = engine.Copy(s.dev, p.Value); err != nil {
			return err
		}
	}
	if err := s.updateLayer(params, settings, step); err != nil {
		return err
	}
	return s.dev.NoGrad(func() error {
		for i, p := range params {
			u, err := engine.Copy(s.dev, p.Value)
			if err != nil {
				return err
			}
			err = engine.AddInto(s.dev, u, before[i], -1.0)
			if e.Order == plan.DiluteFirst && err == nil {
				err = engine.CopyInto(s.dev, p.Value, before[i])
			}
			if err == nil {
				err = engine.Scale(s.dev, p.Value, 1-e.Alpha)
			}
			if err == nil {
				err = engine.AddInto(s.dev, p.Value, reference[i].Value, e.Alpha)
			}
			if e.Order == plan.DiluteFirst && err == nil {
				err = engine.AddInto(s.dev, p.Value, u, 1.0)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", p.Name, err)
			}
			push.steps = append(push.steps, s.dev.Disown(u))
			before[i].Free()
		}
		return nil
	})
}

// Apply moves the reference by the mean of the steps of all pipelines, added up in the order
// given, and takes the mean of their buffers; of buffers that are no floats the first
// pipeline's. It uses the pushes up.
func (s *Stage) Apply(pushes []*Push) error {
	defer func() {
		for _, p := range pushes {
			p.Free()
		}
	}()
	s.version++
	s.gathers = s.version
	mean := 1 / float64(len(pushes))
	m := s.dev.Begin()
	defer s.dev.End(m)
	return s.dev.NoGrad(func() error {
		at := 0
		err := s.eachLayer(func(params []*Param) error {
			for _, p := range params {
				total := pushes[0].steps[at]
				for _, other := range pushes[1:] {
					if err := engine.AddInto(s.dev, total, other.steps[at], 1.0); err != nil {
						return fmt.Errorf("reference of %s: %w", p.Name, err)
					}
				}
				if err := engine.AddInto(s.dev, p.Value, total, mean); err != nil {
					return fmt.Errorf("reference of %s: %w", p.Name, err)
				}
				at++
			}
			return nil
		})
		if err != nil {
			return err
		}
		for i, b := range s.buffs {
			total := pushes[0].buffers[i]
			err := error(nil)
			if b.Value.DType().IsFloat() {
				for _, other := range pushes[1:] {
					if err == nil {
						err = engine.AddInto(s.dev, total, other.buffers[i], 1.0)
					}
				}
				if err == nil {
					err = engine.Scale(s.dev, total, mean)
				}
			}
			if err == nil {
				err = engine.CopyInto(s.dev, b.Value, total)
			}
			if err != nil {
				return fmt.Errorf("stage: reference of %s: %w", b.Name, err)
			}
		}
		return nil
	})
}

// Apart is how far the average of the pipelines' parameters is from the reference's, the largest
// difference over the largest value; and that value.
func (s *Stage) Apart(pipelines []*Stage) (difference, scale float64, err error) {
	for i, p := range s.params {
		z, err := s.values(p.Value)
		if err != nil {
			return 0, 0, err
		}
		sum := make([]float64, len(z))
		for _, other := range pipelines {
			x, err := s.values(other.params[i].Value)
			if err != nil {
				return 0, 0, err
			}
			for k := range sum {
				sum[k] += x[k]
			}
		}
		for k := range z {
			difference = max(difference, math.Abs(sum[k]/float64(len(pipelines))-z[k]))
			scale = max(scale, math.Abs(z[k]))
		}
	}
	return difference, scale, nil
}

// values is a float tensor's numbers in float64. It waits for the device.
func (s *Stage) values(t engine.Tensor) ([]float64, error) {
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
