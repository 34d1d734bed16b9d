package tuning

import (
	"fmt"
	"slices"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/cmd/internal/prepare"
	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/tune/avgpipe"
	"github.com/millrace-ml/millrace/tune/predict"
)

// fastest returns the index of the schedule of --all with the best prediction that has a plan, or -1. The plan is the
// one that tune chooses.
func fastest(all []anySchedule) int {
	return slices.IndexFunc(all, func(s anySchedule) bool { return s.Plan != nil })
}

// chosen returns the plan that tune prints, marks and writes: with --all the fastest of all schedules, and otherwise
// the best of AvgPipe's settings. It returns nil if nothing fits.
func (t *tuned) chosen() *avgpipe.Pipelined {
	k := fastest(t.All)
	if t.Result != nil && (k < 0 || t.Best != nil && t.All[k].Plan == t.Best.Plan) {
		return t.Best
	}
	if k < 0 {
		return nil
	}
	s := &t.All[k]
	p := &avgpipe.Pipelined{Plan: s.Plan, Bubble: s.Predicted.Bubble, Scored: avgpipe.Scored{At: degreesOf(*s),
		StepS: s.Predicted.StepS, MemoryBytes: s.Predicted.MemoryBytes}}
	for _, busyS := range s.Predicted.BusyS {
		p.IdleS = append(p.IdleS, max(0, s.Predicted.StepS-busyS))
	}
	return p
}

// own says whether the chosen plan is a setting of the grid. With --all another plan may be faster than all of them.
func (t *tuned) own() bool { return t.Result != nil && t.chosen() == t.Best }

// over says over which stages the settings of the grid are, if the chosen plan is not one of them. Otherwise it returns
// "".
func (t *tuned) over() string {
	if t.own() || t.Result == nil {
		return ""
	}
	return " over AvgPipe's own " + terminal.Count(len(t.Best.Plan.Stages), "stage")
}

// named describes the chosen plan in the words of its row: as a setting of the grid, or as a schedule of --all.
func (t *tuned) named() string {
	best := t.chosen()
	if t.own() {
		order := "all forwards first"
		if advance, ok := best.Setting(); ok {
			order = terminal.Count(advance, "forward") + " in advance of 1F1B"
		}
		return fmt.Sprintf("%s, %s, %s", best.Plan.Micros(), terminal.Count(best.At.Pipelines, "pipeline"), order)
	}
	return t.All[fastest(t.All)].title() + ", " + best.Plan.Micros()
}

// title returns a schedule's kind with its stages and workers.
func (s anySchedule) title() string {
	kept := plan.Rival{Kind: s.Kind}
	if s.Plan != nil {
		kept.Name = s.Plan.Layout()
	}
	return kept.Title()
}

// beaten says why the chosen plan is none of the grid's settings.
func (t *tuned) beaten() string {
	if t.Result == nil {
		return fmt.Sprintf("no setting of AvgPipe's fits %s for each worker", terminal.Bytes(t.LimitBytes))
	}
	return fmt.Sprintf("the best setting%s, %s, takes %s", t.over(), t.Best.At, terminal.Duration(t.Best.StepS))
}

// write writes the chosen plan with its prediction.
func (f *tuneFlags) write(p *prepare.Prepared, t *tuned) error {
	best := t.chosen()
	if best == nil {
		return cli.BadInput(fmt.Errorf("nothing fits, so that there is no plan to write to %s", f.output))
	}
	why := fmt.Sprintf("%s of AvgPipe's degrees within the memory is the fastest, simulated", best.At)
	if over := t.passedOver(); t.own() && over != "" {
		why = best.At.String() + " of AvgPipe's degrees is chosen: " + over
	}
	if k := fastest(t.All); k >= 0 {
		why = t.All[k].Kind + " is the fastest of all schedules within the memory, simulated"
	}
	pl := *best.Plan
	p.Placed(&pl)
	predicted, err := predict.Plan(p.Profile, p.Cluster, &pl, p.Job.Train.Clip > 0)
	if err != nil {
		return cli.BadInput(err)
	}
	predicted.StepS = best.StepS * float64(pl.Together()) // a step has a batch for each pipeline
	predicted.SamplesPerSecond = float64(pl.Batch()) / best.StepS
	pl.Predicted = &predicted
	name := "simulated time of a batch"
	if p.Job.Machine.Cluster == "" && p.Job.Plan.Profile == "" { // train predicts from the profile that is kept
		name += ", from tune's own short profile"
	}
	pl.Objective = plan.Objective{Name: name, Value: best.StepS, Unit: "s"}
	pl.Why = []string{why}
	return cli.BadInput(pl.Write(f.output))
}
