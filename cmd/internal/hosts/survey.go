package hosts

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/cmd/internal/prepare"
	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/run/process"
)

// Host is the host of a process.
type Host struct {
	Name string
	Node int // the host's number among all hosts
}

// Survey holds what rank 0 knows of all processes.
type Survey struct {
	Hosts   []Host          // by rank
	Facts   []prepare.Facts // by rank
	Workers int             // of each process
	seats   []int           // by Node: the host's place in the order of devices; nil: its place is Node
}

// order returns all ranks in the order of devices: sorted by the places of their hosts.
func (s *Survey) order() []int {
	ranks := make([]int, len(s.Hosts))
	for r := range ranks {
		ranks[r] = r
	}
	seat := func(rank int) int {
		if s.seats == nil {
			return s.Hosts[rank].Node
		}
		return s.seats[s.Hosts[rank].Node]
	}
	slices.SortStableFunc(ranks, func(a, b int) int { return cmp.Compare(seat(a), seat(b)) })
	return ranks
}

// Places returns the process and the local worker for each device.
func (s *Survey) Places(devices []int) []process.Location {
	ranks, at := s.order(), make([]process.Location, len(devices))
	for k, device := range devices {
		at[k] = process.Location{Process: ranks[device/s.Workers], Device: device % s.Workers}
	}
	return at
}

// beside lists the processes that share processors with this one, including itself.
func (s *Survey) beside(rank int) []int {
	var all []int
	for r := range s.Hosts {
		if s.Hosts[r].Node == s.Hosts[rank].Node && s.Facts[r].Meets(&s.Facts[rank]) {
			all = append(all, r)
		}
	}
	return all
}

// Share returns how many workers of a process can compute at once if each has this many threads; at least one.
// Processes that share processors divide them equally.
func (s *Survey) Share(rank, threads int) int {
	return max(1, s.Facts[rank].Cores()/max(threads, 1)/len(s.beside(rank)))
}

// Seat is a process's share of its host.
type Seat struct {
	Cores   int  `json:"cores"`             // cores for the process's own workers
	Starved bool `json:"starved,omitempty"` // processes that share its cores have more threads than cores (see starved)
	// Parts is the number of processes that use exactly the same processors as this process, including itself. Part is
	// this process's number among them. Both are 0 if no other process uses any of its processors, or if a process that
	// uses some of them does not use exactly the same set.
	Part  int `json:"part,omitempty"`
	Parts int `json:"parts,omitempty"`
}

// Seats returns the share of every process, by rank.
func (s *Survey) Seats(threads int) []Seat {
	var seats []Seat
	for rank := range s.Hosts {
		seat := Seat{Cores: s.Share(rank, threads), Starved: s.starved(rank, threads)}
		beside := s.beside(rank)
		alike := !slices.ContainsFunc(beside, func(r int) bool {
			return !slices.Equal(s.Facts[r].Processors, s.Facts[rank].Processors)
		})
		if alike && len(beside) > 1 {
			seat.Part, seat.Parts = slices.Index(beside, rank), len(beside)
		}
		seats = append(seats, seat)
	}
	return seats
}

// starved reports whether the processes that share this process's cores have more threads than cores. It counts one
// computing worker for each process.
func (s *Survey) starved(rank, threads int) bool {
	return s.Facts[rank].Cores() < len(s.beside(rank))*max(threads, 1)
}

// Crowded describes in words each group of processes that share cores and for which starved returns true. A text names
// the host, the number of processes, the threads of each, and the cores.
func (s *Survey) Crowded(threads int) []string {
	var said []string
	for _, rank := range s.order() {
		beside, cores := s.beside(rank), s.Facts[rank].Cores()
		if s.starved(rank, threads) && beside[0] == rank {
			of := ""
			if threads > 1 {
				of = fmt.Sprintf(" of %d threads", threads)
			}
			said = append(said, fmt.Sprintf("host %s: %d %s%s on %d %s, so that predictions are not to be judged",
				s.Hosts[rank].Name, len(beside), terminal.Plural(len(beside), "process"), of, cores,
				terminal.Plural(cores, "core")))
		}
	}
	return said
}

// Type is a group of processes whose workers compute at the same speed.
type Type struct {
	Name  string
	Kind  string // everything that the speed of the type's workers depends on
	Ranks []int
	// Workers is the number of workers that share the processors during the measurement. At most Cores of them compute
	// at once.
	Workers, Cores int
}

// Types returns the host types, beginning with the type of rank 0. A single type has the name of its device, as on one
// machine.
func (s *Survey) Types(threads int) []Type {
	var types []Type
	at := map[string]int{}
	for rank := range s.Hosts {
		f, kind := &s.Facts[rank], s.kind(rank)
		i, known := at[kind]
		if !known {
			i = len(types)
			at[kind] = i
			types = append(types, Type{Name: f.TypeName(kind), Kind: kind, Workers: len(s.beside(rank)) * s.Workers,
				Cores: max(1, f.Cores()/max(threads, 1))})
		}
		types[i].Ranks = append(types[i].Ranks, rank)
	}
	if len(types) == 1 {
		types[0].Name = s.Facts[0].Device
	}
	return types
}

