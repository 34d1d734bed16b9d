package profile

import "fmt"

// Stretch is the time of one layer for a micro-batch, and its time at the device's peak, in seconds.
type Stretch struct{ NowS, PeakS float64 }

// Phi returns the fraction of the device's peak, 0 to 1, at which the device computes if the layer takes forS
// seconds.
func (s Stretch) Phi(forS float64) float64 {
	if forS <= s.PeakS {
		return 1
	}
	return s.PeakS / forS
}

// Stretches returns the times of a run of layers on a device, for a micro-batch of `size` samples. The lists `forward`
// and `backward` have the layers in order. The peak time of a layer follows from the profiled size with the least time
// per sample. So a peak is what this device reached in this layer when measured, not what its maker states. The reason
// is that a CPU core has no counter for its occupancy.
//
// Refused: layers that are not the profile's; sizes and devices that At refuses.
func (p *Profile) Stretches(device string, first, last, size int) (forward, backward []Stretch, err error) {
	if first < 0 || last < first || last >= len(p.Layers) {
		return nil, nil, fmt.Errorf("profile: layers %d to %d; %s has 0 to %d", first, last, p.Model, len(p.Layers)-1)
	}
	now, _, err := p.At(device, size)
	if err != nil {
		return nil, nil, err
	}
	for _, c := range now[first : last+1] {
		forward = append(forward, Stretch{c.ForwardS, c.ForwardS})
		backward = append(backward, Stretch{c.BackwardS, c.BackwardS})
	}
	for _, s := range p.Sizes(device) {
		costs, _, err := p.At(device, s)
		if err != nil {
			return nil, nil, err
		}
		times := float64(size) / float64(s)
		for i, c := range costs[first : last+1] {
			forward[i].PeakS = min(forward[i].PeakS, times*c.ForwardS)
			backward[i].PeakS = min(backward[i].PeakS, times*c.BackwardS)
		}
	}
	return forward, backward, nil
}
