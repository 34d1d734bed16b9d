package job

import (
	"errors"
	"fmt"
	"strings"

	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/model"
	"github.com/millrace-ml/millrace/stage/optim"
)

// fill sets a number to its usual value if it is Auto and was not given.
func fill[T int | float64](j *Job, key string, at *T, usual T) {
	if *at == Auto && !j.Given(key) {
		*at = usual
	}
}

// anyModel holds the training settings for models about which nothing is known: files and PyTorch networks. The
// settings also hold for built-in models that start from pretrained values, which a larger rate would destroy. The
// first steps of AdamW are as long as the rate allows, whatever the gradients are (Kingma and Ba, Adam, §2.1). At the
// full rate these steps would raise a transformer's loss, so the rate warms up.
var anyModel = model.Training{Optimizer: optim.AdamW, Rate: 3e-4, Warmup: 20}

// anyRates holds training settings by optimizer, for jobs that ask for another optimizer than their model's usual one.
// Optimizers with similar rates share an entry (likeRates).
var anyRates = map[string]model.Training{
	optim.AdamW: anyModel,
	optim.SGD:   {Optimizer: optim.SGD, Rate: 0.05},
	// A step of LARS changes the weights of a layer by a fraction of their norm: the rate times the trust coefficient,
	// or 0.1 % at rate 1.
	optim.LARS: {Optimizer: optim.LARS, Rate: 4, Warmup: 20},
}

// likeRates returns the optimizer whose entry in anyRates applies to kind.
func likeRates(kind string) string {
	switch kind {
	case optim.Adam:
		return optim.AdamW
	case optim.ASGD:
		return optim.SGD
	}
	return kind
}

// usual returns the training settings to use where neither the job nor a checkpoint sets them. They are those of the
// job's built-in model, or anyModel if it has none or starts from given weights (Model.Init).
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
		o.Kind = optim.SGD // LARS has momentum too, but must be named
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
	half := 0 // averaging starts after half of the steps: earlier weights are far from the final ones
	if usual.AverageFrom > 0 {
		half = max(usual.AverageFrom, j.Train.Steps/2)
	}
	fill(j, "optimizer.average_from", &o.AverageFrom, half)
	return j.inField("optimizer", o.Check())
}

// UsualUpdates reports whether a complete job updates by its model's own optimizer, without clipping. Values of
// momentum and weight decay do not matter, only whether there are any, because an update's cost depends on that.
func UsualUpdates(j *Job) bool {
	o := j.Train.Optimizer
	usual, err := optim.Default(j.usual().Optimizer)
	return err == nil && o.Kind == j.usual().Optimizer && j.Train.Clip == 0 && o.Nesterov == usual.Nesterov &&
		(o.Momentum != 0) == (usual.Momentum != 0) && (o.WeightDecay != 0) == (usual.WeightDecay != 0)
}

// completeRate fills in the learning rate and its schedule.
func (j *Job) completeRate() error {
	r := &j.Train.Rate
	if r.Kind == "" {
		r.Kind = optim.Constant
	}
	for _, key := range []string{"rate.every", "rate.factor"} {
		switch step := r.Kind == optim.StepDecay; {
		case step && !j.Given(key):
			return fmt.Errorf("%s is missing: the rate's schedule is step; give --lr-every 1000 --lr-factor 0.1, or in a job "+
				"file rate: {kind: step, every: 1000, factor: 0.1}, to multiply the rate by 0.1 after every 1000 steps",
				j.Called(key))
		case !step && strings.HasPrefix(j.Called(key), "--"):
			return fmt.Errorf("%s is set, and the rate's schedule is %s; only step has it", j.Called(key), r.Kind)
		}
	}
	if r.Kind != optim.StepDecay { // a flag may replace the step schedule of a job file
		r.Every, r.Factor = 0, 0
		j.TakeBack("rate.every", "rate.factor")
	}
	usual := j.usual()
	if kind := likeRates(j.Train.Optimizer.Kind); kind != likeRates(usual.Optimizer) {
		usual = anyRates[kind] // rates of different optimizers are not comparable
	}
	warmup := usual.Warmup
	fill(j, "rate.base", &r.Base, usual.Rate)
	fill(j, "rate.total", &r.Total, j.Train.Steps)
	fill(j, "rate.power", &r.Power, 1)
	if r.Kind == optim.Cosine || r.Kind == optim.Polynomial { // so that a short run has its highest rate for a while
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

// Learning describes how the job's model is trained with this many pipelines, and which settings are the model's
// defaults. The Job must be complete.
func (j *Job) Learning(pipelines int) string { return j.Train.Learned(pipelines) + j.byDefault() }

// Learned describes how the job's model is trained with this many pipelines. The Job must be complete.
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
	switch r := t.Rate; r.Kind {
	case optim.Constant:
	case optim.StepDecay:
		every := terminal.Count(r.Every, "step")
		if r.Every == 1 {
			every = "step"
		}
		text += fmt.Sprintf(" (step: times %v every %s)", r.Factor, every)
	default:
		text += " (" + r.Kind + ")"
	}
	if t.Rate.Warmup == 0 {
		return text + ", no warm-up"
	}
	return text + ", warm-up " + terminal.Count(t.Rate.Warmup, "step")
}

// byDefault names which of optimizer, rate and warm-up were not given.
func (j *Job) byDefault() string {
	var given, left []string
	for _, key := range []struct{ name, word string }{
		{"optimizer.kind", "optimizer"}, {"rate.base", "rate"}, {"rate.warmup", "warm-up"}, {"rate.kind", ""},
	} {
		if j.Given(key.name) {
			given = append(given, key.word)
		} else if key.word != "" {
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
	last := len(left) - 1
	return "; " + strings.Join(left[:last], ", ") + " and " + left[last] + " by default"
}
