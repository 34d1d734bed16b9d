package profile

// sizes returns pointers to all sizes of a cost, in bytes. All these sizes depend on the micro-batch. Sizes that are
// never missing come first. Some pointers are to memory that costs may share, so call owned before writing.
func (c *Cost) sizes() []*int64 {
	all := []*int64{&c.OutputBytes, &c.SavedBytes, &c.WorkspaceBytes, &c.ForwardPeakBytes, &c.BackwardPeakBytes,
		&c.FirstBackwardPeakBytes, &c.Scores.Bytes}
	for _, n := range []*int64{c.PendingBytes, c.PendingInputBytes} {
		if n != nil {
			all = append(all, n)
		}
	}
	if h := c.HalvesPeakBytes; h != nil {
		all = append(all, &h.Input, &h.FirstInput, &h.Weight, &h.FirstWeight)
	}
	return all
}

// seconds returns pointers to all times of a cost. All these times depend on the micro-batch. Times that are never
// missing come first. Some pointers are to memory that costs may share, so call owned before writing.
func (c *Cost) seconds() []*float64 {
	all := []*float64{&c.ForwardS, &c.BackwardS, &c.FeedS, &c.Scores.AgainS}
	for _, s := range []*float64{c.BackwardInputS, c.BackwardWeightS, c.BareForwardS, c.AgainS} {
		if s != nil {
			all = append(all, s)
		}
	}
	if b := c.Board; b != nil {
		all = append(all, &b.PairedS, &b.ForwardMemoryS, &b.BackwardMemoryS)
	}
	return all
}

// owned returns a copy that shares no size and no time with c.
func (c Cost) owned() Cost {
	for _, s := range []**float64{&c.BackwardInputS, &c.BackwardWeightS, &c.BareForwardS, &c.AgainS} {
		if *s != nil {
			*s = new(**s)
		}
	}
	for _, n := range []**int64{&c.PendingBytes, &c.PendingInputBytes} {
		if *n != nil {
			*n = new(**n)
		}
	}
	if c.HalvesPeakBytes != nil {
		c.HalvesPeakBytes = new(*c.HalvesPeakBytes)
	}
	if c.Board != nil {
		c.Board = new(*c.Board)
	}
	return c
}

// WithSizes returns c with each size in bytes replaced by of(c's size, other's size). The argument `other` is another
// cost of the same layer. A size that c or other lacks is missing in the result.
func (c Cost) WithSizes(other *Cost, of func(own, others int64) int64) Cost {
	c, o := c.owned(), *other
	c.PendingBytes, o.PendingBytes = both(c.PendingBytes, o.PendingBytes)
	c.PendingInputBytes, o.PendingInputBytes = both(c.PendingInputBytes, o.PendingInputBytes)
	c.HalvesPeakBytes, o.HalvesPeakBytes = both(c.HalvesPeakBytes, o.HalvesPeakBytes)
	others := o.sizes()
	for i, at := range c.sizes() {
		*at = of(*at, *others[i])
	}
	return c
}

// WithTimes returns c with each time replaced by of(c's time, other's time), as WithSizes does for sizes.
func (c Cost) WithTimes(other *Cost, of func(own, others float64) float64) Cost {
	c, o := c.owned(), *other
	c.BackwardInputS, o.BackwardInputS = both(c.BackwardInputS, o.BackwardInputS)
	c.BackwardWeightS, o.BackwardWeightS = both(c.BackwardWeightS, o.BackwardWeightS)
	c.BareForwardS, o.BareForwardS = both(c.BareForwardS, o.BareForwardS)
	c.AgainS, o.AgainS = both(c.AgainS, o.AgainS)
	c.Board, o.Board = both(c.Board, o.Board)
	others := o.seconds()
	for i, at := range c.seconds() {
		*at = of(*at, *others[i])
	}
	return c
}

// Slowed returns c with the times of its forwards and backwards multiplied by these factors. Recomputation in a
// backward is multiplied like the backward.
func (c Cost) Slowed(forward, backward float64) Cost {
	c = c.owned()
	if all := c.ForwardS + c.BackwardS; c.Board != nil && all > 0 {
		c.Board.PairedS *= (forward*c.ForwardS + backward*c.BackwardS) / all
	}
	for _, pass := range []struct {
		by    float64
		times []*float64
	}{
		{forward, []*float64{&c.FeedS, &c.ForwardS, c.BareForwardS}},
		{backward, []*float64{&c.BackwardS, &c.Scores.AgainS, c.BackwardInputS, c.BackwardWeightS, c.AgainS}},
	} {
		for _, s := range pass.times {
			if s != nil {
				*s *= pass.by
			}
		}
	}
	return c
}

// both returns a and b, or two nils if one of them is nil.
func both[T any](a, b *T) (*T, *T) {
	if a == nil || b == nil {
		return nil, nil
	}
	return a, b
}
