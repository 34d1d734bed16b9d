package race

import (
	"slices"
)

// StageBound returns the largest possible speedup of a pipeline over one worker that does the same work. It only
// considers the number of micro-batches of a step and the stages' computing times.
//
// `busy` has each stage's computing time in a step, in any unit. Stage i cannot start before the first micro-batch has
// passed forward through the earlier stages. After stage i's last backward, the last micro-batch must still pass
// backward through the earlier stages. Together, these two passes take one micro-batch's time on each earlier stage. So
// with M micro-batches, a step takes at least busy(i) plus the sum of busy(j)/M over all j < i, for every stage i. One
// worker takes the sum of all busy(i).
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

// Off returns the relative error of a prediction, without its sign: 0.05 for a predicted 105 or 95 and a measured 100.
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
