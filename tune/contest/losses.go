package contest

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/millrace-ml/millrace/schedule"
	"github.com/millrace-ml/millrace/sim"
	"github.com/millrace-ml/millrace/trace"
)

// Losses holds fractions of the workers' time in which they did not compute.
type Losses struct {
	// Fill and Drain are the time between a worker's last computation in a step and its first one in a later step. It
	// counts as Drain until the step has ended on all workers, and then as Fill.
	Fill       float64 `json:"fill"`
	Drain      float64 `json:"drain"`      // see Fill
	Stall      float64 `json:"stall"`      // another stage had not computed yet, inside a step or without a flush
	Transfer   float64 `json:"transfer"`   // the time by which the step would be shorter if messages took no time
	Collective float64 `json:"collective"` // waits for sums over replicas or tied stages, or for the gradient norm
	Core       float64 `json:"core"`       // waits for a core while other workers held every core
}

// named lists the parts with their names.
func (l *Losses) named() []namedLoss {
	return []namedLoss{{"fill", &l.Fill}, {"drain", &l.Drain}, {"stall", &l.Stall}, {"transfer", &l.Transfer},
		{"collectives", &l.Collective}, {"cores", &l.Core}}
}

type namedLoss struct {
	name string
	part *float64
}

// Sum returns the total: the bubble as papers count it.
func (l Losses) Sum() float64 {
	sum := 0.0
	for _, n := range l.named() {
		sum += *n.part
	}
	return sum
}

// worthNaming is the smallest loss that a reason mentions, as a fraction of the workers' time.
const worthNaming = 0.0005

// String lists the parts as percentages, the greatest first.
func (l Losses) String() string {
	list := l.named()
	slices.SortStableFunc(list, func(a, b namedLoss) int { return cmp.Compare(*b.part, *a.part) })
	var words []string
	for _, n := range list {
		if *n.part >= worthNaming {
			words = append(words, fmt.Sprintf("%s %.1f %%", n.name, 100**n.part))
		}
	}
	if words == nil {
		return "no time is lost"
	}
	return strings.Join(words, ", ")
}

// split separates the cost of transfers from the other losses. `still` is a Timeline of the same order in which
// messages take no time. What its shorter step saves is the cost of transfers. The rest of the losses is divided like
// the losses of `still`.
func (l Losses) split(stepS float64, still *trace.Timeline, p *schedule.Program, turns int) Losses {
	without, rest := lossesOf(still, p, turns)
	all := l.Sum()
	transfer := min(max(0, 1-without/stepS), all)
	scale := 0.0
	if sum := rest.Sum(); sum > 0 {
		scale = (all - transfer) / sum
	} else {
		transfer = all
	}
	for _, n := range rest.named() {
		*n.part *= scale
	}
	rest.Transfer += transfer
	return rest
}

// Steps is the least number of steps in a Program for Steady.
const Steps = 6

// Steady returns the time, in seconds, of a step in the middle of a Program, as in an Entry. `lost` says why workers
// did not compute. The Program has at least Steps steps; with pipelines side by side, a step covers all of them.
func Steady(p *schedule.Program, costs sim.Costs) (stepS float64, lost Losses, err error) {
	t, _, err := sim.Run(p, costs, sim.Options{Record: true})
	if err != nil {
		return 0, lost, err
	}
	stepS, lost = lossesOf(t, p, 1)
	return stepS, lost, nil
}

// lossesOf measures a step's time in the middle of a Timeline, and why workers have gaps there. stepS is the mean time
// between the ends of steps. Each gap has one cause. If a worker waits first for a stage and then for its message, the
// longer wait is the cause. Only synchronous orders have fill and drain. After `turns` steps, replicas that take turns
// have had as many micro-batches each, so the mean is over a multiple of them.
func lossesOf(t *trace.Timeline, p *schedule.Program, turns int) (stepS float64, lost Losses) {
	flushes := p.Weights.Synchronous()
	n := len(t.Steps)
	if n < 3 {
		return 0, lost
	}
	first, last := n/3, n-1-n/6 // leave out a stream's filling and draining
	if last <= first {
		last = n - 1
	}
	if last-first >= turns {
		last -= (last - first) % turns
	}
	ends := make([]float64, n) // by step: the latest end of this step and all earlier ones
	at := math.Inf(-1)
	for i, s := range t.Steps {
		at = max(at, s.EndS)
		ends[i] = at
	}
	from, to := ends[first], ends[last]
	stepS = (to - from) / float64(last-first)
	total := float64(t.Workers) * (to - from)
	all := around(t)
	for w, gaps := range trace.AllGaps(t) {
		steps := &all[w]
		for _, g := range gaps {
			begin, end := max(g.StartS, from), min(g.EndS, to)
			if end <= begin {
				continue
			}
			part := (end - begin) / total
			cause := g.Cause
			if cause == trace.Between && steps.reducing(g) {
				cause = trace.WaitReduce // a collective that waits for the previous one records no wait
			}
			switch cause {
			case trace.WaitTransfer:
				lost.Transfer += part
				continue
			case trace.WaitReduce:
				lost.Collective += part
				continue
			case trace.WaitCore:
				lost.Core += part
				continue
			}
			before, after := steps.around(g)
			if before == after || !flushes {
				lost.Stall += part
				continue
			}
			over := min(max(ends[min(max(before, 0), n-1)], begin), end)
			lost.Drain += (over - begin) / total
			lost.Fill += (end - over) / total
		}
	}
	return stepS, lost
}

// surroundings holds a worker's computations and collectives in order, to find those around a gap.
type surroundings struct{ computed, reduced []*trace.Event }

// around returns the surroundings of each worker.
func around(t *trace.Timeline) []surroundings {
	out := make([]surroundings, t.Workers)
	for i := range t.Events {
		e := &t.Events[i]
		of := &out[e.Worker]
		switch {
		case e.EndS <= e.StartS:
		case e.Lane == trace.Compute && trace.IsBusy(e.Kind):
			of.computed = append(of.computed, e)
		case e.Kind == "AR" || e.Kind == "TG" || e.Kind == "GN":
			of.reduced = append(of.reduced, e)
		}
	}
	for _, of := range out {
		slices.SortStableFunc(of.computed, func(a, b *trace.Event) int { return cmp.Compare(a.StartS, b.StartS) })
	}
	return out
}

// around returns the steps of the computations before and after a gap; -1 means none.
func (s surroundings) around(g trace.Gap) (before, after int) {
	k, _ := slices.BinarySearchFunc(s.computed, g.EndS-1e-12*math.Abs(g.EndS),
		func(e *trace.Event, at float64) int { return cmp.Compare(e.StartS, at) })
	before, after = -1, -1
	if k > 0 {
		before = s.computed[k-1].Step
	}
	if k < len(s.computed) {
		after = s.computed[k].Step
	}
	return before, after
}

// reducing says whether a collective ran during a gap.
func (s surroundings) reducing(g trace.Gap) bool {
	return slices.ContainsFunc(s.reduced, func(e *trace.Event) bool { return e.StartS < g.EndS && e.EndS > g.StartS })
}
