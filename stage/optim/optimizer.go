package optim

import (
	"errors"
	"fmt"
	"math"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/internal/registry"
)

// The optimizers.
const (
	SGD   = "sgd"
	Adam  = "adam"
	AdamW = "adamw"
)

// ErrRange is what a step fails with that would multiply float32 parameters by a number which float32 does
// not hold.
var ErrRange = errors.New("beyond the numbers of float32")

// Settings is an optimizer and its coefficients. The learning rate is not among them:
// it comes with every step.
type Settings struct {
	Kind        string  `json:"kind" yaml:"kind"`
	Momentum    float64 `json:"momentum,omitempty" yaml:"momentum"` // SGD: 0 keeps no state
	Nesterov    bool    `json:"nesterov,omitempty" yaml:"nesterov"` // SGD with momentum
	WeightDecay float64 `json:"weight_decay,omitempty" yaml:"weight_decay"`
	Beta1       float64 `json:"beta1,omitempty" yaml:"beta1"`     // Adam, AdamW
	Beta2       float64 `json:"beta2,omitempty" yaml:"beta2"`     // Adam, AdamW
	Epsilon     float64 `json:"epsilon,omitempty" yaml:"epsilon"` // Adam, AdamW
}

// FieldError refuses a setting of an optimizer or a rate.
type FieldError struct {
	Field string // by its key
	Err   error  // what it is, and what would be right
}

func (e *FieldError) Error() string { return "optim: " + e.Field + " " + e.Err.Error() }
func (e *FieldError) Unwrap() error { return e.Err }

func wrong(field, format string, args ...any) error {
	return &FieldError{field, fmt.Errorf(format, args...)}
}

// Default is the usual coefficients of a kind.
func Default(kind string) (Settings, error) {
	switch kind {
	case SGD:
		return Settings{Kind: SGD}, nil
	case Adam:
		return Settings{Kind: Adam, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8}, nil
	case AdamW:
		return Settings{Kind: AdamW, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8, WeightDecay: 0.01}, nil
	}
	return Settings{}, wrong("kind", "is %w", registry.OneOf(kind, []string{SGD, Adam, AdamW}))
}

// Check refuses settings under which a step is not defined.
func (s Settings) Check() error {
	if _, err := Default(s.Kind); err != nil {
		return err
	}
	in := func(name string, v, lo, hi float64) error {
		if v >= lo && v < hi {
			return nil
		}
		if math.IsInf(hi, 1) {
			return wrong(name, "is %v; give %v or more for %s", v, lo, s.Kind)
		}
		return wrong(name, "is %v; give %v or more for %s, and less than %v", v, lo, s.Kind, hi)
	}
	if err := in("weight_decay", s.WeightDecay, 0, math.Inf(1)); err != nil {
		return err
	}
	if s.Kind == SGD {
		if s.Nesterov && s.Momentum == 0 {
			return wrong("nesterov", "is of sgd with momentum; set momentum, 0.9 for instance")
		}
		return in("momentum", s.Momentum, 0, 1)
	}
	if s.Momentum != 0 || s.Nesterov {
		return wrong("momentum", "is of sgd, and this is %s, where beta1 plays its part; leave it out", s.Kind)
	}
	if err := in("beta1", s.Beta1, 0, 1); err != nil {
		return err
	}
	if err := in("beta2", s.Beta2, 0, 1); err != nil {
		return err
	}
	if s.Epsilon <= 0 || math.IsInf(s.Epsilon, 0) || math.IsNaN(s.Epsilon) {
		return wrong("epsilon", "is %v; give a number above 0", s.Epsilon)
	}
	return nil
}

// FitFloat32 refuses settings and rates that float32 parameters cannot be stepped with.
func FitFloat32(s Settings, r Rate) error {
	switch {
	case r.Base > math.MaxFloat32:
		return wrong("base", "is %v; give at most %.4g, the largest number of float32", r.Base, math.MaxFloat32)
	case s.WeightDecay > math.MaxFloat32:
		return wrong("weight_decay", "is %v; give at most %.4g, the largest number of float32", s.WeightDecay,
			math.MaxFloat32)
	case s.Epsilon > math.MaxFloat32, s.Epsilon > 0 && float32(s.Epsilon) == 0:
		return wrong("epsilon", "is %v; in float32 it must be above 0, and at most %.4g", s.Epsilon, math.MaxFloat32)
	}
	return nil
}

// States names the tensors, each of the parameter's shape and zero at first, that the
// optimizer keeps for every parameter.
func (s Settings) States() []string {
	switch {
	case s.Kind != SGD:
		return []string{"mean", "variance"}
	case s.Momentum != 0:
		return []string{"momentum"}
	}
	return nil
}

