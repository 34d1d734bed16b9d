package job

import (
	"errors"
	"fmt"
	"strings"

	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/stage/optim"
)

// fill gives a number its usual value where nobody has said another.
func fill[T int | float64](j *Job, key string, at *T, usual T) {
	if *at == Auto && !j.Given(key) {
		*at = usual
	}
}

// anyModel is how models are trained of which nothing is known: files, networks of PyTorch, and built-in
// models that begin with values of others' training, which a larger rate would undo. The first steps of AdamW
// are as long as the rate allows whatever the gradients are (Kingma and Ba, Adam, §2.1), and at the full rate a
// transformer's loss jumps by half within the first ten of them, with every implementation: so it rises to that.
var anyModel = model.Training{Optimizer: optim.AdamW, Rate: 3e-4, Warmup: 20}

// anyRates is the same by optimizers whose rates are alike, where one of them is asked for.
var anyRates = map[string]model.Training{
	optim.AdamW: anyModel,
	optim.SGD:   {Optimizer: optim.SGD, Rate: 0.05},
	// A step of LARS changes a weight by the rate times its trust coefficient, 0.1 % at rate 1.
	optim.LARS: {Optimizer: optim.LARS, Rate: 4, Warmup: 20},
}

// likeRates is the optimizer that stands for those whose rates mean the same.
func likeRates(kind string) string {
	switch kind {
	case optim.Adam:
		return optim.AdamW
	case optim.ASGD:
		return optim.SGD
	}
	return kind
}

// usual is how the job's model is trained where neither the job nor a checkpoint says otherwise.
func (j *Job) usual() model.Training {
	if t := model.TrainingOf(j.Model.Name); t.Optimizer != "" && j.Model.Init == "" {
		return t
	}
	return anyModel
}

// completeOptimizer fills in the optimizer.
func (j *Job) completeOptimizer() error {
	o := &j.Train.Optimizer
	switch isSet := o.Momentum != Auto && o.Momentum != 0; {
	case o.Kind != "":
	case isSet || o.Nesterov:
		o.Kind = optim.SGD // which alone has any
	default:
		o.Kind = j.usual().Optimizer
	}
	usual, err := optim.Default(o.Kind)
	if err != nil {
		return j.inField("optimizer", err)
	}
	fill(j, "optimizer.momentum", &o.Momentum, usual.Momentum)
	fill(j, "optimizer.weight_decay", &o.WeightDecay, usual.WeightDecay)
	fill(j, "optimizer.beta1", &o.Beta1, usual.Beta1)
	fill(j, "optimizer.beta2", &o.Beta2, usual.Beta2)
	fill(j, "optimizer.epsilon", &o.Epsilon, usual.Epsilon)
	fill(j, "optimizer.trust", &o.Trust, usual.Trust)
	half := 0 // of the steps: what came before is far from where training ends
	if usual.AverageFrom > 0 {
		half = max(usual.AverageFrom, j.Train.Steps/2)
	}
	fill(j, "optimizer.average_from", &o.AverageFrom, half)
	return j.inField("optimizer", o.Check())
}

// completeRate fills in the learning rate and its schedule.
func (j *Job) completeRate() error {
	r := &j.Train.Rate
	if r.Kind == "" {
		r.Kind = optim.Constant
	}
	if r.Kind == optim.StepDecay && r.Factor == 0 && !j.Given("rate.factor") {
		return fmt.Errorf("%s is missing: the step schedule multiplies the rate by it every %d steps",
			j.Called("rate.factor"), r.Every)
	}
	usual := j.usual()
	if kind := likeRates(j.Train.Optimizer.Kind); kind != likeRates(usual.Optimizer) {
		usual = anyRates[kind] // a rate of one says nothing of the other
	}
	warmup := usual.Warmup
	fill(j, "rate.base", &r.Base, usual.Rate)
	fill(j, "rate.total", &r.Total, j.Train.Steps)
	fill(j, "rate.power", &r.Power, 1)
	if r.Kind == optim.Cosine || r.Kind == optim.Polynomial {
		warmup = min(warmup, r.Total/10)
	}
	fill(j, "rate.warmup", &r.Warmup, warmup)
	if err := r.Check(); err != nil {
		return j.inField("rate", err)
	}
	var field *optim.FieldError
	err := optim.FitFloat32(j.Train.Optimizer, *r)
	if errors.As(err, &field) && field.Field != "base" {
		return j.inField("optimizer", err)
	}
	return j.inField("rate", err)
}

// Learning says how the job's model is trained by so many pipelines, and what of that is the model's default. The Job
// must be complete.
func (j *Job) Learning(pipelines int) string { return j.Train.Learned(pipelines) + j.byDefault() }

// Learned says how the job's model is trained by so many pipelines. The Job must be complete.
func (t *Train) Learned(pipelines int) string {
	text := t.Optimizer.Kind
	if t.Optimizer.Momentum != 0 {
		text += fmt.Sprintf(" with momentum %v", t.Optimizer.Momentum)
	}
	if t.Optimizer.AverageFrom > 0 {
		text += fmt.Sprintf(" that averages from update %d on", t.Optimizer.AverageFrom)
	}
	if by := t.RateFactor(pipelines); by == 1 {
		text += fmt.Sprintf(", learning rate %v", t.Rate.Base)
	} else {
		text += fmt.Sprintf(", learning rate %.4g (%v by rate scale %s)", by*t.Rate.Base, t.Rate.Base, t.RateScale)
	}
	if t.Rate.Kind != optim.Constant {
		text += " (" + t.Rate.Kind + ")"
	}
	switch t.Rate.Warmup {
	case 0:
		text += ", no warm-up"
	case 1:
		text += ", warm-up 1 step"
	default:
		text += fmt.Sprintf(", warm-up %s", terminal.Count(t.Rate.Warmup, "step"))
	}
	return text
}

// byDefault says which of optimizer, rate and warm-up nobody has given.
func (j *Job) byDefault() string {
	var given, left []string
	for _, key := range []struct{ name, word string }{
		{"optimizer.kind", "optimizer"}, {"rate.base", "rate"}, {"rate.warmup", "warm-up"},
	} {
		if j.Given(key.name) {
			given = append(given, key.word)
		} else {
			left = append(left, key.word)
		}
	}
	switch {
	case len(left) == 0:
		return ""
	case len(given) == 0 && j.usual() != anyModel:
		return "; the model's defaults"
	case len(given) == 0:
		return "; the defaults"
	case len(left) == 1:
		return "; " + left[0] + " by default"
	}
	return "; " + strings.Join(left, " and ") + " by default"
}
