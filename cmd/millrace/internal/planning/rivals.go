package planning

import (
	"fmt"
	"slices"
	"strings"

	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/plan"
)

// mostRivals is the maximal number of rivals on a screen.
const mostRivals = 5

// rivals prints a table of the plans that were worse than the choice.
func (v *view) rivals() {
	if len(v.Plan.Rivals) == 0 || v.Plan.Predicted == nil {
		return
	}
	shown := v.Plan.Rivals
	if !v.all {
		shown = foremost(shown)
	}
	what := "the best found of each kind"
	if len(v.Plan.Rivals) > len(shown) {
		what = fmt.Sprintf("%d of %d, the best found of each kind; %s", len(shown), len(v.Plan.Rivals), v.rest)
	}
	fmt.Fprint(v.to, v.Wrap("", "", v.Paint(terminal.Bold, "rivals")+" ("+what+")"))
	t := &terminal.Table{Columns: []terminal.Column{{Heading: "ms a step", Number: true},
		{Heading: "slower", Number: true, Spare: 1}, {Heading: "plan", Wraps: true},
		{Heading: "micro-batches", Number: true, Spare: 2}, {Heading: "why not", Wraps: true}}}
	best := v.Plan.Predicted.StepS
	for i := range shown {
		r := &shown[i]
		slower, micros := "-", ""
		if more := 100 * (r.StepS/best - 1); more >= 900 {
			slower = terminal.Number(r.StepS/best, 0) + " times"
		} else if more >= 9.95 {
			slower = terminal.Number(more, 0) + " %"
		} else if more > -1e-7 {
			slower = fmt.Sprintf("%.1f %%", max(0, more))
		}
		if r.MicroBatches > 0 {
			micros = fmt.Sprintf("%d of %d", r.MicroBatches, r.MicroBatch)
		}
		t.Add(terminal.Number(1e3*r.StepS, 4), slower, r.Title(), micros, r.Why)
	}
	_ = t.Write(v.to, v.Screen) // if the output fails, the error cannot be printed there
}

// foremost returns the rivals to show first: the best few, data parallelism, and one worker. Among equal plans with
// different names it takes the first.
func foremost(all []plan.Rival) []plan.Rival {
	var one []plan.Rival
	for _, r := range all {
		if !slices.ContainsFunc(one, func(o plan.Rival) bool { return o.StepS == r.StepS && o.Bubble == r.Bubble }) {
			one = append(one, r)
		}
	}
	known := func(r plan.Rival) bool { return r.Stages == 1 && strings.HasPrefix(r.Name, r.Kind) }
	left := mostRivals
	for _, r := range one {
		if known(r) {
			left--
		}
	}
	return slices.DeleteFunc(one, func(r plan.Rival) bool {
		if !known(r) {
			left--
		}
		return !known(r) && left < 0
	})
}

// where says which thread updates the reference of pipelines, unless the workers do.
func where(e *plan.Elastic) string {
	if !e.Besides() {
		return ""
	}
	return "; a thread beside each worker updates the reference, and no pipeline waits for it"
}
