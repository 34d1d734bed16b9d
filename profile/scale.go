package profile

import (
	"fmt"
	"math"
)

// SourceImported is the Source of profiles read from another planner's file.
const SourceImported = "imported"

// scales reports whether costs for other micro-batch sizes are scaled in proportion.
func (p *Profile) scales(device string, have []int) bool {
	return len(have) == 1 && p.On(device).Source == SourceImported
}

// Basis explains in one sentence how the costs for a micro-batch size were derived. It returns "" if they were measured
// at that size, or if At refuses the size.
func (p *Profile) Basis(device string, size int) string {
	have := p.Sizes(device)
	if _, made, err := p.At(device, size); err != nil || !made {
		return ""
	}
	if p.scales(device, have) {
		return fmt.Sprintf("costs for %d samples are those for %d in proportion: %s was imported and has one size",
			size, have[0], p.Model)
	}
	return fmt.Sprintf("costs for %d samples are interpolated between measured sizes %v", size, have)
}

// scaled returns every layer's cost, scaled in proportion from one size to another.
func (p *Profile) scaled(device string, from, to int) ([]Cost, error) {
	device = p.costsOf(device)
	times := float64(to) / float64(from)
	costs := make([]Cost, len(p.Layers))
	for i, l := range p.Layers {
		for _, c := range l.Costs {
			if c.Device != device || c.MicroBatch != from {
				continue
			}
			if to != from {
				for _, n := range c.sizes() {
					if float64(*n)*times >= math.MaxInt64 {
						return nil, fmt.Errorf("profile: layer %d (%s) would have more than %d bytes for a "+
							"micro-batch of %d samples; it has %d for %d",
							i, l.Name, int64(math.MaxInt64), to, *n, from)
					}
				}
				c = c.times(times)
			}
			c.MicroBatch = to
			costs[i] = c
		}
	}
	return costs, nil
}

// times returns the cost scaled to x times the samples.
func (c Cost) times(x float64) Cost {
	c = c.owned()
	for _, s := range c.seconds() {
		*s *= x
	}
	for _, n := range c.sizes() {
		*n = int64(math.Round(float64(*n) * x))
	}
	return c
}
