package profile

import (
	"fmt"
	"math"
	"slices"

	"github.com/millrace-ml/millrace/model"
)

// Divided returns the profile with layers divided into pieces. Each piece is a layer that makes its part of the
// features (BaPipe, §3.3.2; model.Model.Divide). For each layer of p, the argument `parts` has a list of fractions that
// add up to 1. Empty lists at the end leave out the last layers. If a layer's Features are known, pieces are whole
// features.
//
// A piece reads its layer's whole input and computes its part. A piece before the last holds and sends only its part of
// the output. The last piece also reads what the other pieces made, and has the layer's whole output and all that the
// layer saves. Readers of the layer read the last piece. So two things cross a boundary inside a layer: the layer's
// input, and the output made so far. Their gradients cross it back. A piece shares the parameters that its layer
// shares. Layers that share a parameter of a divided layer share it with the last piece.
func (p *Profile) Divided(parts [][]float64) *Profile {
	last := make([]int, len(p.Layers)) // the last piece of each layer
	at := -1
	for l := range p.Layers {
		at += len(parts[l])
		last[l] = at
	}
	divided := *p
	divided.Layers = make([]Layer, 0, at+1)
	for l := range p.Layers {
		layer := p.Layers[l]
		layer.From = slices.Clone(layer.From)
		for i, from := range layer.From {
			if from >= 0 {
				layer.From[i] = last[from]
			}
		}
		if layer.TiedTo >= 0 {
			layer.TiedTo = last[layer.TiedTo]
		}
		switch len(parts[l]) {
		case 0:
			continue
		case 1:
			divided.Layers = append(divided.Layers, layer)
			continue
		}
		before := 0.0
		for _, end := range layer.ends(parts[l]) {
			divided.Layers = append(divided.Layers, p.piece(layer, l, before, end))
			before = end
		}
		joins := &divided.Layers[last[l]]
		for piece := last[l] - len(parts[l]) + 1; piece < last[l]; piece++ {
			joins.From = append(slices.Clone(joins.From), piece)
		}
	}
	return &divided
}

// ends returns where each part of a layer ends, as a fraction of the layer; the last ends at 1.
func (l *Layer) ends(parts []float64) []float64 {
	ends, sum := make([]float64, len(parts)), 0.0
	for i, part := range parts {
		sum += part
		ends[i] = sum
	}
	if l.Features > 0 {
		for i, n := range model.Cut(parts, l.Features) {
			ends[i] = float64(n) / float64(l.Features)
		}
	}
	ends[len(ends)-1] = 1
	return ends
}

// piece returns the part of layer l from the fraction `before` to the fraction `end`.
func (p *Profile) piece(layer Layer, l int, before, end float64) Layer {
	share := func(n int64) int64 { return PartBytes(n, end) - PartBytes(n, before) }
	part := end - before
	for _, n := range []*int64{&layer.ParameterBytes, &layer.TiedBytes, &layer.FrozenBytes} {
		*n = share(*n)
	}
	layer.FrozenShared = slices.Clone(layer.FrozenShared)
	for i := range layer.FrozenShared { // each piece has a different part of the tensor
		s := &layer.FrozenShared[i]
		s.Name, s.Bytes = fmt.Sprintf("%s behind %g", s.Name, before), share(s.Bytes)
	}
	layer.ScaleUpdates(part, part, part)
	if end < 1 {
		layer.BufferBytes = 0                               // batch norm's statistics are in the last piece
		layer.FloatOutputs, layer.WholeOutputBytes = nil, 0 // the costs have these sizes instead
	}
	layer.Costs = make([]Cost, len(p.Layers[l].Costs))
	for i, c := range p.Layers[l].Costs {
		layer.Costs[i] = c.piece(p.inputBytes(l, &c), part, share, end == 1)
	}
	return layer
}

// PartBytes returns how many of a layer's n bytes lie before the fraction `part`. The bytes of pieces add up to n;
// rounding errors in `part` do not change the result.
func PartBytes(n int64, part float64) int64 { return int64(math.Floor(float64(n)*part + 1e-6)) }

