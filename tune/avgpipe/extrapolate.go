package avgpipe

import (
	"slices"

	"github.com/millrace-ml/millrace/profile"
)

// Extrapolated is a profile with costs at further sizes of micro-batch, on the line through its
// two largest sizes. What tensors hold lies on it exactly; times do as far as small
// micro-batches are as efficient as large ones, and they are to be scaled to what is measured, as
// an Anchored request does. A profile of one size is in proportion to that.
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
		a.MicroBatch = 0 // at no samples nothing
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

// beyond is the cost of a size above b's.
func beyond(a, b profile.Cost, size int) profile.Cost {
	t := float64(size-b.MicroBatch) / float64(b.MicroBatch-a.MicroBatch)
	// More samples never take less.
	c := b.WithSizes(&a, func(b, a int64) int64 { return b + int64(t*float64(max(b-a, 0))) }).
		WithTimes(&a, func(b, a float64) float64 { return b + t*max(b-a, 0) })
	c.MicroBatch = size
	return c
}
