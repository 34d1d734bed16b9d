package cluster

import "slices"

// Port is one direction of what transfers share on the way to a level's links: the port of a device, an uplink, a rail,
// or the one link of a Shared level. A half duplex link is one Port for both directions.
type Port struct {
	Level, Number int
	Back          bool // into the device or the member; on a Shared level, to a lower number
}

// Load is what a transfer takes of a port: the part of the port's rate, over 0 and up to 1, while nothing else uses it.
type Load struct {
	Port Port
	Part float64
}

// Contends reports whether some level has Contention.
func (c *Cluster) Contends() bool {
	return slices.ContainsFunc(c.Levels, func(l Level) bool { return l.Contention })
}

// MessageLoads returns what a message takes of the ports of levels with Contention. linkS is how long the message
// occupies its links if it is alone. On the level that joins its two devices, it takes the port of each of them, or the
// one link of a Shared level. On levels further in, it takes only uplinks and rails.
func (c *Cluster) MessageLoads(from, to int, bytes int64, linkS float64) []Load {
	if from == to || bytes <= 0 || linkS <= 0 {
		return nil
	}
	var out []Load
	outer := c.LevelOf(from, to)
	for i := range c.Levels[:outer+1] {
		l := &c.Levels[i]
		switch {
		case !l.Contention || i < outer && !l.Uplinks && l.Rails == 0:
		case l.Shared:
			out = c.loaded(out, i, from, from > to, float64(bytes), linkS)
		default:
			out = c.loaded(out, i, from, false, float64(bytes), linkS)
			out = c.loaded(out, i, to, true, float64(bytes), linkS)
		}
	}
	return out
}

// SumLoads returns what a collective takes of the ports of levels with Contention. devices are in ascending order, and
// takesS is how long it takes alone. If n members of a level's groups have some of the devices, each member sends and
// receives (n-1)/n of the bytes, twice for an all-reduce, evenly over the ports that its devices have. A Shared link
// carries the bytes of all members of its group. A member alone in its group takes no port but an uplink or rail. The
// bytes are spread evenly over takesS, so a collective that waits for a slower level takes a small part.
func (c *Cluster) SumLoads(devices []int, bytes float64, what Collective, takesS float64) []Load {
	if len(devices) < 2 || bytes <= 0 || takesS <= 0 {
		return nil
	}
	var out []Load
	outer := c.LevelOf(devices[0], devices[len(devices)-1])
	for i := range c.Levels[:outer+1] {
		l := &c.Levels[i]
		inside := c.groupSize(i - 1)
		n, groups := c.members(devices, i-1), c.members(devices, i)
		if !l.Contention || n < 2 || n == groups && !l.Uplinks && l.Rails == 0 {
			continue
		}
		moved := (n - 1) / n * bytes
		if what == AllReduce {
			moved *= 2
		}
		counts, group, at := c.joined(devices, i), devices[0]/c.groupSize(i), 0
		first := map[int]int{}     // first device of each port
		members := map[int][]int{} // the ports of each member
		for _, d := range devices {
			number, member := c.port(i, d, false).Number, d/inside
			if _, known := first[number]; !known {
				first[number] = d
			}
			if !slices.Contains(members[member], number) {
				members[member] = append(members[member], number)
			}
		}
		for _, d := range devices {
			if g := d / c.groupSize(i); g != group {
				group, at = g, at+1
			}
			if counts[at] < 2 && !l.Uplinks && l.Rails == 0 {
				continue
			}
			if number := c.port(i, d, false).Number; first[number] == d {
				each := moved / float64(len(members[d/inside]))
				if l.Shared {
					each *= float64(counts[at])
				}
				out = c.loaded(out, i, d, false, each, takesS)
				out = c.loaded(out, i, d, true, each, takesS)
			}
		}
	}
	return out
}

// port returns a device's port of a level.
func (c *Cluster) port(level, device int, back bool) Port {
	l := &c.Levels[level]
	inside := 1
	if level > 0 {
		inside = c.groupSize(level - 1)
	}
	p := Port{Level: level, Number: device, Back: back && l.FullDuplex}
	switch {
	case l.Shared:
		p.Number = device / c.groupSize(level)
	case l.Uplinks:
		p.Number = device / inside
	case l.Rails > 0:
		p.Number = device/inside*l.Rails + device%inside*l.Rails/inside
	}
	return p
}

// portRate returns the bytes per second of a device's port in one direction. It is the rate of a message, or the port's
// share of a member's rate in collectives if that is larger.
func (c *Cluster) portRate(level, device int) float64 {
	l := c.link(level, device)
	ports := 1
	switch {
	case level == 0 || l.Uplinks || l.Shared:
	case l.Rails > 0:
		ports = l.Rails
	default:
		ports = c.groupSize(level - 1)
	}
	return max(l.BandwidthBytesPerSecond, l.CollectiveBandwidthBytesPerSecond/float64(ports))
}

// loaded appends to `loads` the part of a device's port that this many bytes take in takesS seconds.
func (c *Cluster) loaded(loads []Load, level, device int, back bool, bytes, takesS float64) []Load {
	p := c.port(level, device, back)
	part := 1.0
	if could := c.portRate(level, device) * takesS; could > bytes {
		part = bytes / could
	}
	for i := range loads {
		if loads[i].Port == p {
			loads[i].Part = min(1, loads[i].Part+part)
			return loads
		}
	}
	return append(loads, Load{Port: p, Part: part})
}
