package cluster

import "fmt"

// Grouped returns the cluster with every t consecutive devices as one tensor-parallel group (Shoeybi et al.,
// Megatron-LM, 2019). A device of the result stands for t devices that the innermost level's links join. It has the
// memory of all t. If devices have links of their own, a message between groups is divided over t links, one for each
// device (Narayanan et al., SC 2021, section 4.1). Bandwidth and HalfBytes are then t times as large. On a level with
// rails, a group uses the rails of all its devices. Uplinks and Shared links stay as they are.
//
// Grouped refuses groups of more than 64 devices, groups that do not divide an innermost group, and groups of several
// device types. It also refuses device types that have no kernels or already are groups, workers that share cores, and
// hosts of different sizes.
func (c *Cluster) Grouped(t int, sequenceParallel bool) (*Cluster, error) {
	if t == 1 {
		return c, nil
	}
	inner := c.Levels[0]
	if t < 1 || t > 64 || inner.Size%t != 0 {
		return nil, fmt.Errorf("cluster: groups of %d devices in %s, whose level %s has %d; a group is 2 to 64 devices that "+
			"divide it", t, c.Name, inner.Name, inner.Size)
	}
	if c.SharesCores() || len(c.PerHost) > 1 {
		return nil, fmt.Errorf("cluster: %s has workers that share cores, or hosts that differ; groups are of GPUs that are "+
			"alike", c.Name)
	}
	out := *c
	out.Name = fmt.Sprintf("%s in groups of %d", c.Name, t)
	out.DeviceTypes = map[string]DeviceType{}
	for name, d := range c.DeviceTypes {
		if d.Kernels == nil || d.Group != nil {
			return nil, fmt.Errorf("cluster: device type %s has no kernels, which groups are predicted by, or is a group "+
				"already: build it on one that has, like {like: a100-80gb}", name)
		}
		d.MemoryBytes *= int64(t)
		d.PricePerHour *= float64(t)
		d.Group = &Group{Size: t, SequenceParallel: sequenceParallel, BandwidthBytesPerSecond: inner.collective(),
			LatencyS: inner.LatencyS, Protocols: inner.Protocols}
		out.DeviceTypes[name] = d
	}
	out.Devices = nil
	for i := 0; i < len(c.Devices); i += t {
		for _, d := range c.Devices[i : i+t] {
			if d != c.Devices[i] {
				return nil, fmt.Errorf("cluster: a group of %s has device types %s and %s; its devices are alike", c.Name,
					c.Devices[i], d)
			}
		}
		out.Devices = append(out.Devices, c.Devices[i])
	}
	out.Levels = nil
	for i, l := range c.Levels {
		if i == 0 {
			l.Size /= t
			l.CollectiveBandwidthBytesPerSecond *= float64(t)
		}
		switch {
		case l.Uplinks, l.Shared:
		case l.Rails > 0: // a group uses the rails of all its devices, which neighbours may share
			fewer := min(l.Rails, max(1, c.groupSize(i-1)/t))
			at := float64(l.Rails) / float64(fewer)
			l.BandwidthBytesPerSecond, l.HalfBytes, l.Rails = at*l.BandwidthBytesPerSecond, at*l.HalfBytes, fewer
		default:
			l.BandwidthBytesPerSecond, l.HalfBytes = float64(t)*l.BandwidthBytesPerSecond, float64(t)*l.HalfBytes
		}
		out.Levels = append(out.Levels, l)
	}
	out.Nodes = nil
	for _, n := range c.Nodes {
		n.MemoryBytes *= int64(t)
		n.BandwidthBytesPerSecond *= float64(t)
		out.Nodes = append(out.Nodes, n)
	}
	if len(c.PerHost) == 1 {
		out.PerHost = []int{max(1, c.PerHost[0]/t)}
	}
	return &out, nil
}
