package update

import (
	"fmt"
	"math"
	"slices"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/internal/crash"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/stage"
)

// averaging holds the pipelines of a stage and their reference. The reference has no optimizer states, and computes
// micro-batches only in evaluations.
type averaging struct {
	*plan.Elastic
	number    int // number of the stage
	pipelines []*pipeline
	reference *stage.Stage
}

// pipeline is the Updater of a pipeline, which is pulled towards the reference.
type pipeline struct {
	*plain
	of     *averaging
	number int
	left   []*push // steps that the reference has not taken yet
}

// reference is the Updater of the reference model.
type reference struct {
	*plain
	of   *averaging
	seen int // updates that another device has made
}

// push holds what a pipeline's update hands over to the reference: the optimizer's step for each parameter, and the
// buffers.
type push struct {
	steps, buffers []engine.Tensor
}

func (p *push) free() {
	for _, t := range slices.Concat(p.steps, p.buffers) {
		t.Free()
	}
	p.steps, p.buffers = nil, nil
}

// newElastic makes the Updaters of the pipelines and, after them, of the reference. For a single pipeline it makes a
// plain Updater.
func newElastic(c Config, stages []*stage.Stage) ([]Updater, error) {
	switch {
	case c.Averaging == nil:
		return nil, fmt.Errorf("update: the updater %s of stage %d has no settings: how many pipelines, and alpha", Elastic,
			c.Stage)
	case c.Averaging.Pipelines == 1:
		return plainly(c, stages)
	case len(stages) != c.Averaging.Pipelines+1:
		return nil, fmt.Errorf("update: %d models of stage %d; elastic averaging of %d pipelines has %d, the reference's "+
			"the last",
			len(stages), c.Stage, c.Averaging.Pipelines, c.Averaging.Pipelines+1)
	}
	last := len(stages) - 1
	of := &averaging{Elastic: c.Averaging, number: c.Stage, reference: stages[last]}
	var all []Updater
	for i, s := range stages[:last] {
		have, want := &s.Params, &of.reference.Params
		if len(have.Learned) != len(want.Learned) || len(have.Buffers) != len(want.Buffers) {
			return nil, fmt.Errorf("update: the reference has %d parameters and %d buffers of layers %d to %d; pipeline %d "+
				"has %d and %d",
				len(want.Learned), len(want.Buffers), s.First, s.Last, i, len(have.Learned), len(have.Buffers))
		}
		p := &pipeline{plain: &plain{stage: s, optimizer: c.Optimizer}, of: of, number: i}
		of.pipelines, all = append(of.pipelines, p), append(all, p)
	}
	return append(all, &reference{plain: &plain{stage: of.reference}, of: of}), nil
}

// Update pulls the pipeline towards the reference and leaves its step for the reference. Let x be the weights, z the
// reference's, and u the optimizer's step from x. The weights become (1-alpha) x + alpha z + u, added in this order,
// or in the paper's printed order (1-alpha)(x + u) + alpha z.
func (p *pipeline) Update(step Step) error {
	if len(p.left) > 0 && !p.of.Besides() {
		return fmt.Errorf("the reference of stage %d has not yet taken the step that pipeline %d left before", p.of.number,
			p.number)
	}
	left := &push{}
	if err := crash.Guard(func() error { return p.update(step, left) }); err != nil {
		left.free()
		return fmt.Errorf("pipeline %d died before it left its step in the queue of the reference of stage %d: %w", p.number,
			p.of.number, err)
	}
	p.left = append(p.left, left)
	return nil
}

func (p *pipeline) update(step Step, left *push) error {
	s, at := p.stage, 0
	if err := p.renew(step.Renewal); err != nil {
		return err
	}
	err := s.EachLayer(func(params []*stage.Param) error {
		targets := p.of.reference.Params.Learned[at : at+len(params)]
		at += len(params)
		return p.pullLayer(params, targets, step, left)
	})
	for _, b := range s.Params.Buffers {
		if err == nil {
			var t engine.Tensor
			if t, err = engine.Copy(s.Device, b.Value); err == nil {
				left.buffers = append(left.buffers, s.Device.Disown(t))
			}
		}
	}
	return err
}

