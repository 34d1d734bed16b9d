package trace

import "slices"

// Period is the median time, in seconds, from the end of one settled step to the end of the
// next: what each further step adds to a training. Where something else stands between two
// steps, an evaluation or a checkpoint, the time over it counts for none. With fewer than two
// steps in a row it is the median length of a step, and 0 without any.
func (t *Timeline) Period(skip int) float64 {
	steps := t.Settled(skip)
	length := t.medianLength(skip)
	var apart []float64
	for k := 1; k < len(steps); k++ {
		if between := steps[k].StartS - steps[k-1].EndS; between < length/20 {
			apart = append(apart, steps[k].EndS-steps[k-1].EndS)
		}
	}
	if len(apart) == 0 {
		return length
	}
	return median(apart)
}

// StepTime is what a settled step takes, in seconds: the median from its start to its end, or in
// a stream, whose steps overlap, the Period.
func (t *Timeline) StepTime(skip int) float64 {
	if t.Stream {
		return t.Period(skip)
	}
	return t.medianLength(skip)
}

func (t *Timeline) medianLength(skip int) float64 {
	var lengths []float64
	for _, s := range t.Settled(skip) {
		lengths = append(lengths, s.EndS-s.StartS)
	}
	return median(lengths)
}

// median of numbers in any order; the mean of the two in the middle; 0 of none.
func median(xs []float64) float64 {
	if len(xs) == 0 {
		return 0
	}
	slices.Sort(xs)
	return (xs[(len(xs)-1)/2] + xs[len(xs)/2]) / 2
}
