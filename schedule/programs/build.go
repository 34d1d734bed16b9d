package programs

import (
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/family"
	"github.com/millrace-ml/millrace/schedule/lower"
)

// Build is the lowered Program of so many steps of a plan. tiedLayers are the groups of layers that share a
// parameter, as a model or its profile knows them; clip says that updates need the norm of all gradients.
func Build(p *plan.Plan, tiedLayers [][]int, clip bool, steps int) (*schedule.Program, error) {
	name, settings := schedule.FromPlan(p)
	settings.Repeat = steps
	program, err := family.Generate(name, settings)
	if err != nil {
		return nil, err
	}
	return lower.Lower(program, lower.Options{Tied: p.TiedStages(tiedLayers), Clip: clip, PostValidate: p.PostValidate})
}
