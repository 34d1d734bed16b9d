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
	LARS  = "lars"
	ASGD  = "asgd"
)

// Kinds returns the names of the optimizers.
func Kinds() []string { return []string{SGD, Adam, AdamW, LARS, ASGD} }

// ErrRange is the error of a step that multiplies float32 parameters by a factor outside the range of float32.
var ErrRange = errors.New("beyond the numbers of float32")

// Settings names an optimizer and holds its coefficients. The learning rate is not among them; each step passes its
// own.
type Settings struct {
	Kind        string  `json:"kind" yaml:"kind"`
	Momentum    float64 `json:"momentum,omitempty" yaml:"momentum"` // for SGD and LARS; 0 keeps no state
	Nesterov    bool    `json:"nesterov,omitempty" yaml:"nesterov"` // for SGD with momentum
	WeightDecay float64 `json:"weight_decay,omitempty" yaml:"weight_decay"`
	Beta1       float64 `json:"beta1,omitempty" yaml:"beta1"`     // for Adam and AdamW
	Beta2       float64 `json:"beta2,omitempty" yaml:"beta2"`     // for Adam and AdamW
	Epsilon     float64 `json:"epsilon,omitempty" yaml:"epsilon"` // for Adam and AdamW
	// Trust is LARS's coefficient. Without momentum and decay, a step at rate 1 changes a weight by a tensor whose norm
	// is this fraction of the weight's norm.
	Trust float64 `json:"trust,omitempty" yaml:"trust"`
	// AverageFrom is ASGD's first update, counted from 1, whose result enters the average. Evaluations use that
	// average.
	AverageFrom int `json:"average_from,omitempty" yaml:"average_from"`
}

// FieldError refuses a setting of an optimizer or of a rate.
type FieldError struct {
	Field string // key of the setting
	Err   error  // the value, and what would be right
}

func (e *FieldError) Error() string { return "optim: " + e.Field + " " + e.Err.Error() }
func (e *FieldError) Unwrap() error { return e.Err }

func wrong(field, format string, args ...any) error {
	return &FieldError{field, fmt.Errorf(format, args...)}
}

// average is the name of ASGD's state.
const average = "average"

// Default returns the usual coefficients of a kind.
func Default(kind string) (Settings, error) {
	switch kind {
	case SGD:
		return Settings{Kind: SGD}, nil
	case Adam:
		return Settings{Kind: Adam, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8}, nil
	case AdamW:
		return Settings{Kind: AdamW, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8, WeightDecay: 0.01}, nil
	case LARS:
		return Settings{Kind: LARS, Momentum: 0.9, WeightDecay: 5e-4, Trust: 1e-3}, nil
	case ASGD:
		return Settings{Kind: ASGD, AverageFrom: 1}, nil
	}
	return Settings{}, wrong("kind", "is %w", registry.OneOf(kind, Kinds()))
}

