package programs

import (
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/schedule/lower"
)

// Build returns the lowered Program of this many steps of a plan. tiedLayers are the groups of layers that share a
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
