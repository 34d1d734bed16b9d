// Package servers computes where DAPPLE's planners place stages (§4.2.2).
//
// Input: the number of devices, and how many share a server. Output: the sets of devices that the three placement
// policies reach. There are no errors: a placement without room is left out.
package servers

import (
	"encoding/binary"
	"slices"

	"github.com/millrace-ml/millrace/cluster"
)

// Layout groups a cluster's devices into servers. A server's devices are taken from the lowest number up, so one count
// for each server describes what is taken.
type Layout struct {
	first []int // lowest device of each server; one more entry ends the last server
	Of    []int // the server of each device
	over  Scatter
	// Limited says that PlaceEach left some sets out.
	Limited bool
}

// Scatter says over which servers the policy "scatter first" spreads a stage.
type Scatter int

const (
	// Used is the paper's rule (§4.2.2): servers with some device taken, or all servers if nothing is taken.
	Used Scatter = iota
	// Left is the published code's rule: every server with a device left.
	Left
)

// Taken has the number of devices of each server that earlier stages use.
type Taken []uint32

// Key returns a map key that identifies what is taken.
func (t Taken) Key() string {
	b := make([]byte, 0, 4*len(t))
	for _, n := range t {
		b = binary.BigEndian.AppendUint32(b, n)
	}
	return string(b)
}

// New returns a Layout of devices in servers of `each` devices; the last server may have fewer.
func New(devices, each int, over Scatter) *Layout {
	s := &Layout{over: over}
	for d := range devices {
		if d%each == 0 {
			s.first = append(s.first, d)
		}
		s.Of = append(s.Of, len(s.first)-1)
	}
	s.first = append(s.first, devices)
	return s
}

// fastestNetwork is the speed of the fastest network between servers of one device each, in bytes per second: 100 Gbps.
// If a cluster has a single level with faster links, it counts as one server (PCIe, NVLink).
const fastestNetwork = 12.5e9

// SizeOf returns the default number of devices in a server. With several levels it is the innermost level's size. A
// single level is one server if its links are faster than a network's, and otherwise each device is a server of its
// own.
func SizeOf(c *cluster.Cluster) int {
	inner := c.Levels[0]
	if len(c.Levels) > 1 || inner.BandwidthBytesPerSecond > fastestNetwork {
		return inner.Size
	}
	return 1
}

// Count returns the number of servers.
func (s *Layout) Count() int { return len(s.first) - 1 }

// Size returns the number of devices of a server.
func (s *Layout) Size(i int) int { return s.first[i+1] - s.first[i] }

// None returns the Taken in which nothing is taken.
func (s *Layout) None() Taken { return make(Taken, s.Count()) }

// All returns the Taken in which everything is taken.
func (s *Layout) All() Taken {
	t := s.None()
	for i := range t {
		t[i] = uint32(s.Size(i))
	}
	return t
}

// Place is D(gids, n) of DAPPLE §4.2.2, figure 6: the choices for n more devices. Each policy gives at most one, and
// equal sets are listed once.
//
//	fresh first:   servers with nothing taken, one after the other, until n devices are found
//	append first:  servers with something taken, one after the other, until n devices are found
//	scatter first: one device from each server of the Scatter rule that has some left, repeated
func (s *Layout) Place(before Taken, n int) []Taken {
	var out []Taken
	keep := func(t Taken, left int) {
		if left == 0 && !slices.ContainsFunc(out, func(o Taken) bool { return slices.Equal(o, t) }) {
			out = append(out, t)
		}
	}
	for _, fresh := range []bool{true, false} {
		t, left := slices.Clone(before), n
		for i := range t {
			if left > 0 && (before[i] == 0) == fresh {
				more := min(left, s.Size(i)-int(t[i]))
				t[i] += uint32(more)
				left -= more
			}
		}
		keep(t, left)
	}
	used := slices.ContainsFunc(before, func(n uint32) bool { return n > 0 })
	t, left := slices.Clone(before), n
	for moved := true; moved && left > 0; {
		moved = false
		for i := range t {
			if spread := s.over == Left || before[i] > 0 || !used; spread && left > 0 && int(t[i]) < s.Size(i) {
				t[i]++
				left--
				moved = true
			}
		}
	}
	keep(t, left)
	return out
}

// MaxWays limits the sets that PlaceEach follows. On hundreds of devices there are more sets than the published search
// could ever try.
const MaxWays = 512

// PlaceEach runs Place for n devices, `times` times in a row, with every choice of policies. It keeps the first MaxWays
// sets.
func (s *Layout) PlaceEach(before Taken, n, times int) []Taken {
	now := []Taken{before}
	for range times {
		var next []Taken
		seen := map[string]bool{}
		for _, t := range now {
			for _, u := range s.Place(t, n) {
				key := u.Key()
				switch {
				case seen[key]:
				case len(next) == MaxWays:
					s.Limited = true
				default:
					seen[key] = true
					next = append(next, u)
				}
			}
		}
		now = next
	}
	return now
}

// Between lists the devices that are in `after` and not in `before`, ascending.
func (s *Layout) Between(before, after Taken) []int {
	var out []int
	for i := range before {
		for n := before[i]; n < after[i]; n++ {
			out = append(out, s.first[i]+int(n))
		}
	}
	return out
}

// Apart says whether the devices are in more than one server.
func (s *Layout) Apart(devices ...int) bool {
	for _, d := range devices {
		if s.Of[d] != s.Of[devices[0]] {
			return true
		}
	}
	return false
}
