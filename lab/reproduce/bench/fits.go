package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/millrace-ml/millrace/plan"
	"github.com/millrace-ml/millrace/plan/split"
)

// Fits says whether a model can be cut into a pipeline over n devices so that every stage fits in its device's memory.
func (b *Bench) Fits(order string, n, microBatch, microBatches int, recompute bool) (bool, error) {
	p, err := b.Profile(microBatch)
	if err != nil {
		return false, err
	}
	limits := split.Limits{Stages: n, MicroBatch: microBatch, MicroBatches: microBatches, Depths: Depths(n, microBatches)}
	if order == "afab" {
		for i := range limits.Depths {
			limits.Depths[i] = microBatches
		}
	}
	if recompute {
		limits.Recompute = slices.Repeat([]plan.Recompute{plan.KeepInput}, n)
	}
	_, err = split.Pipeline(p, b.C, limits)
	var memory *plan.MemoryError
	if errors.As(err, &memory) {
		return false, nil
	}
	return err == nil, err
}

// Largest returns the largest number of layers that fits, as a multiple of `step`. It tries at least 4 layers, and
// returns an error if it would have to try more than 2048.
func Largest(ctx context.Context, step int, fits func(layers int) (bool, error)) (int, error) {
	low, high := 0, 1
	for {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		if high*step > 2048 {
			return 0, fmt.Errorf("over 2048 layers fit")
		}
		ok, err := fits(max(4, high*step))
		if err != nil {
			return 0, err
		}
		if !ok {
			break
		}
		low, high = high, 2*high
	}
	for high-low > 1 {
		mid := (low + high) / 2
		ok, err := fits(max(4, mid*step))
		if err != nil {
			return 0, err
		}
		if ok {
			low = mid
		} else {
			high = mid
		}
	}
	return low * step, nil
}
