package profile

import "fmt"

// Reached is the part of its peak rate at which a device computes a run of layers on
// micro-batches of a size, 0 to 1, forward and backward: the seconds that a sample takes at
// the best profiled size over those that it takes at this one. The peak is thus what this
// device was measured to reach in these very layers, not what its maker says: on a CPU core
// nothing counts occupancy. Layers that take no time reach 1.
//
// Refused: layers that are not the profile's; sizes and devices that At refuses.
func (p *Profile) Reached(device string, first, last, size int) (forward, backward float64, err error) {
	if first < 0 || last < first || last >= len(p.Layers) {
		return 0, 0, fmt.Errorf("profile: layers %d to %d; %s has 0 to %d", first, last, p.Model, len(p.Layers)-1)
	}
	perSample := func(size int) (f, b float64, err error) {
		costs, _, err := p.At(device, size)
		if err != nil {
			return 0, 0, err
		}
		for _, c := range costs[first : last+1] {
			f += c.ForwardS / float64(size)
			b += c.BackwardS / float64(size)
		}
		return f, b, nil
	}
	forwardNow, backwardNow, err := perSample(size)
	if err != nil {
		return 0, 0, err
	}
	bestForward, bestBackward := forwardNow, backwardNow
	for _, s := range p.Sizes(device) {
		f, b, err := perSample(s)
		if err != nil {
			return 0, 0, err
		}
		bestForward, bestBackward = min(bestForward, f), min(bestBackward, b)
	}
	part := func(best, now float64) float64 {
		if now <= 0 {
			return 1
		}
		return best / now
	}
	return part(bestForward, forwardNow), part(bestBackward, backwardNow), nil
}
