package profile

import (
	"fmt"
	"slices"
	"strings"

	"github.com/millrace-ml/millrace/profile/board"
)

// AnyDevice is the device type of costs that hold on every device. An imported profile was measured on one GPU, and
// its planners assume that every device is that GPU.
const AnyDevice = "any"

// costsOf returns the device type under which the costs for a device are listed: its own, or AnyDevice.
func (p *Profile) costsOf(device string) string {
	named := func(name string) bool {
		return len(p.Layers) > 0 && slices.ContainsFunc(p.Layers[0].Costs, func(c Cost) bool {
			return c.Device == name
		})
	}
	if !named(device) && named(AnyDevice) {
		return AnyDevice
	}
	return device
}

// Covers reports whether there are costs for a device type.
func (p *Profile) Covers(device string) bool { return len(p.Sizes(device)) > 0 }

// Sizes returns the micro-batch sizes for which every layer has a cost on a device type, ascending. It leaves out the
// sizes in Slices.
func (p *Profile) Sizes(device string) []int {
	return slices.DeleteFunc(p.known(device), func(size int) bool { return slices.Contains(p.Slices, size) })
}

// known returns the same sizes as Sizes, and also those in Slices.
func (p *Profile) known(device string) []int {
	if len(p.Layers) == 0 {
		return nil
	}
	device = p.costsOf(device)
	sizes := p.Layers[0].sizes(device)
	for i := range p.Layers[1:] {
		if own := p.Layers[1+i].sizes(device); !slices.Equal(own, sizes) {
			sizes = slices.DeleteFunc(sizes, func(size int) bool {
				_, found := slices.BinarySearch(own, size)
				return !found
			})
		}
	}
	return sizes
}

// sizes returns the micro-batch sizes for which the layer has a cost on a device type, ascending.
func (l *Layer) sizes(device string) (sizes []int) {
	for i := range l.Costs {
		if c := &l.Costs[i]; c.Device == device {
			sizes = append(sizes, c.MicroBatch)
		}
	}
	if !slices.IsSorted(sizes) {
		slices.Sort(sizes)
	}
	return sizes
}

// DeviceTypes returns the device types for which the profile has costs.
func (p *Profile) DeviceTypes() []string {
	var types []string
	for _, c := range p.Layers[0].Costs {
		if !slices.Contains(types, c.Device) {
			types = append(types, c.Device)
		}
	}
	return types
}

// MissingError reports a cost that a profile does not have.
type MissingError struct {
	Model, Device string
	MicroBatch    int
	Have          []int
	Devices       []string // device types that have costs
}

func (e *MissingError) Error() string {
	switch {
	case e.MicroBatch < 1:
		return fmt.Sprintf("profile: a micro-batch of %d samples; it must be 1 at least", e.MicroBatch)
	case len(e.Have) == 0:
		return fmt.Sprintf("profile: %s has no costs on device type %s; it has them on %s: profile there, or import "+
			"with --device %s",
			e.Model, e.Device, strings.Join(e.Devices, ", "), e.Device)
	}
	return fmt.Sprintf("profile: %s has no cost for micro-batches of %d samples on %s; it has %v: profile again with "+
		"--sizes %d",
		e.Model, e.MicroBatch, e.Device, e.Have, e.MicroBatch)
}

// At returns every layer's cost at a micro-batch size. Between two measured sizes it interpolates linearly, and
// `interpolated` is true. Outside of the measured range it returns an error.
//
// An imported profile has one size: the minibatch with which it was measured. For other sizes its times and bytes are
// scaled in proportion to the samples, up or down, as the published planners do. The result `interpolated` is then true
// too, and Basis explains it. Scaling assumes that small micro-batches are as efficient as large ones, which is true on
// no device.
func (p *Profile) At(device string, size int) (costs []Cost, interpolated bool, err error) {
	have := p.known(device)
	if p.scales(device, have) && size >= 1 {
		costs, err := p.scaled(device, have[0], size)
		return costs, size != have[0], err
	}
	asked := device
	device = p.costsOf(device)
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
		return nil, false, &MissingError{p.Model, asked, size, have, p.DeviceTypes()}
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
	c := a.WithSizes(&b, whole).WithTimes(&b, real)
	c.MicroBatch, c.Spread = size, max(a.Spread, b.Spread)
	return c
}

// Again returns the times of the layer's forward and backward when the forward is recomputed before the backward.
func (c *Cost) Again() (forwardS, backwardS float64) {
	if c.BareForwardS == nil || c.AgainS == nil {
		return c.ForwardS, c.ForwardS + c.BackwardS
	}
	return *c.BareForwardS, *c.AgainS
}

// OnBoard returns the times of layer l on a board, to be added to those of the stage's other layers.
func (p *Profile) OnBoard(costs []Cost, l int) board.Sum {
	c := &costs[l]
	sum := board.Sum{ForwardS: c.ForwardS, BackwardS: c.BackwardS,
		WeightBytes: float64(p.Layers[l].ParameterBytes + p.Layers[l].TiedBytes)}
	if sum.PairedS = c.ForwardS + c.BackwardS; c.Board != nil {
		sum.Cost = *c.Board
	}
	return sum
}

// OfBoards reports whether any of the costs is for a board.
func OfBoards(costs []Cost) bool {
	return slices.ContainsFunc(costs, func(c Cost) bool { return c.Board != nil })
}

// StillBytes returns the bytes of the layer's buffers and frozen parameters.
func (l *Layer) StillBytes() int64 {
	n := l.BufferBytes + l.FrozenBytes
	for _, shared := range l.FrozenShared {
		n += shared.Bytes
	}
	return n
}

// CutBytes returns the bytes that cross the cut after layer `cut`. These are the outputs of every layer up to the cut
// that a layer after the cut reads.
func (p *Profile) CutBytes(costs []Cost, cut int) int64 { return p.crossing(costs, cut, false) }

// GradientBytes returns the part of CutBytes for which gradients come back over the cut.
func (p *Profile) GradientBytes(costs []Cost, cut int) int64 { return p.crossing(costs, cut, true) }

func (p *Profile) crossing(costs []Cost, cut int, gradients bool) int64 {
	var n int64
	crosses := make([]bool, cut+1)
	for _, l := range p.Layers[cut+1:] {
		for _, from := range l.From {
			if from >= 0 && from <= cut && !crosses[from] && !(gradients && p.Layers[from].NoGradient) {
				crosses[from] = true
				n += costs[from].OutputBytes
			}
		}
	}
	return n
}
