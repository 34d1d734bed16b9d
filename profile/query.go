package profile

import (
	"fmt"
	"slices"
)

// Sizes lists the micro-batch sizes that every layer has a cost for on a device type, ascending.
func (p *Profile) Sizes(device string) []int {
	var sizes []int
	for _, c := range p.Layers[0].Costs {
		if c.Device != device {
			continue
		}
		everywhere := true
		for _, l := range p.Layers {
			everywhere = everywhere && slices.ContainsFunc(l.Costs, func(d Cost) bool { return d.Device == device && d.MicroBatch == c.MicroBatch })
		}
		if everywhere {
			sizes = append(sizes, c.MicroBatch)
		}
	}
	slices.Sort(sizes)
	return sizes
}

// DeviceTypes lists the device types that the profile has costs for.
func (p *Profile) DeviceTypes() []string {
	var types []string
	for _, c := range p.Layers[0].Costs {
		if !slices.Contains(types, c.Device) {
			types = append(types, c.Device)
		}
	}
	return types
}

// MissingError is a cost that a profile does not have.
type MissingError struct {
	Model, Device string
	MicroBatch    int
	Have          []int
}

func (e *MissingError) Error() string {
	return fmt.Sprintf("profile: %s has no cost for micro-batches of %d samples on %s; it has %v: profile again with --sizes %d",
		e.Model, e.MicroBatch, e.Device, e.Have, e.MicroBatch)
}

// At is every layer's cost at a micro-batch size. Between two measured sizes costs are
// interpolated linearly, and interpolated says so; outside of them they are refused.
func (p *Profile) At(device string, size int) (costs []Cost, interpolated bool, err error) {
	have := p.Sizes(device)
	low, high := -1, -1
	for _, s := range have {
		if s <= size {
			low = s
		}
		if s >= size && high < 0 {
			high = s
		}
	}
	if low < 0 || high < 0 {
		return nil, false, &MissingError{p.Model, device, size, have}
	}
	costs = make([]Cost, len(p.Layers))
	for i, l := range p.Layers {
		var a, b Cost
		for _, c := range l.Costs {
			if c.Device == device && c.MicroBatch == low {
				a = c
			}
			if c.Device == device && c.MicroBatch == high {
				b = c
			}
		}
		costs[i] = between(a, b, size)
	}
	return costs, low != high, nil
}

func between(a, b Cost, size int) Cost {
	if a.MicroBatch == b.MicroBatch {
		return a
	}
	t := float64(size-a.MicroBatch) / float64(b.MicroBatch-a.MicroBatch)
	real := func(x, y float64) float64 { return x + t*(y-x) }
	whole := func(x, y int64) int64 { return x + int64(t*float64(y-x)) }
	c := Cost{
		Device: a.Device, MicroBatch: size, ForwardS: real(a.ForwardS, b.ForwardS), BackwardS: real(a.BackwardS, b.BackwardS),
		Spread: max(a.Spread, b.Spread), OutputBytes: whole(a.OutputBytes, b.OutputBytes), SavedBytes: whole(a.SavedBytes, b.SavedBytes),
		WorkspaceBytes:   whole(a.WorkspaceBytes, b.WorkspaceBytes),
		ForwardPeakBytes: whole(a.ForwardPeakBytes, b.ForwardPeakBytes), BackwardPeakBytes: whole(a.BackwardPeakBytes, b.BackwardPeakBytes),
	}
	if a.BackwardInputS != nil && b.BackwardInputS != nil {
		c.BackwardInputS = new(real(*a.BackwardInputS, *b.BackwardInputS))
	}
	if a.BackwardWeightS != nil && b.BackwardWeightS != nil {
		c.BackwardWeightS = new(real(*a.BackwardWeightS, *b.BackwardWeightS))
	}
	return c
}

// CutBytes is what crosses the cut behind a layer: the outputs of every layer at or
// before it that a later layer reads.
func (p *Profile) CutBytes(costs []Cost, cut int) int64 {
	var n int64
	for i := 0; i <= cut; i++ {
		if p.crosses(i, cut) {
			n += costs[i].OutputBytes
		}
	}
	return n
}

func (p *Profile) crosses(layer, cut int) bool {
	for _, l := range p.Layers[cut+1:] {
		if slices.Contains(l.From, layer) {
			return true
		}
	}
	return false
}