// kind describes everything that the speed of a process's workers depends on.
func (s *Survey) kind(rank int) string {
	return s.Facts[rank].Kind(len(s.beside(rank))*s.Workers, s.onHost(rank))
}

// apart returns a process and other processes of its host. No two of them share processors, so they can all measure at
// once.
func (s *Survey) apart(rank int) []int {
	all := []int{rank}
	for r := range s.Hosts {
		if s.Hosts[r].Node == s.Hosts[rank].Node && !slices.ContainsFunc(all, func(of int) bool {
			return s.Facts[of].Meets(&s.Facts[r])
		}) {
			all = append(all, r)
		}
	}
	return all
}

// Levels returns the pairs of ranks between which links are measured: inside a host, and between hosts. Both ranks
// are -1 if a level has no pair.
func (s *Survey) Levels() (host, network [2]int) {
	host, network = [2]int{-1, -1}, [2]int{-1, -1}
	order := s.order()
	for i, a := range order {
		for _, b := range order[i+1:] {
			switch same := s.Hosts[a].Node == s.Hosts[b].Node; {
			case same && host[0] < 0:
				host = [2]int{a, b}
			case !same && network[0] < 0:
				network = [2]int{a, b}
			}
		}
	}
	return host, network
}

// Links holds the measured link of each level.
type Links struct{ Process, Host, Network cluster.Link }

// Cluster returns the hosts as a cluster to plan for, with one device for each worker.
func (s *Survey) Cluster(threads int, types map[string]cluster.DeviceType, l Links) (*cluster.Cluster, error) {
	h := cluster.Hosts{Process: l.Process, Host: l.Host, Network: l.Network, Types: types}
	typeOf := make([]string, len(s.Hosts))
	for _, t := range s.Types(threads) {
		for _, rank := range t.Ranks {
			typeOf[rank] = t.Name
		}
	}
	for _, rank := range s.order() {
		h.Members = append(h.Members, cluster.Member{Host: fmt.Sprint(s.Hosts[rank].Node), Type: typeOf[rank],
			Workers: s.Workers, Cores: s.Share(rank, threads)})
	}
	return h.Cluster("these hosts")
}

// hostsOf describes in words hosts with these numbers of devices.
func hostsOf(sizes []int) string {
	var said []string
	for at := 0; at < len(sizes); {
		end := at
		for end < len(sizes) && sizes[end] == sizes[at] {
			end++
		}
		n := end - at
		said = append(said, terminal.Count(n, "host")+" of "+terminal.Count(sizes[at], "device"))
		at = end
	}
	return strings.Join(said, ", ")
}

// byHost returns the ranks of each host, in the order of devices.
func (s *Survey) byHost() [][]int {
	var hosts [][]int
	order := s.order()
	for i, rank := range order {
		if i == 0 || s.Hosts[rank].Node != s.Hosts[order[i-1]].Node {
			hosts = append(hosts, nil)
		}
		hosts[len(hosts)-1] = append(hosts[len(hosts)-1], rank)
	}
	return hosts
}

// inWords says how many workers each host has.
func (s *Survey) inWords() string {
	var said []string
	for _, host := range s.byHost() {
		n := len(host) * s.Workers
		said = append(said, fmt.Sprintf("%d %s on host %s", n, terminal.Plural(n, "worker"), s.Hosts[host[0]].Name))
	}
	return strings.Join(said, ", ")
}

// Limit limits the cores of each process to at most this many.
func (s *Survey) Limit(cores int) {
	for rank := range s.Facts {
		s.Facts[rank].Quota = float64(min(s.Facts[rank].Cores(), cores))
	}
}

// Called returns the names of these types in a cluster, or their own names without a cluster.
func (s *Survey) Called(types []Type, c *cluster.Cluster) []string {
	order := s.order()
	var called []string
	for _, t := range types {
		name := t.Name
		if c != nil {
			name = c.Devices[slices.Index(order, t.Ranks[0])*s.Workers]
		}
		called = append(called, name)
	}
	return called
}

// Describe returns the hosts in words, with one line for each type.
func (s *Survey) Describe(types []Type) string {
	text := ""
	for _, t := range types {
		var names []string
		for _, rank := range t.Ranks {
			if name := s.Hosts[rank].Name; !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
		const most = 8
		if n := len(names); n > most {
			names = append(names[:most-1], fmt.Sprintf("%d more", n-most+1))
		}
		f := &s.Facts[t.Ranks[0]]
		quota := ""
		if f.Quota > 0 {
			quota = fmt.Sprintf(" (%.3g of %d by quota)", f.Quota, f.Count)
		}
		workers, of := len(t.Ranks)*s.Workers, ""
		if len(names) > 1 {
			of = " in all, on each"
		}
		text += fmt.Sprintf("%s %s: %d %s%s %s, %d %s%s, device type %s\n", terminal.Plural(len(names), "host"),
			strings.Join(names, ", "), workers, terminal.Plural(workers, "worker"), cmp.Or(of, ","),
			cmp.Or(f.CPU, "a CPU"), f.Cores(),
			terminal.Plural(f.Cores(), "core"), quota, t.Name)
	}
	return text
}
