package servers

import (
	"fmt"
	"testing"

	"github.com/millrace-ml/millrace/cluster"
)

// TestOneServerOfAllDevices checks placements on one server that has as many devices as a cluster may have.
func TestOneServerOfAllDevices(t *testing.T) {
	s := New(cluster.MaxDevices, cluster.MaxDevices, Used)
	for _, some := range []int{1, cluster.MaxDevices - 1} {
		first := s.Place(s.None(), some)[0]
		rest := s.Place(first, cluster.MaxDevices-some)[0]
		if n, m := len(s.Between(s.None(), first)), len(s.Between(first, rest)); n != some || n+m != cluster.MaxDevices {
			t.Errorf("%d devices and then all others are %d and %d", some, n, m)
		}
		if n := len(s.Between(rest, s.All())); n != 0 {
			t.Errorf("behind all devices there are %d", n)
		}
	}
}

// TestScatterFirst compares Place with placements worked out by hand, from the sentence in §4.2.2 and from the
// published code.
func TestScatterFirst(t *testing.T) {
	for _, c := range []struct {
		before Taken
		n      int
		used   string // Used, the paper's rule: fresh first, append first, scatter first, without duplicates
		left   string // Left, the published code's rule
	}{
		{Taken{0, 0, 0}, 6, "[[4 2 0] [2 2 2]]", "[[4 2 0] [2 2 2]]"},                 // all servers are fresh
		{Taken{2, 1, 0}, 2, "[[2 1 2] [4 1 0] [3 2 0]]", "[[2 1 2] [4 1 0] [3 2 0]]"}, // five places left on used servers
		{Taken{2, 1, 0}, 4, "[[2 1 4] [4 3 0]]", "[[2 1 4] [4 3 0] [4 2 1]]"},         // five places left on used servers
		{Taken{3, 3, 0}, 3, "[[3 3 3]]", "[[3 3 3] [4 4 1]]"},                         // two places left on used servers
		{Taken{4, 0, 0}, 4, "[[4 4 0]]", "[[4 4 0] [4 2 2]]"},                         // the used server is full
		{Taken{1, 0, 0}, 3, "[[1 3 0] [4 0 0]]", "[[1 3 0] [4 0 0] [2 1 1]]"},         // one server is used
		{Taken{1, 1, 1}, 6, "[[4 4 1] [3 3 3]]", "[[4 4 1] [3 3 3]]"},                 // no server is fresh
	} {
		for over, want := range map[Scatter]string{Used: c.used, Left: c.left} {
			if got := fmt.Sprint(New(12, 4, over).Place(c.before, c.n)); got != want {
				t.Errorf("rule %d: %d more behind %v: %v; want %v", over, c.n, c.before, got, want)
			}
		}
	}
}
