package hosts

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/cmd/internal/prepare"
	"github.com/millrace-ml/millrace/internal/terminal"
)

// Has refuses devices of a plan that these hosts do not have.
func (s *Survey) Has(plan string, devices []int) error {
	for _, d := range devices {
		if n := len(s.Hosts) * s.Workers; d >= n {
			return fmt.Errorf("the plan in %s has a worker on device %d; there are devices 0 to %d: %s", plan, d, n-1,
				s.inWords())
		}
	}
	return nil
}

// Fits refuses a cluster that does not describe these hosts. It compares the number of workers on each host and in all,
// which devices are in one process, the order of device types, and the memory of devices.
func (s *Survey) Fits(c *cluster.Cluster) error {
	of, have := comparison{s, c}, len(s.Hosts)*s.Workers
	if len(c.Devices) != have {
		return fmt.Errorf("cluster %s has %s; here: %s", c.Name, terminal.Count(len(c.Devices), "device"), s.inWords())
	}
	if err := of.sameHosts(have); err != nil {
		return err
	}
	for d := s.Workers; d < have; d += s.Workers {
		if c.InOneMemory(d-1, d) {
			return fmt.Errorf("cluster %s has devices %d and %d in one process; each process has %d %s: %s", c.Name, d-1, d,
				s.Workers, terminal.Plural(s.Workers, "worker"), s.inWords())
		}
	}
	return of.sameTypes(have, s.kind)
}

// Suits refuses a plan's cluster that does not match the hosts. A launcher may number the hosts in another order than
// the cluster. So if the hosts do not match as they are, Suits reorders them by their types. It compares only devices
// that both the hosts and the cluster have. The cluster must divide these devices among hosts in the same way, and
// their types must match. It must not give them more memory than the hosts have. The number of processes that hold the
// devices is not compared, because the run decides it.
func (s *Survey) Suits(c *cluster.Cluster) error {
	of := comparison{s, c}
	err := of.common()
	if err == nil {
		return nil
	}
	if s.seats = of.seating(); of.common() != nil {
		s.seats = nil
		return err
	}
	return nil
}

// comparison compares hosts with a cluster that may describe them.
type comparison struct {
	*Survey
	c *cluster.Cluster
}

// seating returns each host's place in the cluster. Each place goes to the first host that has no place yet and whose
// devices have the same type names. The remaining hosts then take the remaining places in order.
func (w comparison) seating() []int {
	own := w.typeNames()
	var hosts [][]string // for each host, the types of its devices
	for _, ranks := range w.byHost() {
		var types []string
		for _, rank := range ranks {
			types = append(types, slices.Repeat([]string{own[rank]}, w.Workers)...)
		}
		hosts = append(hosts, types)
	}
	seats := slices.Repeat([]int{-1}, len(hosts))
	taken, at := make([]bool, len(hosts)), 0
	for seat, n := range w.c.HostSizes() {
		types := w.c.Devices[at : at+n]
		at += n
		for host := range hosts {
			if seat < len(hosts) && seats[host] < 0 && slices.Equal(hosts[host], types) {
				seats[host], taken[seat] = seat, true
				break
			}
		}
	}
	for host := range seats {
		if seats[host] < 0 {
			seats[host] = slices.Index(taken, false)
			taken[seats[host]] = true
		}
	}
	return seats
}

// typeNames returns the name of each process's type, by rank.
func (s *Survey) typeNames() []string {
	names := make([]string, len(s.Hosts))
	for _, t := range s.Types(1) {
		for _, rank := range t.Ranks {
			names[rank] = t.Name
		}
	}
	return names
}

// common compares the devices that both the cluster and the hosts have. It refuses a cluster in which such a device
// differs.
func (w comparison) common() error {
	both := min(len(w.c.Devices), len(w.Hosts)*w.Workers)
	if err := w.sameHosts(both); err != nil {
		return err
	}
	return w.sameTypes(both, func(rank int) string { return w.Facts[rank].Kind(0, 0) })
}

// sameTypes compares the types of the cluster's first n devices with those of the hosts, in order. It refuses a device
// type that has the name of another host's type, and two device types for one kind of host. It refuses a device type
// that two processes share if `as` returns different texts for them. It also refuses devices that together have more
// memory than their host.
func (w comparison) sameTypes(n int, as func(rank int) string) error {
	order := w.order()
	own, called := w.typeNames(), map[string]bool{}
	for _, name := range own {
		called[name] = true
	}
	typeOf := map[string]string{} // the cluster's type of each kind of host
	first := map[string]int{}     // the first device of each type
	used := map[int]int64{}       // memory given to each host's devices so far
	for d, name := range w.c.Devices[:n] {
		rank := order[d/w.Workers]
		kind := w.kind(rank)
		where := fmt.Sprintf("rank %d on host %s", rank, w.Hosts[rank].Name)
		if called[name] && own[rank] != name {
			return fmt.Errorf("cluster %s: device %d is of type %s; %s, where it would be, is of type %s", w.c.Name, d, name,
				where, own[rank])
		}
		if other, known := typeOf[kind]; known && other != name {
			return fmt.Errorf("cluster %s: device %d is of type %s; %s, where it would be, is of the same host type as one of "+
				"type %s", w.c.Name, d, name, where, other)
		}
		if at, known := first[name]; !known {
			first[name] = d
		} else if of := order[at/w.Workers]; as(of) != as(rank) {
			return fmt.Errorf("cluster %s: devices %d and %d are of type %s; %s, where device %d would be, is another host "+
				"type (%s) than rank %d on host %s (%s)", w.c.Name, at, d, name, where, d, w.kindInWords(rank, of), of,
				w.Hosts[of].Name, w.kindInWords(of, rank))
		}
		typeOf[kind] = name
		used[w.Hosts[rank].Node] += w.c.MemoryBytes(d)
		if has := w.Facts[rank].MemoryBytes; has > 0 && used[w.Hosts[rank].Node] > has {
			with := fmt.Sprintf("devices up to %d have", d)
			if used[w.Hosts[rank].Node] == w.c.MemoryBytes(d) {
				with = fmt.Sprintf("device %d has", d)
			}
			return fmt.Errorf("cluster %s: %s %s of memory on host %s; it has %s for %s", w.c.Name, with,
				terminal.Bytes(used[w.Hosts[rank].Node]), w.Hosts[rank].Name, terminal.Bytes(has),
				terminal.Count(w.onHost(rank), "worker"))
		}
	}
	return nil
}

// kindInWords describes the hardware of a process briefly, but in enough detail to tell it from the process `other`.
func (s *Survey) kindInWords(rank, other int) string {
	short := func(f *prepare.Facts) string {
		return fmt.Sprintf("%s, %d %s", cmp.Or(f.CPU, "a CPU"), f.Cores(), terminal.Plural(f.Cores(), "core"))
	}
	if a := short(&s.Facts[rank]); a != short(&s.Facts[other]) {
		return a
	}
	return s.kind(rank)
}

// sameHosts refuses a cluster that divides its first n devices differently among hosts.
func (w comparison) sameHosts(n int) error {
	var sizes []int
	for _, host := range w.byHost() {
		sizes = append(sizes, len(host)*w.Workers)
	}
	if has := w.c.HostSizes(); !slices.Equal(cluster.FirstHosts(has, n), cluster.FirstHosts(sizes, n)) {
		return fmt.Errorf("cluster %s is %s; here are %s: devices_per_host says where hosts end", w.c.Name, hostsOf(has),
			w.inWords())
	}
	return nil
}