// inputBytes returns the bytes that a layer reads from other layers, at the device and size of one of its costs.
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

// piece returns the cost of a part of a layer. The function `share` returns the part's share of some bytes. Every piece
// copies the model's inputs in full.
func (c Cost) piece(input int64, part float64, share func(int64) int64, last bool) Cost {
	whole, feedS := c.owned(), c.FeedS
	c = whole.times(part)
	c.FeedS = feedS
	into, from := c.sizes(), whole.owned()
	for i, n := range from.sizes() {
		*into[i] = share(*n)
	}
	if last {
		c.joins(&whole, input, share)
	} else {
		c.isJoined(&whole, input, share)
	}
	c.WorkspaceBytes = max(0, c.ForwardPeakBytes-c.SavedBytes, c.BackwardPeakBytes)
	return c
}

// beyond returns the bytes of n that a piece of a layer holds: all of the first `kept` bytes, and its share of the
// rest.
func beyond(kept, n int64, share func(int64) int64) int64 {
	kept = min(kept, n)
	return kept + share(n-kept)
}

// isJoined completes the cost of a piece that is not the last piece of its layer. The piece holds its part of the
// output. Its forward needs as much temporary memory as the whole layer's, because the temporary memory of a product
// depends on its input as much as on its output. The piece's backward adds its gradient of the input to the gradient
// from the later pieces, so it holds both gradients for a moment.
func (c *Cost) isJoined(whole *Cost, input int64, share func(int64) int64) {
	c.SavedBytes = c.OutputBytes
	c.ForwardPeakBytes = c.OutputBytes + max(0, whole.ForwardPeakBytes-whole.OutputBytes)
	c.BackwardPeakBytes = input + max(input, beyond(input, max(0, whole.BackwardPeakBytes-input), share))
	if n := whole.FirstBackwardPeakBytes; n > 0 {
		c.FirstBackwardPeakBytes = c.BackwardPeakBytes + share(max(0, n-whole.BackwardPeakBytes))
	}
	c.halves(whole, 2*input, 2*input, input, share)
	if whole.PendingBytes != nil && whole.PendingInputBytes != nil {
		c.PendingBytes = new(beyond(*whole.PendingInputBytes, *whole.PendingBytes, share))
		c.PendingInputBytes = new(*whole.PendingInputBytes)
	}
}

// joins completes the cost of a layer's last piece. The piece holds all that the layer saves and, while it joins the
// parts, also its own part. During a backward it holds, for a moment, the gradient of the whole output a second time,
// in parts. It keeps everything that the weight half of the backward still needs.
func (c *Cost) joins(whole *Cost, input int64, share func(int64) int64) {
	c.ForwardPeakBytes = whole.ForwardPeakBytes + c.OutputBytes
	c.OutputBytes, c.SavedBytes = whole.OutputBytes, whole.SavedBytes
	c.BackwardPeakBytes = beyond(input, whole.BackwardPeakBytes, share) + whole.OutputBytes
	if n := whole.FirstBackwardPeakBytes; n > 0 {
		c.FirstBackwardPeakBytes = beyond(input, n, share) + whole.OutputBytes
	}
	if h := whole.HalvesPeakBytes; h != nil {
		c.halves(whole, beyond(input, h.Input, share)+whole.OutputBytes,
			beyond(input, h.FirstInput, share)+whole.OutputBytes, input, share)
	}
	c.PendingBytes, c.PendingInputBytes = whole.PendingBytes, whole.PendingInputBytes
}

// halves sets the temporary memory of the two halves of a piece's backward.
func (c *Cost) halves(whole *Cost, input, firstInput, kept int64, share func(int64) int64) {
	h := whole.HalvesPeakBytes
	if h == nil {
		return
	}
	weight := beyond(kept, h.Weight, share)
	c.HalvesPeakBytes = &HalvesPeaks{Input: input, FirstInput: firstInput, Weight: weight,
		FirstWeight: weight + share(max(0, h.FirstWeight-h.Weight))}
}
