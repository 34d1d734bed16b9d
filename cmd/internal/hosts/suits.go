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
	have := len(s.Hosts) * s.Workers
	if len(c.Devices) != have {
		return fmt.Errorf("cluster %s has %d devices; there are %d workers: %s", c.Name, len(c.Devices), have, s.inWords())
	}
	if err := s.fitsHosts(c, have); err != nil {
		return err
	}
	for d := s.Workers; d < have; d += s.Workers {
		if c.InOneMemory(d-1, d) {
			return fmt.Errorf("cluster %s has devices %d and %d in one process; each process has %d %s: %s", c.Name, d-1, d,
				s.Workers, terminal.Plural(s.Workers, "worker"), s.inWords())
		}
	}
	return s.fitsTypes(c, have, s.kind)
}

// Suits orders the hosts as a plan's cluster has their types, however a launcher numbers them now, and refuses one
// where the devices that both have are not the same: on other hosts, of other types, or with more memory than there
// is. How many processes they are in is the run's business.
func (s *Survey) Suits(c *cluster.Cluster) error {
	err := s.suits(c)
	if err == nil {
		return nil
	}
	if s.seats = s.seated(c); s.suits(c) != nil {
		s.seats = nil
		return err
	}
	return nil
}

// seated is the place of each host where those of a cluster whose types are called as hosts here call theirs are taken
// by such hosts. The others go where places are left, as they are numbered.
func (s *Survey) seated(c *cluster.Cluster) []int {
	own := s.typeNames()
	var hosts [][]string // the types of their devices
	for _, ranks := range s.byHost() {
		var types []string
		for _, rank := range ranks {
			types = append(types, slices.Repeat([]string{own[rank]}, s.Workers)...)
		}
		hosts = append(hosts, types)
	}
	seats := slices.Repeat([]int{-1}, len(hosts))
	taken, at := make([]bool, len(hosts)), 0
	for seat, n := range c.HostSizes() {
		types := c.Devices[at : at+n]
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

func (s *Survey) suits(c *cluster.Cluster) error {
	both := min(len(c.Devices), len(s.Hosts)*s.Workers)
	if err := s.fitsHosts(c, both); err != nil {
		return err
	}
	return s.fitsTypes(c, both, func(rank int) string { return s.Facts[rank].Kind(0, 0) })
}

// fitsTypes refuses types of the first n devices that are in another order than those of hosts, or have more memory.
// What devices of one type must have in common is what as says of their processes. Types that are called as hosts here
// call themselves are these.
func (s *Survey) fitsTypes(c *cluster.Cluster, n int, as func(rank int) string) error {
	order := s.order()
	own, called := s.typeNames(), map[string]bool{}
	for _, name := range own {
		called[name] = true
	}
	typeOf := map[string]string{} // of the cluster, by kind
	first := map[string]int{}     // the first device of a type
	used := map[int]int64{}       // memory of a host's devices so far, by host
	for d, name := range c.Devices[:n] {
		rank := order[d/s.Workers]
		kind := s.kind(rank)
		where := fmt.Sprintf("rank %d on host %s", rank, s.Hosts[rank].Name)
		if called[name] && own[rank] != name {
			return fmt.Errorf("cluster %s: device %d is of type %s; %s, where it would be, is of type %s", c.Name, d, name,
				where, own[rank])
		}
		if other, known := typeOf[kind]; known && other != name {
			return fmt.Errorf("cluster %s: device %d is of type %s; %s, where it would be, is of the same host type as one of "+
				"type %s", c.Name, d, name, where, other)
		}
		if at, known := first[name]; !known {
			first[name] = d
		} else if of := order[at/s.Workers]; as(of) != as(rank) {
			return fmt.Errorf("cluster %s: devices %d and %d are of type %s; %s, where device %d would be, is another host "+
				"type (%s) than rank %d on host %s (%s)", c.Name, at, d, name, where, d, s.kindInWords(rank, of), of,
				s.Hosts[of].Name, s.kindInWords(of, rank))
		}
		typeOf[kind] = name
		used[s.Hosts[rank].Node] += c.MemoryBytes(d)
		if has := s.Facts[rank].MemoryBytes; has > 0 && used[s.Hosts[rank].Node] > has {
			return fmt.Errorf("cluster %s: devices up to %d have %s of memory on host %s; it has %s for %d workers", c.Name, d,
				terminal.Bytes(used[s.Hosts[rank].Node]), s.Hosts[rank].Name, terminal.Bytes(has), s.onHost(rank))
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

// fitsHosts refuses a cluster whose first n devices are on other hosts than the first n workers.
func (s *Survey) fitsHosts(c *cluster.Cluster, n int) error {
	var sizes []int
	for _, host := range s.byHost() {
		sizes = append(sizes, len(host)*s.Workers)
	}
	if has := c.HostSizes(); !slices.Equal(cluster.FirstHosts(has, n), cluster.FirstHosts(sizes, n)) {
		return fmt.Errorf("cluster %s is %s; here are %s: devices_per_host says where hosts end", c.Name, hostsOf(has),
			s.inWords())
	}
	return nil
}
