package race

import (
	"slices"
)

// StageBound returns the largest possible speedup of a pipeline over one worker that does the same work. It only
// considers the number of micro-batches of a step and the stages' computing times, busy.
//
// busy is each stage's computing time in a step, in any unit. Stage i first waits for one micro-batch to pass
// forward through the stages before it, and after its last backward these stages must still do theirs. Together that
// is one micro-batch's time on them. So a step takes at least max over i of busy(i) + sum over j < i of busy(j)/M,
// and one worker takes sum(busy).
func StageBound(busy []float64, microBatches int) float64 {
	step, before, all := 0.0, 0.0, 0.0
	for _, b := range busy {
		step = max(step, b+before/float64(microBatches))
		before, all = before+b, all+b
	}
	if step == 0 {
		return 0
	}
	return all / step
}

// Worst returns the largest value; 0 if there are none.
func Worst(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	return slices.Max(values)
}

// Off returns the error of a prediction relative to the measured value: 0.05 for 105 against 100 and for 95 against
// 100.
func Off(predicted, measured float64) float64 {
	d := predicted - measured
	if d < 0 {
		d = -d
	}
	if d == 0 {
		return 0
	}
	return d / measured
}
