package avgpipe

import (
	"slices"

	"github.com/millrace-ml/millrace/profile"
)

// Extrapolated returns a profile with costs for sizes of micro-batches above the largest in p. These costs are on the
// line through the costs of p's two largest sizes. The bytes of tensors lie on that line exactly. Times lie on it only
// if small micro-batches are as efficient as large ones, so the times must be scaled to measurements, as an Anchored
// request does. A profile of one size is scaled in proportion.
func Extrapolated(p *profile.Profile, sizes []int) *profile.Profile {
	out := *p
	out.Layers = slices.Clone(p.Layers)
	for l := range out.Layers {
		costs := &out.Layers[l].Costs
		*costs = slices.Clone(*costs)
		n := len(*costs)
		if n == 0 {
			continue
		}
		b := (*costs)[n-1]
		a := b.Slowed(0, 0).WithSizes(&b, func(_, _ int64) int64 { return 0 })
		a.MicroBatch = 0 // 0 samples cost nothing
		if n > 1 {
			a = (*costs)[n-2]
		}
		for _, size := range sizes {
			if size > b.MicroBatch {
				*costs = append(*costs, beyond(a, b, size))
			}
		}
	}
	return &out
}

// beyond returns the cost of a size above that of `b`, on the line through `a` and `b`.
func beyond(a, b profile.Cost, size int) profile.Cost {
	t := float64(size-b.MicroBatch) / float64(b.MicroBatch-a.MicroBatch)
	// Costs never fall with more samples.
	c := b.WithSizes(&a, func(b, a int64) int64 { return b + int64(t*float64(max(b-a, 0))) }).
		WithTimes(&a, func(b, a float64) float64 { return b + t*max(b-a, 0) })
	c.MicroBatch = size
	return c
}
