package cluster

import "slices"

// Port is a link of a level for which transfers compete, in one direction. It is the port of a device, an uplink, a
// rail, or the one link of a Shared level. A half duplex link is one Port for both directions.
type Port struct {
	Level, Number int
	Back          bool // true: into the device or the member; on a Shared level, from a higher to a lower member
}

// Load says which part of a port's rate a transfer takes while nothing else uses the port. Part is over 0 and up to 1.
type Load struct {
	Port Port
	Part float64
}

// Contends reports whether some level has Contention.
func (c *Cluster) Contends() bool {
	return slices.ContainsFunc(c.Levels, func(l Level) bool { return l.Contention })
}

// MessageLoads returns the ports that a message uses on levels with Contention, and how much of each. linkS is the time
// for which the message occupies its links if it is alone. On the level that joins its two devices, the message uses a
// port of each device, or the one link of a Shared level. On inner levels it uses only uplinks and rails.
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

// SumLoads returns which part of each port's rate a collective takes, on levels with Contention. devices are in
// ascending order. takesS is the time that the collective takes alone. On a level let n be the number of members that
// have some of the devices, counted over all groups of the level. Each of these members sends (n-1)/n of the bytes and
// receives as many. In an all-reduce it sends and receives twice as many. A member's bytes are spread evenly over the
// ports of its devices. A Shared link carries the bytes of all members of its group. A member that is alone in its
// group takes no port but an uplink or rail. The bytes are spread evenly over takesS. So a collective that waits for a
// slower level takes only a small part of a port.
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

// portRate returns the bytes per second of a device's port in one direction. A member may have a higher rate in
// collectives than in messages. The result is the port's share of that higher rate, or the rate of a message if the
// share is smaller.
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

// loaded appends a Load to `loads`: the part of a device's port that `bytes` bytes take if they are sent in takesS
// seconds. If `loads` already has the port, the part is added to the port's Load.
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
