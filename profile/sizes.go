package profile

// sizes is where a cost keeps its sizes in bytes, which all depend on the micro-batch: those that every cost
// has first. Whoever writes to them makes those behind pointers the cost's own before (owned).
func (c *Cost) sizes() []*int64 {
	all := []*int64{&c.OutputBytes, &c.SavedBytes, &c.WorkspaceBytes, &c.ForwardPeakBytes, &c.BackwardPeakBytes,
		&c.FirstBackwardPeakBytes}
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

// owned is a cost that shares no size with c.
func (c Cost) owned() Cost {
	for _, n := range []**int64{&c.PendingBytes, &c.PendingInputBytes} {
		if *n != nil {
			*n = new(**n)
		}
	}
	if c.HalvesPeakBytes != nil {
		c.HalvesPeakBytes = new(*c.HalvesPeakBytes)
	}
	return c
}

// WithSizes is c with every size in bytes worked out from its own and another cost's of the same layer. What
// one of the two does not know is not known.
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

// both is two values if neither is missing, else none.
func both[T any](a, b *T) (*T, *T) {
	if a == nil || b == nil {
		return nil, nil
	}
	return a, b
}
