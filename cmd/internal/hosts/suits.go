package hosts

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/cmd/internal/prepare"
	"github.com/millrace-ml/millrace/internal/terminal"
)

// Has refuses devices of a plan that are none of these hosts' workers.
func (s *Survey) Has(plan string, devices []int) error {
	for _, d := range devices {
		if n := len(s.Hosts) * s.Workers; d >= n {
			return fmt.Errorf("the plan in %s has a worker on device %d; there are devices 0 to %d: %s", plan, d, n-1,
				s.inWords())
		}
	}
	return nil
}

// Fits refuses a cluster that is not of these hosts: another number of workers on a host, or on all of them; device
// types in another order; devices with more memory than their host has for them.
func (s *Survey) Fits(c *cluster.Cluster) error {
	of, have := comparison{s, c}, len(s.Hosts)*s.Workers
	if len(c.Devices) != have {
		return fmt.Errorf("cluster %s has %d devices; there are %d workers: %s", c.Name, len(c.Devices), have, s.inWords())
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

// Suits orders the hosts as a plan's cluster has their types, however a launcher numbers them now. It refuses a
// cluster where the devices that both have are not the same: on other hosts, of other types, or with more memory
// than there is. How many processes they are in is the run's business.
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

// seating is the place of each host in a cluster whose types are named as hosts here name theirs. Places of a type
// are taken by such hosts. The others go where places are left, as they are numbered.
func (w comparison) seating() []int {
	own := w.typeNames()
	var hosts [][]string // the types of their devices
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

// typeNames is what each process's type is called, by rank.
func (s *Survey) typeNames() []string {
	names := make([]string, len(s.Hosts))
	for _, t := range s.Types(1) {
		for _, rank := range t.Ranks {
			names[rank] = t.Name
		}
	}
	return names
}

// common refuses a cluster whose devices, as far as both have some, are not those of the hosts.
func (w comparison) common() error {
	both := min(len(w.c.Devices), len(w.Hosts)*w.Workers)
	if err := w.sameHosts(both); err != nil {
		return err
	}
	return w.sameTypes(both, func(rank int) string { return w.Facts[rank].Kind(0, 0) })
}

// sameTypes refuses types of the first n devices that are in another order than those of hosts, or have more memory.
// What devices of one type must have in common is what as says of their processes. Types that are called as hosts here
// call themselves are these.
func (w comparison) sameTypes(n int, as func(rank int) string) error {
	order := w.order()
	own, called := w.typeNames(), map[string]bool{}
	for _, name := range own {
		called[name] = true
	}
	typeOf := map[string]string{} // of the cluster, by kind
	first := map[string]int{}     // the first device of a type
	used := map[int]int64{}       // memory of a host's devices so far, by host
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
			return fmt.Errorf("cluster %s: devices up to %d have %s of memory on host %s; it has %s for %d workers", w.c.Name, d,
				terminal.Bytes(used[w.Hosts[rank].Node]), w.Hosts[rank].Name, terminal.Bytes(has), w.onHost(rank))
		}
	}
	return nil
}

// kindInWords is what a process computes with, as short as tells it from another's.
func (s *Survey) kindInWords(rank, other int) string {
	short := func(f *prepare.Facts) string {
		return fmt.Sprintf("%s, %d %s", cmp.Or(f.CPU, "a CPU"), f.Cores(), terminal.Plural(f.Cores(), "core"))
	}
	if a := short(&s.Facts[rank]); a != short(&s.Facts[other]) {
		return a
	}
	return s.kind(rank)
}

// sameHosts refuses a cluster whose first n devices are on other hosts than the first n workers.
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