// pullLayer updates the parameters of one layer, and adds their steps to `left`.
func (p *pipeline) pullLayer(params, reference []*stage.Param, step Step, left *push) error {
	dev, e := p.stage.Device, p.of.Elastic
	m := dev.Begin()
	defer dev.End(m)
	before := make([]engine.Tensor, len(params))
	for i, x := range params {
		var err error
		if before[i], err = engine.Copy(dev, x.Value); err != nil {
			return err
		}
	}
	if err := p.stepLayer(params, step); err != nil {
		return err
	}
	return dev.NoGrad(func() error {
		for i, x := range params {
			u, err := engine.Copy(dev, x.Value)
			if err != nil {
				return err
			}
			err = engine.AddInto(dev, u, before[i], -1.0)
			if e.Order == plan.DiluteFirst && err == nil {
				err = engine.CopyInto(dev, x.Value, before[i])
			}
			if err == nil {
				err = engine.Scale(dev, x.Value, 1-e.Alpha)
			}
			if err == nil {
				err = engine.AddInto(dev, x.Value, reference[i].Value, e.Alpha)
			}
			if e.Order == plan.DiluteFirst && err == nil {
				err = engine.AddInto(dev, x.Value, u, 1.0)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", x.Name, err)
			}
			left.steps = append(left.steps, dev.Disown(u))
			before[i].Free()
		}
		return nil
	})
}

func (p *pipeline) Close() {
	for _, left := range p.left {
		left.free()
	}
	p.left = nil
}

// Update moves the reference by the mean of all pipelines' steps, summed in ascending order of pipelines. Float buffers
// become the mean over the pipelines; other buffers become the first pipeline's. The steps are used up.
func (r *reference) Update(step Step) error {
	queue, err := r.oldest()
	if err != nil {
		return err
	}
	defer func() {
		for _, p := range r.of.pipelines {
			p.left[0].free()
			p.left = p.left[1:]
		}
	}()
	if err := crash.Guard(func() error { return r.apply(queue, step.Renewal) }); err != nil {
		return fmt.Errorf("the reference of stage %d died with the steps of %d pipelines in its queue: %w", r.of.number,
			len(queue), err)
	}
	return nil
}

// oldest returns the oldest step in the queue of each pipeline.
func (r *reference) oldest() (queue []*push, err error) {
	for _, p := range r.of.pipelines {
		if len(p.left) == 0 {
			return nil, fmt.Errorf("pipeline %d has left no step in the queue of the reference of stage %d", p.number,
				r.of.number)
		}
		queue = append(queue, p.left[0])
	}
	return queue, nil
}

func (r *reference) apply(queue []*push, how stage.Renewal) error {
	s := r.stage
	if err := s.Renew(how); err != nil {
		return err
	}
	m := s.Device.Begin()
	defer s.Device.End(m)
	return s.Device.NoGrad(func() error {
		at := 0
		err := s.EachLayer(func(params []*stage.Param) error {
			from := at
			at += len(params)
			layer := make([]*push, len(queue))
			for i, p := range queue {
				layer[i] = &push{steps: p.steps[from:at]}
			}
			names, values := tensorsOf(params)
			return move(s.Device, layer, names, values, len(values))
		})
		if err != nil {
			return err
		}
		names, values := tensorsOf(s.Params.Buffers)
		return move(s.Device, queue, names, values, 0)
	})
}

func tensorsOf(params []*stage.Param) (names []string, values []engine.Tensor) {
	for _, p := range params {
		names, values = append(names, p.Name), append(values, p.Value)
	}
	return names, values
}

// sumInto adds up one tensor of every push, in ascending order, into the first push's tensor.
func sumInto(dev engine.Device, queue []*push, of func(*push) engine.Tensor) (engine.Tensor, error) {
	total := of(queue[0])
	for _, other := range queue[1:] {
		if err := engine.AddInto(dev, total, of(other), 1.0); err != nil {
			return nil, err
		}
	}
	return total, nil
}

// Apart returns the largest difference between the average of the pipelines' parameters and the reference's parameters,
// divided by the reference's largest value.
func (r *reference) Apart() (float64, error) {
	var difference, scale float64
	for i, p := range r.stage.Params.Learned {
		z, err := stage.Values(r.stage.Device, p.Value)
		if err != nil {
			return 0, err
		}
		sum := make([]float64, len(z))
		for _, other := range r.of.pipelines {
			x, err := stage.Values(other.stage.Device, other.stage.Params.Learned[i].Value)
			if err != nil {
				return 0, err
			}
			for k := range sum {
				sum[k] += x[k]
			}
		}
		for k := range z {
			difference = max(difference, math.Abs(sum[k]/float64(len(r.of.pipelines))-z[k]))
			scale = max(scale, math.Abs(z[k]))
		}
	}
	return difference / max(scale, math.SmallestNonzeroFloat64), nil
}
