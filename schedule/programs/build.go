package programs

import (
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/schedule/lower"
)

// Build returns the lowered Program for `steps` steps of a plan. tiedLayers are the groups of layers that share a
// parameter, from a model or its profile. `clip` says that updates need the norm of all gradients.
func Build(p *plan.Plan, tiedLayers [][]int, clip bool, steps int) (*schedule.Program, error) {
	name, settings := schedule.FromPlan(p)
	settings.Repeat = steps
	program, err := family.Generate(name, settings)
	if err != nil {
		return nil, err
	}
	return lower.Lower(program, lower.Options{Tied: p.TiedStages(tiedLayers), Clip: clip, PostValidate: p.PostValidate})
}

// AtLeast returns the lowered Program for `steps` steps of a plan. If the plan's family is a Program from outside that
// cannot have this number of steps, AtLeast returns a Program with the next larger number of steps that is possible.
func AtLeast(p *plan.Plan, tiedLayers [][]int, clip bool, steps int) (*schedule.Program, error) {
	f, err := family.Lookup(p.Schedule)
	if err != nil || f.Least == 0 {
		return Build(p, tiedLayers, clip, steps)
	}
	out, err := Build(p, tiedLayers, clip, f.Least)
	if err != nil || steps <= f.Least {
		return out, err
	}
	repeat := (steps - f.Least + out.Period - 1) / out.Period
	return Build(p, tiedLayers, clip, f.Least+repeat*out.Period)
}
