package tune

import (
	"fmt"

	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/schedule/draw"
	"github.com/millrace-ml/millrace/schedule/programs"
	"github.com/millrace-ml/millrace/sim"
	"github.com/millrace-ml/millrace/trace"
)

// drawn is how many columns a drawing has.
const drawn = 28

// drawing is a plan's first step, a row for each worker: all of it in as many columns, or,
// where that would show too little of a micro-batch, its beginning, in columns as wide as the
// shortest forward or backward. A stream of single minibatches is drawn until every worker
// has had two.
func drawing(r Request, pl *plan.Plan, costs sim.Costs) (string, error) {
	if len(pl.Devices()) > 64 || pl.MicroBatches > 4096 {
		return "", nil // nobody reads so much
	}
	steps := 1
	if !schedule.Policy(pl.Weights).Synchronous() && pl.MicroBatches == 1 {
		for i, s := range pl.Stages {
			steps = max(steps, 2*len(s.Devices)+len(pl.Stages)-1-i)
		}
	}
	program, err := programs.Build(pl, r.Profile.TiedLayers(), r.Clip, steps)
	if err != nil {
		return "", err
	}
	o := sim.Options{Record: true, Vary: costs.Noise.Vary()}
	t, sum, err := sim.Run(program, costs, o)
	if err != nil {
		return "", err
	}
	slot := slotOf(t, sum.EndS)
	end := min(sum.EndS, slot*drawn)
	text, err := draw.Grid(t.Workers, Spans(t, end), slot)
	if err != nil {
		return "", err
	}
	what := "the step"
	switch {
	case end < sum.EndS:
		what = fmt.Sprintf("the first %.4g ms", 1e3*end)
	case steps > 1:
		what = fmt.Sprintf("the first %d minibatches", steps)
	}
	return fmt.Sprintf("%s of %.4g ms, a column is %.3g ms, F forward and B backward of a micro-batch, U update:\n%s",
		what, 1e3*sum.EndS, 1e3*slot, text), nil
}

// slotOf is the width of a column: the shortest forward or backward, but no more than makes
// the whole fill the columns, and no less than a quarter of that, or than all of it
// where some worker would have nothing to do in what is shown.
func slotOf(t *trace.Timeline, endS float64) float64 {
	whole := endS / drawn
	shortest := whole
	begins := make([]float64, t.Workers)
	for w := range begins {
		begins[w] = endS
	}
	for _, e := range t.Events {
		d := e.EndS - e.StartS
		if e.Lane != trace.Compute || d <= 0 {
			continue
		}
		if e.Kind == "F" || e.Kind == "B" {
			shortest = min(shortest, d)
			begins[e.Worker] = min(begins[e.Worker], e.StartS)
		}
	}
	slot := max(shortest, whole/4)
	for _, b := range begins {
		if b < endS && b >= slot*(drawn-1) {
			return whole
		}
	}
	return slot
}
