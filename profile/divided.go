package profile

import (
	"fmt"
	"math"
	"slices"
)

// Divided is the profile with each layer in as many pieces as parts gives it, every piece a layer of its own
// that makes its part of the output (BaPipe, §3.3.2). parts has one list for each layer of p; a list adds up
// to 1.
//
// A piece reads the whole input that its layer reads, and computes, holds and sends its part of everything
// else; whoever reads the layer reads all its pieces. So what crosses a boundary inside a layer, there and
// back, is the layer's input and what has been made of its output so far. A piece shares what its layer
// shares; whoever shares a parameter of a divided layer shares it with the last piece.
func (p *Profile) Divided(parts [][]float64) *Profile {
	first := make([]int, len(p.Layers)+1) // the first piece of each layer
	for l := range p.Layers {
		first[l+1] = first[l] + len(parts[l])
	}
	divided := *p
	divided.Layers = make([]Layer, 0, first[len(p.Layers)])
	for l := range p.Layers {
		layer := p.Layers[l]
		layer.From = nil
		for _, from := range p.Layers[l].From {
			if from < 0 {
				layer.From = append(layer.From, from)
				continue
			}
			for piece := first[from]; piece < first[from+1]; piece++ {
				layer.From = append(layer.From, piece)
			}
		}
		if layer.TiedTo >= 0 {
			layer.TiedTo = first[layer.TiedTo+1] - 1
		}
		if len(parts[l]) == 1 {
			divided.Layers = append(divided.Layers, layer)
			continue
		}
		before := 0.0
		for _, part := range parts[l] {
			divided.Layers = append(divided.Layers, p.piece(layer, l, before, part))
			before += part
		}
	}
	return &divided
}

// piece is the part of layer l that begins behind the part before.
func (p *Profile) piece(layer Layer, l int, before, part float64) Layer {
	share := func(n int64) int64 { return PartBytes(n, before+part) - PartBytes(n, before) }
	for _, n := range []*int64{&layer.ParameterBytes, &layer.TiedBytes, &layer.BufferBytes, &layer.FrozenBytes} {
		*n = share(*n)
	}
	layer.FrozenShared = slices.Clone(layer.FrozenShared)
	for i := range layer.FrozenShared { // a part of it is nobody's other part
		s := &layer.FrozenShared[i]
		s.Name, s.Bytes = fmt.Sprintf("%s behind %g", s.Name, before), share(s.Bytes)
	}
	layer.ScaleUpdates(part, part, part)
	layer.FloatOutputs, layer.WholeOutputBytes = nil, 0 // its costs say
	layer.Costs = make([]Cost, len(p.Layers[l].Costs))
	for i, c := range p.Layers[l].Costs {
		layer.Costs[i] = c.piece(p.inputBytes(l, &c), part, share)
	}
	return layer
}

// PartBytes is how many of n bytes the first part of a layer has. Pieces add up to the whole, and what a
// double cannot say of their parts moves no byte.
func PartBytes(n int64, part float64) int64 { return int64(math.Floor(float64(n)*part + 1e-6)) }

// inputBytes is what a layer reads of other layers at the device and size of one of its costs.
func (p *Profile) inputBytes(l int, at *Cost) int64 {
	bytes := int64(0)
	for _, from := range p.Layers[l].From {
		if from < 0 {
			continue
		}
		for _, c := range p.Layers[from].Costs {
			if c.Device == at.Device && c.MicroBatch == at.MicroBatch {
				bytes += c.OutputBytes
			}
		}
	}
	return bytes
}

// piece is the cost of a part of a layer. Copying the model's inputs is done in full by every piece, and so
// is holding the layer's input for the weights' half and making the gradient of that input in a backward.
func (c Cost) piece(input int64, part float64, share func(int64) int64) Cost {
	whole, feedS := c.owned(), c.FeedS
	c = whole.times(part)
	c.FeedS = feedS
	into, from := c.sizes(), whole.owned()
	for i, n := range from.sizes() {
		*into[i] = share(*n)
	}
	beyond := func(kept, n int64) int64 { kept = min(kept, n); return kept + share(n-kept) }
	c.BackwardPeakBytes = beyond(input, whole.BackwardPeakBytes)
	c.FirstBackwardPeakBytes = beyond(input, whole.FirstBackwardPeakBytes)
	if h := whole.HalvesPeakBytes; h != nil {
		c.HalvesPeakBytes.Input, c.HalvesPeakBytes.FirstInput = beyond(input, h.Input), beyond(input, h.FirstInput)
	}
	if whole.PendingBytes != nil && whole.PendingInputBytes != nil {
		c.PendingBytes = new(beyond(*whole.PendingInputBytes, *whole.PendingBytes))
		c.PendingInputBytes = new(*whole.PendingInputBytes)
	}
	return c
}
