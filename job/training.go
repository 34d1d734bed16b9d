package job

import (
	"errors"
	"fmt"

	"github.com/millrace-ml/millrace/stage/optim"
)

// fill gives a number its usual value where nobody has said another.
func fill[T int | float64](j *Job, key string, at *T, usual T) {
	if *at == Auto && !j.Given(key) {
		*at = usual
	}
}

// completeOptimizer fills in the optimizer: SGD with momentum for convnet, AdamW elsewhere.
func (j *Job) completeOptimizer() error {
	o, momentum := &j.Optimizer, 0.
	if o.Kind == "" {
		o.Kind = optim.AdamW
		if j.Model == "convnet" {
			o.Kind, momentum = optim.SGD, 0.9
		}
	}
	usual, err := optim.Default(o.Kind)
	if err != nil {
		return err
	}
	fill(j, "optimizer.momentum", &o.Momentum, momentum)
	fill(j, "optimizer.weight_decay", &o.WeightDecay, usual.WeightDecay)
	fill(j, "optimizer.beta1", &o.Beta1, usual.Beta1)
	fill(j, "optimizer.beta2", &o.Beta2, usual.Beta2)
	fill(j, "optimizer.epsilon", &o.Epsilon, usual.Epsilon)
	return o.Check()
}

// completeRate fills in the learning rate and its schedule.
func (j *Job) completeRate() error {
	r := &j.Rate
	if r.Kind == "" {
		r.Kind = optim.Constant
	}
	if r.Kind == optim.StepDecay && r.Factor == 0 && !j.Given("rate.factor") {
		return fmt.Errorf("rate.factor is missing; the step schedule multiplies the rate by it every %d steps", r.Every)
	}
	base, warmup := 3e-4, warmupSteps
	if j.Optimizer.Kind == optim.SGD {
		base, warmup = 0.05, 0
	}
	fill(j, "rate.base", &r.Base, base)
	fill(j, "rate.total", &r.Total, j.Steps)
	fill(j, "rate.power", &r.Power, 1)
	if r.Kind == optim.Cosine || r.Kind == optim.Polynomial {
		warmup = min(warmup, r.Total/10)
	}
	fill(j, "rate.warmup", &r.Warmup, warmup)
	return errors.Join(r.Check(), optim.FitFloat32(j.Optimizer, *r))
}
