package trace

import (
	"cmp"
	"math"
	"slices"

	"github.com/millrace-ml/millrace/internal/stats"
)

// Period returns the median time, in seconds, from the end of one settled step to the end of the next. That is what
// each further step adds to a training. It leaves out pairs of steps with an evaluation or a checkpoint between them.
// If no pair is left, Period returns the median length of a step, or 0 without any step.
func (t *Timeline) Period(skip int) float64 {
	steps := t.Settled(skip)
	var apart []float64
	for _, k := range following(steps) {
		apart = append(apart, steps[k].EndS-steps[k-1].EndS)
	}
	if len(apart) == 0 {
		return medianLength(steps)
	}
	return stats.Median(apart)
}

// following returns the positions of steps that begin without a pause after the step before them (Follows).
func following(steps []StepMark) (at []int) {
	for k := 1; k < len(steps); k++ {
		if steps[k].Follows(steps[k-1].EndS) {
			at = append(at, k)
		}
	}
	return at
}

// Follows reports whether a step begins soon after endS, the end of another step: within a twentieth of its own length.
// Then there was no evaluation or checkpoint between the two steps.
func (s StepMark) Follows(endS float64) bool { return s.StartS-endS < (s.EndS-s.StartS)/20 }

// Steady returns the mean time, in seconds, between the ends of consecutive steps of a stream. It uses only steps whose
// events are kept and which follow another step without an evaluation or a checkpoint between the two. It returns these
// steps as `steps`, which may be empty. busyS is how long each worker computes in a step; it is never longer than
// stepS. If workers have no common steps (Applied), Steady uses all settled steps, whether their events are kept or
// not.
func (t *Timeline) Steady(skip int) (steps []StepMark, stepS float64, busyS []float64) {
	if len(t.Applied) > 0 {
		return t.paced(skip)
	}
	kept := t.Kept(skip)
	var between []window
	for _, k := range following(kept) {
		w := window{kept[k-1].EndS, kept[k].EndS}
		n := len(between)
		if kept[k].Step != kept[k-1].Step+1 || w.endS <= w.startS || n > 0 && w.startS < between[n-1].endS {
			continue
		}
		steps, between = append(steps, kept[k]), append(between, w)
		stepS += w.endS - w.startS
	}
	busyS = make([]float64, t.Workers)
	for _, busy := range t.busyIn(between) {
		for w, b := range busy {
			busyS[w] += b
		}
	}
	if n := float64(len(steps)); n > 0 {
		stepS /= n
		for w := range busyS {
			busyS[w] /= n
		}
	}
	return steps, stepS, busyS
}

// paced does the work of Steady for steps that end in no fixed order.
func (t *Timeline) paced(skip int) (steps []StepMark, stepS float64, busyS []float64) {
	settled := t.Settled(skip)
	for k, apart := range apart(settled) {
		if apart >= 0 {
			steps, stepS = append(steps, settled[k]), stepS+apart
		}
	}
	busyS = make([]float64, t.Workers)
	n := float64(len(steps))
	if n == 0 {
		return nil, 0, busyS
	}
	for _, busy := range t.StepBusy()[len(t.Steps)-len(settled):] {
		for w, b := range busy {
			busyS[w] += b / float64(len(settled))
		}
	}
	return steps, max(stepS/n, slices.Max(busyS)), busyS
}

// apart returns, for each step, the seconds between its end and the end just before it. Steps may end in any order. The
// value is -1 for the step that ends first, and for a step after a pause, such as an evaluation. A pause is assumed if
// this step and all steps that end later begin more than half a median step after that earlier end.
func apart(steps []StepMark) []float64 {
	order := make([]int, len(steps))
	for k := range order {
		order[k] = k
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(steps[a].EndS, steps[b].EndS) })
	out, pause := slices.Repeat([]float64{-1}, len(steps)), medianLength(steps)/2
	begins := math.Inf(1) // earliest start of this step and of those that end later
	for i := len(order) - 1; i > 0; i-- {
		s, before := steps[order[i]], steps[order[i-1]]
		if begins = min(begins, s.StartS); begins <= before.EndS+pause {
			out[order[i]] = s.EndS - before.EndS
		}
	}
	return out
}

// Took returns how long each settled step took, in seconds: from the end of the step before it to its own end. That is
// what the step adds to a training, even if the two steps overlap. It counts from the step's own start if an evaluation
// or a checkpoint is between the two steps, or if the step before has no mark.
//
// If workers have no common steps, each value is the mean over as many steps as there are trainers: this step and those
// that ended just before it.
func (t *Timeline) Took(skip int) []float64 {
	if len(t.Applied) > 0 {
		return t.rounds()[len(t.Steps)-len(t.Settled(skip)):]
	}
	took := make([]float64, len(t.Steps))
	for k, s := range t.Steps {
		took[k] = s.EndS - s.StartS
	}
	for _, k := range following(t.Steps) {
		if apart := t.Steps[k].EndS - t.Steps[k-1].EndS; t.Steps[k].Step == t.Steps[k-1].Step+1 && apart > 0 {
			took[k] = apart
		}
	}
	return took[len(t.Steps)-len(t.Settled(skip)):]
}

func medianLength(steps []StepMark) float64 {
	var lengths []float64
	for _, s := range steps {
		lengths = append(lengths, s.EndS-s.StartS)
	}
	return stats.Median(lengths)
}

// rounds does the work of Took, for all steps, if they end in no fixed order.
func (t *Timeline) rounds() []float64 {
	each, trainers := apart(t.Steps), max(1, t.Workers-1)
	order := make([]int, len(each))
	for k := range order {
		order[k] = k
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(t.Steps[a].EndS, t.Steps[b].EndS) })
	took := make([]float64, len(each))
	for i, k := range order {
		n, sum := 0, 0.0
		for _, before := range order[max(0, i-trainers+1) : i+1] {
			if each[before] >= 0 {
				n, sum = n+1, sum+each[before]
			}
		}
		if took[k] = (t.Steps[k].EndS - t.Steps[k].StartS) / float64(trainers); n > 0 {
			took[k] = sum / float64(n)
		}
	}
	return took
}
