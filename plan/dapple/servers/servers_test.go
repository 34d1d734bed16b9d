package servers

import (
	"testing"

	"github.com/millrace-ml/millrace/cluster"
)

// TestOneServerOfAllDevices: of the most devices that a cluster may have, each is counted.
func TestOneServerOfAllDevices(t *testing.T) {
	s := New(cluster.MaxDevices, cluster.MaxDevices)
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
