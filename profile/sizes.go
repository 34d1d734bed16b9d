package profile

// sizes is where a cost keeps its sizes in bytes, which all depend on the micro-batch: those that every cost
// has first. Whoever writes to them makes those behind pointers the cost's own before (owned).
func (c *Cost) sizes() []*int64 {
	all := []*int64{&c.OutputBytes, &c.SavedBytes, &c.WorkspaceBytes, &c.ForwardPeakBytes, &c.BackwardPeakBytes, &c.FirstBackwardPeakBytes}
	if c.PendingBytes != nil {
		all = append(all, c.PendingBytes)
	}
	if h := c.HalvesPeakBytes; h != nil {
		all = append(all, &h.Input, &h.FirstInput, &h.Weight, &h.FirstWeight)
	}
	return all
}

// owned is a cost that shares no size with c.
func (c Cost) owned() Cost {
	if c.PendingBytes != nil {
		c.PendingBytes = new(*c.PendingBytes)
	}
	if c.HalvesPeakBytes != nil {
		c.HalvesPeakBytes = new(*c.HalvesPeakBytes)
	}
	return c
}

// WithSizes is c with every size in bytes worked out from its own and another cost's of the same layer. What
// one of the two does not know is not known.
func (c Cost) WithSizes(other *Cost, of func(own, others int64) int64) Cost {
	if other.PendingBytes == nil {
		c.PendingBytes = nil
	}
	if other.HalvesPeakBytes == nil {
		c.HalvesPeakBytes = nil
	}
	c, o := c.owned(), *other
	if c.PendingBytes == nil {
		o.PendingBytes = nil
	}
	if c.HalvesPeakBytes == nil {
		o.HalvesPeakBytes = nil
	}
	others := o.sizes()
	for i, at := range c.sizes() {
		*at = of(*at, *others[i])
	}
	return c
}
