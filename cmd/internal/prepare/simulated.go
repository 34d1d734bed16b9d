package prepare

import (
	"fmt"
	"math"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/schedule/check"
	"github.com/millrace-ml/millrace/schedule/programs"
	"github.com/millrace-ml/millrace/sim"
	"github.com/millrace-ml/millrace/trace"
	"github.com/millrace-ml/millrace/tune/predict"
)

// CheckAndSimulate checks the plan's Program, simulates it, and returns the Timeline.
func CheckAndSimulate(p *Prepared) (*trace.Timeline, error) {
	costs, err := sim.CostsOf(p.Profile, p.Cluster, p.Plan)
	if err != nil {
		return nil, err
	}
	program, err := programs.AtLeast(p.Plan, p.Profile.TiedLayers(), p.Job.Train.Clip > 0, predict.Shown(p.Plan, costs))
	if err != nil {
		return nil, cli.BadInput(err)
	}
	if _, err := check.Check(program); err != nil {
		return nil, err
	}
	o := sim.Options{Record: true, Vary: costs.Noise.Vary()}
	t, _, err := sim.Run(program, costs, o)
	if err != nil {
		return nil, err
	}
	t.Model, t.ThreadsPerWorker = p.Model.Name, p.Job.Machine.ThreadsPerWorker
	return t, nil
}

// forgetSearch removes the bound from a plan if the time of its step has changed. The bound holds only for the costs
// with which it was found. It also removes the reasons and the rivals if the time differs by more than costsVary.
func forgetSearch(pl *plan.Plan, stepS float64) {
	was := pl.Predicted
	if was == nil || math.Abs(stepS-was.StepS) <= 1e-9*was.StepS {
		return
	}
	if pl.LowerBound = nil; math.Abs(stepS-was.StepS) <= costsVary*was.StepS {
		return
	}
	pl.Rivals = nil
	pl.Why = []string{fmt.Sprintf("the plan's file predicts a step of %s; the bound, the rivals and the reasons in it "+
		"hold for other costs than these, and are left out", terminal.Duration(was.StepS))}
}

// costsVary is how much two measurements of a step on one machine usually differ, as a fraction of the step's time.
const costsVary = 0.1
