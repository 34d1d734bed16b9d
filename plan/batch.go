package plan

import (
	"fmt"
	"slices"
)

// MaxBatch limits the samples of a step. It keeps the count of micro-batches within what a Program can number.
const MaxBatch = maxCount

// CheckBatch refuses a batch of less than one sample or more than MaxBatch.
func CheckBatch(batch int) error {
	if batch < 1 || batch > MaxBatch {
		return fmt.Errorf("plan: a batch of %d samples; it is 1 to %d", batch, MaxBatch)
	}
	return nil
}

// Divisors returns the micro-batch sizes that divide a batch, in ascending order, and none for a batch below 1. Its
// time grows with the square root of the batch.
func Divisors(batch int) []int {
	var small, large []int
	for m := 1; m <= batch/m; m++ {
		if batch%m == 0 {
			small = append(small, m)
			if m != batch/m {
				large = append(large, batch/m)
			}
		}
	}
	slices.Reverse(large)
	return append(small, large...)
}

// LeastDivisor returns the smallest divisor of a batch that is at least n, or the batch if there is none.
func LeastDivisor(batch, n int) int {
	for _, m := range Divisors(batch) {
		if m >= n {
			return m
		}
	}
	return batch
}