// Slot is one parameter about to be stepped.
type Slot struct {
	Param   engine.Tensor
	Grad    engine.Tensor   // used up: its values are undefined afterwards
	State   []engine.Tensor // as States names them
	Count   int             // updates of this parameter including this one: 1 the first time
	NoDecay bool            // exempt from weight decay
}

// Step is the circumstances of one update.
type Step struct {
	Rate      float64 // learning rate
	GradScale float64 // what gradients are multiplied by first: the clipping coefficient over the minibatches summed
}

// Apply steps every slot, in order. It must run on dev's goroutine.
func (s Settings) Apply(dev engine.Device, step Step, slots []Slot) error {
	return dev.NoGrad(func() error {
		for i := range slots {
			m := dev.Begin()
			err := s.apply(dev, step, &slots[i])
			dev.End(m)
			if err != nil {
				return fmt.Errorf("optim: %s: parameter %d: %w", s.Kind, i, err)
			}
		}
		return nil
	})
}

func (s Settings) apply(dev engine.Device, step Step, p *Slot) error {
	c := caller{dev: dev, single: p.Param.DType() == engine.Float32}
	if step.GradScale != 1 {
		c.call("aten::mul_.Scalar", p.Grad, step.GradScale)
	}
	decay := s.WeightDecay
	if p.NoDecay {
		decay = 0
	}
	switch s.Kind {
	case SGD:
		s.sgd(&c, step, p, decay)
	case Adam:
		if decay != 0 {
			c.call("aten::add_.Tensor", p.Grad, p.Param, decay)
		}
		s.adam(&c, step, p)
	case AdamW:
		if decay != 0 {
			c.call("aten::mul_.Scalar", p.Param, 1-step.Rate*decay)
		}
		s.adam(&c, step, p)
	}
	return c.err
}

// sgd: g += decay p; b = momentum b + g; p -= rate b, or with Nesterov rate (g + momentum b).
// Sutskever et al., On the importance of initialization and momentum, ICML 2013, in the
// form that multiplies by the rate last.
func (s Settings) sgd(c *caller, step Step, p *Slot, decay float64) {
	if decay != 0 {
		c.call("aten::add_.Tensor", p.Grad, p.Param, decay)
	}
	direction := p.Grad
	if s.Momentum != 0 {
		b := p.State[0]
		c.call("aten::mul_.Scalar", b, s.Momentum)
		c.call("aten::add_.Tensor", b, p.Grad, 1.0)
		direction = b
		if s.Nesterov {
			c.call("aten::add_.Tensor", p.Grad, b, s.Momentum)
			direction = p.Grad
		}
	}
	c.call("aten::add_.Tensor", p.Param, direction, -step.Rate)
}

// adam: Kingma and Ba, Adam, ICLR 2015, Algorithm 1, with the bias corrections drawn into
// the rate and epsilon (their section 2), which saves a pass over the parameter:
// p -= rate sqrt(c2)/c1 * m / (sqrt(v) + epsilon sqrt(c2)), c_i = 1 - beta_i^t.
// AdamW's decay (Loshchilov and Hutter, ICLR 2019, Algorithm 2) has happened before.
func (s Settings) adam(c *caller, step Step, p *Slot) {
	mean, variance := p.State[0], p.State[1]
	c1 := 1 - math.Pow(s.Beta1, float64(p.Count))
	c2 := math.Sqrt(1 - math.Pow(s.Beta2, float64(p.Count)))
	c.call("aten::mul_.Scalar", mean, s.Beta1)
	c.call("aten::add_.Tensor", mean, p.Grad, 1-s.Beta1)
	c.call("aten::mul_.Scalar", variance, s.Beta2)
	c.call("aten::addcmul_", variance, p.Grad, p.Grad, 1-s.Beta2)
	root := c.call("aten::sqrt", variance)
	c.call("aten::add_.Scalar", root, s.Epsilon*c2)
	c.call("aten::addcdiv_", p.Param, mean, root, -step.Rate*c2/c1)
}

// caller makes calls until one fails.
type caller struct {
	dev    engine.Device
	single bool // of float32 parameters
	err    error
}

func (c *caller) call(op string, args ...any) engine.Tensor {
	if c.err != nil {
		return nil
	}
	for _, x := range args {
		if v, ok := x.(float64); ok && c.single && !(math.Abs(v) <= math.MaxFloat32) {
			c.err = fmt.Errorf("%s by %v: %w; lower the learning rate", op, v, ErrRange)
			return nil
		}
	}
	out, err := c.dev.Call(op, args...)
	if err != nil {
		c.err = err
		return nil
	}
	if len(out) != 1 {
		c.err = fmt.Errorf("%s returned %d tensors; 1 was expected", op, len(out))
		return nil
	}
	return out[0]
}
