package optim

import (
	"math"

	"github.com/millrace-ml/millrace/internal/registry"
)

// The learning-rate schedules.
const (
	Constant   = "constant"
	StepDecay  = "step"
	Cosine     = "cosine"
	Polynomial = "polynomial"
)

// Rate is a schedule of learning rates. Every kind can warm up: over the first Warmup steps the rate rises linearly.
// Step Warmup, counted from 0, has the rate Base.
type Rate struct {
	Kind   string  `json:"kind" yaml:"kind"`
	Base   float64 `json:"base" yaml:"base"`
	Warmup int     `json:"warmup,omitempty" yaml:"warmup"` // number of steps
	Total  int     `json:"total,omitempty" yaml:"total"`   // steps until cosine and polynomial reach Floor, with warm-up
	Floor  float64 `json:"floor,omitempty" yaml:"floor"`   // last rate of cosine and polynomial
	Every  int     `json:"every,omitempty" yaml:"every"`   // kind step: number of steps between two decays
	Factor float64 `json:"factor,omitempty" yaml:"factor"` // kind step: factor of each decay
	Power  float64 `json:"power,omitempty" yaml:"power"`   // kind polynomial: exponent; 1 is linear
}

// Scaled returns the schedule with all its rates multiplied.
func (r Rate) Scaled(by float64) Rate {
	r.Base *= by
	r.Floor *= by
	return r
}

// Check refuses schedules that are not defined.
func (r Rate) Check() error {
	finite := func(v float64) bool { return v >= 0 && !math.IsInf(v, 0) }
	switch {
	case !finite(r.Base):
		return wrong("base", "is %v; give a learning rate, 0 or more", r.Base)
	case r.Warmup < 0:
		return wrong("warmup", "is %d; give a number of steps, 0 or more", r.Warmup)
	}
	switch r.Kind {
	case Constant:
		return nil
	case StepDecay:
		if r.Every < 1 || !finite(r.Factor) {
			return wrong("kind", "is step, every %d steps times %v; it needs every, 1 or more, and factor, 0 or more",
				r.Every, r.Factor)
		}
		return nil
	case Cosine, Polynomial:
		switch {
		case r.Total <= r.Warmup:
			return wrong("warmup", "is %d of %d steps in total, and the %s schedule begins behind it; the total must be more",
				r.Warmup, r.Total, r.Kind)
		case !finite(r.Floor) || r.Floor > r.Base:
			return wrong("floor", "is %v; give a rate from 0 to the base rate, %v", r.Floor, r.Base)
		case r.Kind == Polynomial && (r.Power <= 0 || math.IsInf(r.Power, 0) || math.IsNaN(r.Power)):
			return wrong("power", "is %v; give a number above 0", r.Power)
		}
		return nil
	}
	return wrong("kind", "is %w", registry.OneOf(r.Kind, []string{Constant, StepDecay, Cosine, Polynomial}))
}

// At returns the learning rate of a step, counted from 0.
func (r Rate) At(step int) float64 {
	if step < r.Warmup {
		return r.Base * float64(step+1) / float64(r.Warmup+1)
	}
	step -= r.Warmup
	switch r.Kind {
	case StepDecay:
		return r.Base * math.Pow(r.Factor, float64(step/r.Every))
	case Cosine:
		// Loshchilov and Hutter, SGDR, ICLR 2017, equation 5, one period.
		return r.Floor + (r.Base-r.Floor)*(1+math.Cos(math.Pi*r.done(step)))/2
	case Polynomial:
		return r.Floor + (r.Base-r.Floor)*math.Pow(1-r.done(step), r.Power)
	}
	return r.Base
}

// done returns the fraction of the decay that is complete `step` steps after the warm-up. It is at most 1.
func (r Rate) done(step int) float64 {
	return min(1, float64(step)/float64(r.Total-r.Warmup))
}

// ClipScale returns the factor that makes the gradients' global norm at most `limit`; a limit of 0 means no clipping.
// Pascanu et al., On the difficulty of training recurrent neural networks, ICML 2013, Algorithm 1.
func ClipScale(norm, limit float64) float64 {
	if limit <= 0 || norm <= limit {
		return 1
	}
	return limit / norm
}