// Check refuses settings outside of their ranges, and settings that this kind does not have.
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
	switch {
	case s.Trust != 0 && s.Kind != LARS:
		return wrong("trust", "is of lars, and this is %s; leave it out", s.Kind)
	case s.AverageFrom != 0 && s.Kind != ASGD:
		return wrong("average_from", "is of asgd, and this is %s; leave it out", s.Kind)
	case s.Nesterov && s.Kind != SGD:
		return wrong("nesterov", "is of sgd, and this is %s; leave it out", s.Kind)
	}
	switch s.Kind {
	case SGD:
		if s.Nesterov && s.Momentum == 0 {
			return wrong("nesterov", "is of sgd with momentum; set momentum, 0.9 for instance")
		}
		return in("momentum", s.Momentum, 0, 1)
	case LARS:
		if !(s.Trust > 0) || math.IsInf(s.Trust, 0) {
			return wrong("trust", "is %v; give more than 0", s.Trust)
		}
		return in("momentum", s.Momentum, 0, 1)
	case ASGD:
		if s.Momentum != 0 {
			return wrong("momentum", "is of sgd and lars, and this is asgd; leave it out")
		}
		if s.AverageFrom < 1 {
			return wrong("average_from", "is %d; give an update, 1 for the first", s.AverageFrom)
		}
		return nil
	}
	if s.Momentum != 0 {
		return wrong("momentum", "is of sgd and lars, and this is %s, where beta1 plays its part; leave it out", s.Kind)
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

// FitFloat32 refuses settings and rates with which float32 parameters cannot be updated.
func FitFloat32(s Settings, r Rate) error {
	switch {
	case r.Base > math.MaxFloat32:
		return wrong("base", "is %v; give at most %.4g, the largest number of float32", r.Base, math.MaxFloat32)
	case s.WeightDecay > math.MaxFloat32:
		return wrong("weight_decay", "is %v; give at most %.4g, the largest number of float32", s.WeightDecay,
			math.MaxFloat32)
	case s.Trust > math.MaxFloat32:
		return wrong("trust", "is %v; give at most %.4g, the largest number of float32", s.Trust, math.MaxFloat32)
	case s.Epsilon > math.MaxFloat32, s.Epsilon > 0 && float32(s.Epsilon) == 0:
		return wrong("epsilon", "is %v; in float32 it must be above 0, and at most %.4g", s.Epsilon, math.MaxFloat32)
	}
	return nil
}

// States returns the names of the tensors that the optimizer keeps for every parameter. Each has the parameter's
// shape and begins at zero.
func (s Settings) States() []string {
	switch {
	case s.Kind == Adam || s.Kind == AdamW:
		return []string{"mean", "variance"}
	case s.Kind == ASGD:
		return []string{average}
	case s.Momentum != 0:
		return []string{"momentum"}
	}
	return nil
}

// Shown returns the name of the state that evaluations and exports read in place of the parameter, or "".
func (s Settings) Shown() string {
	if s.Kind == ASGD {
		return average
	}
	return ""
}

// Slot is one parameter to be updated.
type Slot struct {
	Param   engine.Tensor
	Grad    engine.Tensor   // used up: its values are undefined afterwards
	State   []engine.Tensor // in the order of States
	Count   int             // updates of this parameter, this one included: 1 the first time
	NoDecay bool            // exempt from weight decay
}

// Step holds the rate and the scale of one update.
type Step struct {
	Rate      float64 // learning rate
	GradScale float64 // factor for gradients: the clipping coefficient divided by the number of minibatches in the sum
}

// Apply updates every slot, in order. It must run on dev's goroutine.
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
	case LARS:
		s.lars(&c, step, p, decay)
	case ASGD:
		s.sgd(&c, step, p, decay)
		s.average(&c, p)
	}
	return c.err
}

// lars updates w by its gradient g, with velocity v: v = momentum v + rate trust |w| / (|g| + decay |w|) (g + decay w);
// w -= v. You, Gitman and Ginsburg, Large Batch Training of Convolutional Networks, 2017, Algorithm 1, with each
// parameter as a layer. Biases, gains and shifts are updated without trust and decay, since their norms say nothing
// about the norms of their gradients.
func (s Settings) lars(c *caller, step Step, p *Slot, decay float64) {
	if !p.NoDecay {
		c.call("millrace::lars_", p.Grad, p.Param, s.Trust, decay)
	}
	if s.Momentum == 0 {
		c.call("aten::add_.Tensor", p.Param, p.Grad, -step.Rate)
		return
	}
	v := p.State[0]
	c.call("aten::mul_.Scalar", v, s.Momentum)
	c.call("aten::add_.Tensor", v, p.Grad, step.Rate)
	c.call("aten::add_.Tensor", p.Param, v, -1.0)
}

// average keeps the mean of the parameter's values after the updates from AverageFrom on. Before AverageFrom it keeps
// the parameter itself. Polyak and Juditsky, Acceleration of Stochastic Approximation by Averaging, SIAM J. Control
// Optim. 30 (1992); used as by Merity, Keskar and Socher (Regularizing and Optimizing LSTM Language Models, 2017,
// section 3).
func (s Settings) average(c *caller, p *Slot) {
	mean, n := p.State[0], max(1, p.Count-s.AverageFrom+1)
	if n == 1 {
		c.call("aten::copy_", mean, p.Param)
		return
	}
	c.call("aten::mul_.Scalar", mean, 1-1/float64(n))
	c.call("aten::add_.Tensor", mean, p.Param, 1/float64(n))
}

// sgd updates p by its gradient g, with momentum buffer b: g += decay p; b = momentum b + g; p -= rate b, or with
// Nesterov p -= rate (g + momentum b). Sutskever et al., On the importance of initialization and momentum, ICML 2013,
// in the form that multiplies by the rate last.
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

// adam follows Kingma and Ba, Adam, ICLR 2015, Algorithm 1. The bias corrections are moved into the rate and epsilon
// (their section 2), which saves a pass over the parameter p: p -= rate sqrt(1-beta2^t)/(1-beta1^t) m / (sqrt(v) +
// epsilon sqrt(1-beta2^t)). m and v are the means of the gradient and of its square, and t counts updates. AdamW's
// decay (Loshchilov and Hutter, ICLR 2019, Algorithm 2) has been applied before.
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
	single bool // the parameters are float32
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
