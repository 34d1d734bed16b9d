package trace

import "github.com/millrace-ml/millrace/internal/stats"

// Period is the median time, in seconds, from the end of one settled step to the end of the
// next: what each further step adds to a training. Where something else stands between two
// steps, an evaluation or a checkpoint, the time over it counts for none. With fewer than two
// steps in a row it is the median length of a step, and 0 without any.
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

// following is the positions of steps that begin where the one before them ends, or sooner: nothing else stands
// between the two.
func following(steps []StepMark) (at []int) {
	length := medianLength(steps)
	for k := 1; k < len(steps); k++ {
		if between := steps[k].StartS - steps[k-1].EndS; between < length/20 {
			at = append(at, k)
		}
	}
	return at
}

// Steady is what a stream takes from the end of one kept step to the end of the next, where nothing else stands between
// the two: the steps that such a time ends with, its mean, and how long each worker computes in it, which is never
// longer. It has no steps where no two follow each other.
func (t *Timeline) Steady(skip int) (steps []StepMark, stepS float64, busyS []float64) {
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

// Took is how long each settled step took, in seconds: from the end of the step before it to its own, which is what it
// adds to a training, though it may begin while that one ends. Where something else stands between the two, an
// evaluation or a checkpoint, or the step before is not marked, it is the time from its start to its end.
func (t *Timeline) Took(skip int) []float64 {
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
