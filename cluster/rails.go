package cluster

import "fmt"

// rails sets how many links to the outside a member of a level has, given the levels inside it. First it counts the
// links that enter the member's switch from inside: one for each device, or one for each uplink or rail of the next
// inner level. With an oversubscription of f, the member has 1/f of that number to the outside. If the result does not
// divide the number of the member's devices, there are more links, each with less bandwidth.
func (l fileLevel) rails(level *Level, inside []Level) error {
	devices := 1
	for _, in := range inside {
		devices *= in.Size
	}
	switch f := l.Oversubscription; {
	case l.Rails == 0 && f == 0:
		return nil
	case len(inside) == 0:
		return fmt.Errorf("it has rails or oversubscription; those are of levels with others inside, and it is the innermost")
	case l.Shared || l.Uplinks || l.Rails != 0 && f != 0:
		return fmt.Errorf("it has several of shared, uplinks, rails and oversubscription; choose one")
	case l.CollectiveBandwidth != "" && f != 0:
		return fmt.Errorf("it has collective_bandwidth beside oversubscription, which says what leaves a member; choose one")
	case l.Rails < 0 || l.Rails > devices || l.Rails > 0 && devices%l.Rails != 0:
		return fmt.Errorf("rails is %d, and a member has %d devices; give a number that divides them", l.Rails, devices)
	case l.Rails > 0:
		level.Rails = l.Rails
		return nil
	case !(f >= 1 && f <= 1000):
		return fmt.Errorf("oversubscription is %v; it is 1 to 1000, like 4 where links inside carry 4 times what leaves", f)
	}
	links := devices
	if last := inside[len(inside)-1]; len(inside) > 1 {
		switch {
		case last.Uplinks || last.Shared:
			links = last.Size
		case last.Rails > 0:
			links = last.Rails * last.Size
		}
	}
	out := float64(links) / l.Oversubscription
	for level.Rails = 1; devices%level.Rails != 0 || float64(level.Rails) < out; {
		level.Rails++
	}
	level.BandwidthBytesPerSecond *= out / float64(level.Rails)
	return nil
}
