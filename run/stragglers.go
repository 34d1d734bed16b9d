package run

import (
	"fmt"
	"slices"
	"strings"

	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/run/control"
	"github.com/millrace-ml/millrace/run/pace"
	"github.com/millrace-ml/millrace/trace"
)

// pace looks for stragglers in a complete step.
func (l *leader) pace(f control.Finished) {
	if l.paces.watch == nil {
		return
	}
	busyS := make([]float64, len(f.Workers))
	for k, did := range f.Workers {
		busyS[k] = did.BusyS
	}
	for _, i := range l.paces.slow {
		l.paces.stragglers[i].To = f.Step
	}
	for _, c := range l.paces.watch.Step(f.Step, busyS) {
		at, is := l.paces.slow[c.Worker]
		switch {
		case c.Worker == pace.All:
		case c.Still:
			if is {
				l.paces.stragglers[at].LastTimes = c.Times
			}
		case !c.Over:
			l.paces.slow[c.Worker] = len(l.paces.stragglers)
			l.paces.stragglers = append(l.paces.stragglers, trace.Straggler{Worker: c.Worker, From: c.From, To: c.To,
				Times:  c.Times,
				Others: c.Others})
		case is:
			l.paces.stragglers[at].To = c.From - 1
			delete(l.paces.slow, c.Worker)
		}
		if hook := l.config.Hooks.OnPace; hook != nil {
			said := Pace{c, l.paceText(c)}
			l.hooks.add(func() { hook(said) })
		}
	}
}

// paceText describes a change of pace in a sentence.
func (l *leader) paceText(c pace.Change) string {
	all := len(l.job.World.Workers)
	const off = "as profiled. This machine is slower now than when it was profiled, and predictions do not hold"
	switch {
	case c.Worker == pace.All && all == 1:
		return fmt.Sprintf("the worker computes %.2f times as long %s", c.Times, off)
	case c.Worker == pace.All:
		return fmt.Sprintf("%d of %s are about equally slow: they compute %.2f times as long %s", c.Slow,
			terminal.Count(all, "worker"), c.Times, off)
	case c.Over:
		return fmt.Sprintf("%s is a straggler no more: for %s it has computed %.2f times as long as its profile "+
			"says, and the others %.2f times", l.nameOf(c.Worker), terminal.Count(c.To-c.From+1, "step"), c.Times, c.Others)
	}
	return fmt.Sprintf("%s is a straggler: for %s it has computed %.2f times as long as its profile says (%s a "+
		"step, not %s), and the others %.2f times", l.nameOf(c.Worker), terminal.Count(c.To-c.From+1, "step"), c.Times,
		terminal.Duration(c.BusyS), terminal.Duration(c.ProfileS), c.Others)
}

// nameOf names a worker with its place and stages: "worker 0 (stages 0 and 1)", "worker 2 (rank 1 on host a; stage
// 3)".
func (l *leader) nameOf(worker int) string {
	var held []int
	for s, on := range l.job.Placement {
		if slices.Contains(on, worker) {
			held = append(held, s)
		}
	}
	name := l.job.World.Called(worker)
	if len(held) == 0 {
		return name
	}
	stages := terminal.Plural(len(held), "stage") + " " + terminal.And(held)
	if where, in := strings.CutSuffix(name, ")"); in {
		return where + "; " + stages + ")"
	}
	return name + " (" + stages + ")"
}
