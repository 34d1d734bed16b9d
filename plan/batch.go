package plan

import (
	"fmt"
	"slices"
)

// MaxBatch bounds the samples of a step, so that no count of micro-batches is beyond what a Program can
// number.
const MaxBatch = maxCount

// CheckBatch refuses a batch of less than one sample or more than MaxBatch.
func CheckBatch(batch int) error {
	if batch < 1 || batch > MaxBatch {
		return fmt.Errorf("plan: a batch of %d samples; it is 1 to %d", batch, MaxBatch)
	}
	return nil
}

// Divisors are the sizes of micro-batches that a batch divides into, ascending: none of a batch below 1.
// Time: the square root of the batch.
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

// LeastDivisor is the smallest divisor of a batch that is not below n; the batch if there is none.
func LeastDivisor(batch, n int) int {
	for _, m := range Divisors(batch) {
		if m >= n {
			return m
		}
	}
	return batch
}
